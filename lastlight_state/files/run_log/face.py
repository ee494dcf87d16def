"""`RunLog`: the object ``store.run_log``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from lastlight_state.clock import SYSTEM_CLOCK, Clock, checked_clock
from lastlight_state.db.gate import check_arguments
from lastlight_state.db.rows.records import Record
from lastlight_state.files.jsonl.files import LOCK_TIMEOUT
from lastlight_state.files.jsonl.writer import SyncWord
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.checks import Checks
from lastlight_state.files.run_log.fields import JsonObject, Runtime
from lastlight_state.files.run_log.messages import Dropped, is_notice, normalise
from lastlight_state.files.run_log.reading import newer
from lastlight_state.files.run_log.records import RunHeader, build_record, part
from lastlight_state.files.run_log.replay import Replay
from lastlight_state.files.run_log.runs import Runs, Writing
from lastlight_state.files.run_log.runs.heads import Heads
from lastlight_state.files.run_log.runs.lists import RunLists
from lastlight_state.files.run_log.states import Reconstruction, States
from lastlight_state.files.run_log.states.files import SessionState
from lastlight_state.files.run_log.tree import RunTree

# Preparing a resume: the messages to continue with, and the header of the new run. Reads and writes nothing.
#
# A resume is a new run with a log of its own. Its header has the new environment, so that the environment is known
# before the first invocation.

_SYSTEM = "system"


class EnvironmentChange(NamedTuple):
    """A difference between this environment and the environment of the last run."""

    name: str
    before: Any
    after: Any


class ResumePlan(Record):
    """The plan for resuming a session.

    ``meta`` is the state's ``meta`` with the new environment, for the next snapshot. ``changes`` are the differences
    from the last environment. ``dropped`` are the parts that were removed from the history.
    """

    session_id: str
    messages: tuple[JsonObject, ...]
    runtime: Runtime
    meta: JsonObject
    invoke_seq: int
    changes: tuple[EnvironmentChange, ...]
    dropped: tuple[Dropped, ...]

    def header(self, run_id: str, *, started_at: datetime, **parts: Any) -> RunHeader:
        """Return the header of the new run.

        ``parts`` are its other fields, such as ``client``, ``model`` and ``prompts``.
        """
        own = {"run_id": run_id, "session_id": self.session_id, "started_at": started_at, "runtime": self.runtime}
        return build_record(RunHeader, {**parts, **own})


def default_notice(changes: Sequence[EnvironmentChange]) -> str:
    """Return the text that tells the model about a new environment."""
    lines = [f"- {change.name}: {change.after} (before: {change.before})" for change in changes]
    return "\n".join(["The session was resumed in another environment:", *lines])


@check_arguments
def prepare_resume(
    state: SessionState,
    *,
    environment: Runtime,
    previous: Runtime | None = None,
    system_prompt: str | None = None,
    notice: Callable[[Sequence[EnvironmentChange]], str] | None = default_notice,
) -> ResumePlan:
    """Return the plan to resume a session in this environment.

    Equal inputs give equal plans; the input is not changed.

    Calls without a result and results without a call are dropped. ``system_prompt`` replaces the leading system
    messages. If the environment differs from ``previous``, which defaults to the environment of the last plan, a system
    message with the text of ``notice`` is added after them. The notices of earlier resumes are removed. Raises
    `NewerSchema` for a state of another version, and `InvalidValue` if the last plan's environment cannot be read.
    """
    if type(state.schema_version) is not int or state.schema_version != paths.VERSION:
        raise newer(f"session state {state.session_id}", state.schema_version)
    history, dropped = normalise(message for message in state.messages if not is_notice(message))
    leading = next((i for i, message in enumerate(history) if message.get("role") != _SYSTEM), len(history))
    head, rest = list(history[:leading]), history[leading:]
    if system_prompt is not None:
        head = [{"role": _SYSTEM, "content": system_prompt}]
    changes = _changes(environment, previous or _last_environment(state.meta))
    if changes and notice is not None:
        head.append({"role": _SYSTEM, "content": notice(changes), "meta": {paths.NOTICE: True}})
    return ResumePlan(
        session_id=state.session_id,
        messages=(*head, *rest),
        runtime=environment,
        meta={**deepcopy(state.meta or {}), paths.ENVIRONMENT: environment.to_json()},
        invoke_seq=state.invoke_seq or 0,
        changes=changes,
        dropped=dropped,
    )


def _last_environment(meta: JsonObject | None) -> Runtime | None:
    """Return the environment that the last plan stored, or None."""
    told = (meta or {}).get(paths.ENVIRONMENT)
    return part("meta", Runtime, told) if isinstance(told, Mapping) else None


def _changes(now: Runtime, before: Runtime | None) -> tuple[EnvironmentChange, ...]:
    """Return the fields that have different values in the two environments."""
    if before is None:
        return ()
    old, new = before.to_json(), now.to_json()
    known = [name for name, value in new.items() if value is not None and old.get(name) is not None]
    return tuple(EnvironmentChange(name, old[name], new[name]) for name in known if old[name] != new[name])


class RunLog:
    """Runs and session states below ``<root>/sessions``: ``store.run_log``. Creates nothing by itself.

    It needs no database: a process without one, such as an agent in a container, uses `open`. ``sync`` sets when lines
    are synced to disk, and ``lock_timeout`` how many seconds a call waits while another one appends or saves.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        sync: SyncWord = "end",
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> None:
        clock = checked_clock(clock)
        tree = RunTree(root)
        self.root = tree.root
        heads = Heads(tree)
        lists = RunLists(tree, heads)
        self.runs = Runs(tree, heads, lists, Writing(clock, sync, lock_timeout))
        self.replay = Replay(tree, lists)
        self.checks = Checks(tree)
        self.states = States(tree, clock, lock_timeout, Reconstruction(tree, lists))

    @classmethod
    def open(
        cls,
        root: Path | str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        sync: SyncWord = "end",
        lock_timeout: float = LOCK_TIMEOUT,
    ) -> Self:
        """Return the run log below this directory, without a store."""
        return cls(Path(root).absolute(), clock=clock, sync=sync, lock_timeout=lock_timeout)
