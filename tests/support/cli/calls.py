"""Calls of the program in this process, and databases in every state that it may meet."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from lastlight_state.cli.arguments import Flags
from lastlight_state.cli.output import Call, Output
from lastlight_state.cli.program import run
from lastlight_state.messaging import ConversationKey
from lastlight_state.redaction import Secrets
from lastlight_state.store import StateStore
from lastlight_state.workflows import Gate, RunOptions, Trigger, Usage


@dataclass(frozen=True)
class Said:
    """What one call printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """The one JSON object that ``--json`` promises: one line on stdout and nothing else."""
        assert self.out.count("\n") == 1, self.out
        assert self.out.endswith("\n"), self.out
        found: dict[str, Any] = json.loads(self.out)
        assert set(found) == {"ok", "command", "data", "warnings", "error"}
        assert found["ok"] is (self.code == 0) is (found["error"] is None)
        return found

    @property
    def error(self) -> str:
        """The code of the error in the JSON object."""
        return str(self.answer["error"]["code"])

    @property
    def data(self) -> dict[str, Any]:
        """What the JSON object says."""
        found: dict[str, Any] = self.answer["data"]
        return found


def lastlight_state(*words: object) -> Said:
    """Run the program on these words."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(word) for word in words])
    return Said(code, out.getvalue(), err.getvalue())


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def begun(store: StateStore, **options: Any) -> str:
    """The id of a new run."""
    return store.workflows.runs.create(
        "review", trigger=Trigger("t", type="cli"), phase="plan", options=RunOptions(**options)
    ).id


def call_on(url: str) -> Call:
    """A call with this database, as commands get it."""
    flags, secrets = Flags(url=url), Secrets()
    return Call(flags, secrets, Output(flags, secrets, io.StringIO(), io.StringIO()))


@dataclass(frozen=True)
class Filled:
    """The ids of what `fill` stored."""

    run: str
    execution: str
    approval: str
    messaging: str


STATES = ("empty", "populated", "missing", "behind", "unreachable")
UNKNOWN = Filled("no-run", "no-execution", "no-approval", "no-session")


@dataclass(frozen=True)
class Target:
    """A database in one state, and the ids in it."""

    url: str
    backend: str
    state: str
    ids: Filled = UNKNOWN


def fill(store: StateStore) -> Filled:
    """A paused run with an execution and a pending gate, and a chat session with two messages."""
    workflows = store.workflows
    run_id = workflows.runs.create(
        "issue-to-pr",
        trigger=Trigger("acme/w#1", owner="acme", repo="w", type="webhook", actor="ana"),
        phase="architect",
        context={"long": "x" * 500},
    ).id
    execution = workflows.executions.start("issue-to-pr:architect", run_id=run_id, session_id="architect-1").id
    workflows.executions.save_output(execution, "first line\n" + "y" * 500)
    workflows.executions.finish(execution, "succeeded", usage=Usage(turns=3, cost_usd=Decimal("0.12")))
    approval = workflows.approvals.pause(run_id, Gate("post_architect", "Shall it start?")).id
    session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "ana")).session.id
    store.messaging.messages.append(session, role="user", content="hello\nthere")
    store.messaging.messages.append(session, role="assistant", content="hi")
    return Filled(run_id, execution, approval, session)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below the folder with its size and time of change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.lstat()
        found[str(path.relative_to(folder))] = (stat.st_size, stat.st_mtime_ns)
    return found
