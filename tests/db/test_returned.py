"""Records are made of what the database returned, not of what was sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.journal.trees import text

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewMessage, NewSession, Reason, SessionPatch
from lastlight_state.journal import NewScore, SandboxChanges, SignalSent
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Trigger

KEY = ConversationKey("p", "c", "u")

#: Makes a text end with a mark, whatever is sent.
MARKED = """
CREATE FUNCTION mark_{table}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.{column} := rtrim(NEW.{column}, '~') || '~'; RETURN NEW; END $$
"""
MARKS = "CREATE TRIGGER mark_{table} BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION mark_{table}()"

Made = Callable[[StateStore], tuple[Any, Any]]


def run(store: StateStore) -> tuple[Any, Any]:
    made = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", context={"k": [1]}, scratch={"s": None})
    return made, store.workflows.runs.get(made.id)


def keyed_run(store: StateStore) -> tuple[Any, Any]:
    made = store.workflows.runs.ensure("wf", "key", trigger=Trigger("t"), phase="p").run
    return made, store.workflows.runs.get(made.id)


def execution(store: StateStore) -> tuple[Any, Any]:
    made = store.workflows.executions.start("skill", trigger=Trigger("t", type="cli"))
    return made, store.workflows.executions.get(made.id)


def gate(store: StateStore) -> tuple[Any, Any]:
    made = store.workflows.approvals.create(_run(store), Gate("gate", "summary"))
    return made, store.workflows.approvals.get(made.id)


def message(store: StateStore) -> tuple[Any, Any]:
    chat = store.messaging.sessions.create(KEY).id
    made = store.messaging.messages.append(chat, role="user", content="said").message
    return made, store.messaging.messages.get(made.id)


def messages(store: StateStore) -> tuple[Any, Any]:
    chat = store.messaging.sessions.create(KEY).id
    made = store.messaging.messages.append_many(chat, [MessageDraft("user", "a"), MessageDraft("user", "b")])
    return [one.message for one in made], [store.messaging.messages.get(one.message.id) for one in made]


def delivery(store: StateStore) -> tuple[Any, Any]:
    chat = store.messaging.sessions.create(KEY).id
    made = store.messaging.messages.append(chat, role="user", content="said", platform_message_id="m").message
    return made, store.messaging.messages.get(made.id)


def chat(store: StateStore) -> tuple[Any, Any]:
    made = store.messaging.sessions.create(KEY)
    return made, store.messaging.sessions.get(made.id)


def talk(store: StateStore) -> tuple[Any, Any]:
    made = store.conversations.sessions.create(NewSession(name="n"))
    return made, store.conversations.sessions.get(made.id)


def branch(store: StateStore) -> tuple[Any, Any]:
    session = store.conversations.sessions.create().id
    made = store.conversations.branches.create(session, NewBranch(name="n"))
    return made, store.conversations.branches.get(made.id)


def said(store: StateStore) -> tuple[Any, Any]:
    made = store.conversations.messages.put(NewMessage("user", "x", sender="s"))
    return made, store.conversations.messages.get(made.id)


def change(store: StateStore) -> tuple[Any, Any]:
    session = store.conversations.sessions.create(NewSession(status="running")).id
    made = store.conversations.lifecycle.transition(session, "failed", reason=Reason(summary="s", evidence={"k": 1}))
    return made, store.conversations.lifecycle.history(session).items[0]


def feed(store: StateStore) -> tuple[Any, Any]:
    told: list[Any] = []
    session = store.conversations.sessions.create().id
    store.conversations.changes.subscribe(told.append)
    store.conversations.sessions.update(session, SessionPatch(name="n"))
    return told[-1], store.conversations.changes.after(session).items[-1]


def tool_call(store: StateStore) -> tuple[Any, Any]:
    made = store.journal.tool_calls.create(_run(store), "tool", input={"k": [None]})
    return made, store.journal.tool_calls.get(made.run_id, made.seq)


def signal(store: StateStore) -> tuple[Any, Any]:
    key = _run(store)
    made = store.journal.signals.send(key, "go", {"k": 1}, signal_id="s")
    stored = store.journal.signals.get(key, made.seq)
    return made, SignalSent(
        created=True, **{name: getattr(stored, name) for name in ("seq", "signal_id", "received_at")}
    )


def frame(store: StateStore) -> tuple[Any, Any]:
    made = store.journal.frames.append(_run(store), text("t"), note="n")
    return made, store.journal.frames.list(made.run_id).items[0]


def sandbox(store: StateStore) -> tuple[Any, Any]:
    made = store.journal.sandboxes.put(_run(store), "box", SandboxChanges())
    return made, store.journal.sandboxes.get(made.run_id, "box")


def score(store: StateStore) -> tuple[Any, Any]:
    made = store.journal.scores.record(NewScore(_run(store), "n", "scorer", "Scorer", "live", 0.5, reason="r"))
    return made, store.journal.scores.get(made.id)


def cron(store: StateStore) -> tuple[Any, Any]:
    made = store.schedules.crons.put("nightly", CronSpec("0 3 * * *", "wf"))
    return made, store.schedules.crons.get("nightly")


def switch(store: StateStore) -> tuple[Any, Any]:
    made = store.workflows.overrides.put("wf", enabled=False, reason="r")
    return made, store.workflows.overrides.find("wf")


#: What is marked, and what makes a record of it.
MAKERS: dict[str, tuple[str, Made]] = {
    "run": ("workflow_runs.current_phase", run),
    "run with a key": ("workflow_runs.current_phase", keyed_run),
    "execution": ("executions.skill", execution),
    "approval": ("workflow_approvals.summary", gate),
    "chat": ("messaging_sessions.channel_id", chat),
    "message": ("messaging_messages.content", message),
    "messages": ("messaging_messages.content", messages),
    "delivery": ("messaging_messages.content", delivery),
    "session": ("sessions.name", talk),
    "branch": ("branches.name", branch),
    "conversation message": ("messages.sender", said),
    "change of status": ("session_transitions.reason_summary", change),
    "feed": ("session_changes.kind", feed),
    "tool call": ("tool_calls.tool_name", tool_call),
    "signal": ("run_signals.signal_id", signal),
    "frame": ("run_frames.note", frame),
    "sandbox": ("sandboxes.runtime", sandbox),
    "score": ("scores.reason", score),
    "cron": ("cron_schedules.target", cron),
    "override": ("workflow_overrides.reason", switch),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_value_that_a_trigger_changes_is_in_the_record(postgres_database: Database, name: str) -> None:
    """house H-68: whoever else has a say in what is stored."""
    place, make = MAKERS[name]
    table, column = place.split(".")
    store = postgres_database.open()
    raw = postgres_database.raw()
    raw.execute(MARKED.format(table=table, column=column))
    raw.execute(MARKS.format(table=table))
    made, stored = make(store)
    assert "~" in str([one.__dict__ for one in stored] if isinstance(stored, list) else vars(stored))
    assert made == stored


def test_a_default_that_the_database_has_is_in_the_record(fresh_database: Database) -> None:
    """house H-68: of a column that is not stated, on both databases. The table stays as it is then."""
    store, raw = fresh_database.open(), fresh_database.raw()
    if fresh_database.name == "sqlite":
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("UPDATE sqlite_schema SET sql = replace(sql, 'vcs_type TEXT', 'vcs_type TEXT DEFAULT ''git''')")
        raw.execute("PRAGMA writable_schema = RESET")
    else:
        raw.execute("ALTER TABLE workflow_runs ALTER COLUMN vcs_type SET DEFAULT 'git'")
    made, stored = run(store)
    assert (made, str(made.__dict__).count("'git'")) == (stored, 1)


def _run(store: StateStore) -> str:
    return store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
