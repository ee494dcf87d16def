"""Further ways in for JSON values: what stores one under a number of its own, and what finds it, or None."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.agent_log.logs import SANDBOX, agent_log
from support.maintenance.node_databases import made, put

from lastlight_state.codec import load_line
from lastlight_state.conversations import NewSession
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.files.mailbox import Mailboxes, When
from lastlight_state.journal import SandboxChanges
from lastlight_state.messaging import ConversationKey
from lastlight_state.schedules import CronSpec
from lastlight_state.store import StateStore
from lastlight_state.workflows import ExecutionOptions, Gate, NodeRef, Question, RunOptions, Trigger

Entrance = tuple[Callable[[int, Any], Any], Callable[[int], Any]]

#: Lines of agents record what has happened: of some values they have something else, which the promises page names.
LINES = ("agent_log line",)


def _or_none(find: Callable[[], Any]) -> Any:
    try:
        return find()
    except NotFound:
        return None


def part(found: Any, name: str) -> Any:
    """A field of a record, None where there is no record."""
    return None if found is None else getattr(found, name)


def workflow_entrances(store: StateStore) -> dict[str, Entrance]:
    """Those of runs: scratch, checkpoints, gates, questions and their answers, sandboxes."""
    flows, journal = store.workflows, store.journal
    run = flows.runs.create("w", trigger=Trigger("t-2", type="api"), phase="p").id

    def create(name: str) -> str:
        options = RunOptions(id=name)
        return flows.runs.create("w", trigger=Trigger("t-3", type="api"), phase="p", options=options).id

    def checkpoint(n: int, value: Any) -> None:
        started = flows.executions.start("s", run_id=run, options=ExecutionOptions(id=f"x{n}"))
        flows.executions.update(started.id, checkpoint={"v": value})

    def ask(n: int, value: Any, options: list[Any] | None) -> str:
        node, name = NodeRef(f"n{n}"), f"q{n}" if options else f"f{n}"
        kind, schema = ("select", None) if options else ("form", True)
        question = Question(node, kind, "?", options=options, schema=schema, id=name)  # type: ignore[arg-type]
        return flows.human_requests.create(run, question).id

    return {
        "runs.merge_scratch": (
            lambda n, v: flows.runs.merge_scratch(create(f"k{n}"), {"v": v}),
            lambda n: flows.runs.get(f"k{n}").scratch,
        ),
        "executions.update": (checkpoint, lambda n: flows.executions.get(f"x{n}").checkpoint),
        "approvals.create": (
            lambda n, v: flows.approvals.create(run, Gate(f"g{n}", "s", action={"v": v}, id=f"g{n}")),
            lambda n: _or_none(lambda: flows.approvals.get(f"g{n}").action),
        ),
        "human_requests.create": (
            lambda n, v: ask(n, v, [{"v": v}, "other"]),
            lambda n: _or_none(lambda: flows.human_requests.get(f"q{n}").options[0]),
        ),
        "human_requests.answer": (
            lambda n, v: flows.human_requests.answer(ask(n, v, None), {"v": v}, by="ana"),
            lambda n: flows.human_requests.get(f"f{n}").response,
        ),
        "sandboxes.put": (
            lambda n, v: journal.sandboxes.put(run, f"b{n}", SandboxChanges(runtime="r", config={"v": v})),
            lambda n: part(journal.sandboxes.find(run, f"b{n}"), "config"),
        ),
    }


def other_entrances(store: StateStore, folder: Path) -> dict[str, Entrance]:
    """Those of other domains: crons, chats, conversations, agents' logs, tasks of mailboxes, and imports."""
    chats, crons, talks = store.messaging.sessions, store.schedules.crons, store.conversations
    logs, mailbox = agent_log(folder / "agents"), Mailboxes(folder / "tasks").create("g", "s")

    def chat(n: int, value: Any) -> None:
        made = chats.create(ConversationKey("p", f"c{n}", "u"), session_id=f"chat{n}")
        chats.update(made.id, version=made.version, metadata={"v": value})

    def write_line(n: int, value: Any) -> None:
        with logs.writer.open(place=SANDBOX, session_id=f"line{n}") as writer:
            writer.append([{"type": "x", "v": value}])

    def line(n: int) -> Any:
        found = [*(folder / "agents").rglob(f"line{n}.jsonl")]
        return load_line(found[0].read_bytes()) if found else None

    def change_task(n: int, value: Any) -> None:
        mailbox.inbox.send(f"k{n}", kind="task", content={"prompt": "a", "v": value}, when=When(recurrence="@daily"))
        mailbox.tasks.update(f"k{n}", prompt="b")

    def bring(n: int, value: Any) -> None:
        source = made(folder / f"theirs{n}.db")
        put(source, "runs", run_id=f"theirs{n}")
        put(source, "events", run_id=f"theirs{n}", seq=0, payload_json={"v": value})
        done = store.maintenance.imports.run(source)
        if done.failures:
            raise InvalidValue("source", done.failures[0].reason)

    return {
        "crons.put": (
            lambda n, v: crons.put(f"c{n}", CronSpec("@daily", "w", payload={"v": v})),
            lambda n: part(crons.find(f"c{n}"), "payload"),
        ),
        "messaging sessions.update": (chat, lambda n: chats.get(f"chat{n}").metadata),
        "conversations sessions.create": (
            lambda n, v: talks.sessions.create(NewSession(f"talk{n}", extra={"v": v})),
            lambda n: part(talks.sessions.find(f"talk{n}"), "extra"),
        ),
        "agent_log line": (write_line, line),
        "mailbox tasks.update": (change_task, lambda n: part(mailbox.inbox.find(f"k{n}"), "content")),
        "imports.run": (bring, lambda n: _or_none(lambda: store.journal.events.get(f"theirs{n}", 0).payload)),
    }
