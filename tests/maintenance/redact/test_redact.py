"""Messages that are emptied by age, role, session or id."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.conversations.talk import begun, history, said
from support.each import with_each
from support.maintenance import personal
from support.maintenance.people import emptied
from support.maintenance.rows import counts, difference, insert
from support.workflows.plans import plan_of

from lastlight_state import InvalidValue, NotFound
from lastlight_state.conversations import NewBranch, NewMessage, NewSession, words
from lastlight_state.db.rows.statements import Family, Statement
from lastlight_state.maintenance import PrunePolicy, RedactPlan, RedactPolicy, erase as erasing
from lastlight_state.maintenance.erase import messages, personal_rows, redact as redacting
from lastlight_state.testing import Database, racing

DAY = 86_400


def test_emptied_messages_keep_their_rows_and_order_and_a_second_time_changes_nothing(
    store: Any, database: Database
) -> None:
    """maintenance OP-32."""
    talks = database.open()
    talks.conversations.messages.put(NewMessage("user", "hello", id="a", embedding=[1.0], extra={"k": 1}, sender="ana"))
    begun(talks, branch_id="main")
    talks.conversations.branches.append("main", ["a", *said("b")])
    database.clock.advance(seconds=2 * DAY)
    talks.conversations.branches.append("main", said("young"))
    before, policy = counts(database), RedactPolicy(older_than=timedelta(days=1))
    size = len('{"text":"b"}' if database.name == "sqlite" else '{"text": "b"}') + len('"hello"')
    assert store.maintenance.redact.plan(policy) == RedactPlan(counts={"messages": 2}, bytes=size, protected={})
    receipt = store.maintenance.redact.run(policy, actor="ops")
    assert (receipt.kind, receipt.state, receipt.actor, receipt.counts) == ("redact", "done", "ops", {"messages": 2})
    found = talks.conversations.messages.get("a")
    assert found.content[words.REDACTED]["original_bytes"] == 7
    assert (found.embedding, found.extra, found.sender, found.revision) == (None, None, "ana", 1)
    assert (history(talks, "main"), emptied(talks, "a", "b", "young")) == (["a", "b", "young"], [True, True, False])
    assert difference(before, counts(database)) == {}
    assert store.maintenance.redact.run(policy).counts == {}
    assert talks.conversations.messages.get("a") == found


@pytest.mark.parametrize(
    "content",
    [
        {"lion_content_pruned": "x", "secret": "s"},
        {"lion_content_pruned": {"at": "2026-02-03T12:00:00.000Z", "original_bytes": 7, "secret": "s"}},
        {"lion_content_pruned": {"at": "2026-02-03T12:00:00.000Z", "original_bytes": 7}, "secret": "s"},
        {"lion_content_pruned": {"at": "secret", "original_bytes": 7}},
        {"lion_content_pruned": {"at": 20260203, "original_bytes": 7}},
        {"lion_content_pruned": {"at": "2026-02-03T12:00:00.000Z", "original_bytes": "secret"}},
    ],
)
def test_a_content_that_only_looks_emptied_is_emptied(store: Any, database: Database, content: Any) -> None:
    """maintenance OP-32: anybody may write the mark."""
    talks = database.open()
    begun(talks, branch_id="main")
    talks.conversations.branches.append("main", [NewMessage("user", content, id="a")])
    policy = RedactPolicy(message_ids=["a"])
    assert store.maintenance.redact.plan(policy).counts == {"messages": 1}
    assert store.maintenance.redact.run(policy).counts == {"messages": 1}
    found = talks.conversations.messages.get("a").content
    assert (found.keys(), found[words.REDACTED].keys()) == ({words.REDACTED}, {"at", "original_bytes"})
    assert store.maintenance.redact.run(policy).counts == {}


def test_a_content_that_begins_as_an_emptied_one_and_is_no_json_is_emptied(sqlite_database: Database) -> None:
    """maintenance OP-32: another program may write it into a file."""
    store = sqlite_database.open()
    begun(store, "a")
    sqlite_database.raw().execute("UPDATE messages SET content = '{\"lion_content_pruned\":{ secret'")
    assert store.maintenance.redact.run(RedactPolicy(message_ids=["a"])).counts == {"messages": 1}
    assert emptied(store, "a") == [True]


def test_a_time_finer_than_ours_stops_no_maintenance(postgres_database: Database) -> None:
    """maintenance OP-26, OP-32, OP-33, M-99: another program's `now()`; cut to milliseconds it is found for ever."""
    store, day = postgres_database.open(), timedelta(days=1)
    store.conversations.sessions.create(NewSession("talk", status="running"))
    store.conversations.branches.append(store.conversations.branches.create("talk").id, said("a"))
    finer = "created_at = created_at + interval '7 microseconds'"
    raw = postgres_database.raw()
    raw.execute(f"UPDATE messages SET {finer}")
    raw.execute(f"UPDATE sessions SET {finer}, updated_at = created_at + interval '7 microseconds'")
    raw.execute("UPDATE sessions SET started_at = updated_at, last_message_at = updated_at, heartbeat_at = updated_at")
    postgres_database.clock.advance(seconds=90 * DAY)
    m = store.maintenance
    assert (m.reap.plan(older_than=day).retired, m.reap.run(older_than=day).counts["retired"]) == (1, 1)
    assert m.redact.plan(RedactPolicy(older_than=day)).counts == {"messages": 1}
    assert m.redact.run(RedactPolicy(older_than=day)).counts == {"messages": 1}
    postgres_database.clock.advance(seconds=90 * DAY)
    raw.execute("UPDATE sessions SET updated_at = updated_at + interval '7 microseconds'")
    assert m.prune.plan(PrunePolicy(keep_n=0)).counts["sessions"] == 1
    assert m.prune.run(PrunePolicy(keep_n=0)).counts["sessions"] == 1


@pytest.mark.parametrize("narrow", ["", "session", "message"])
def test_a_message_is_emptied_when_it_is_older_than_the_age(store: Any, database: Database, narrow: str) -> None:
    """maintenance OP-32: not when it is as old, also where a session or the message is named."""
    session = begun(database.open(), "a").session_id
    day = timedelta(days=1)
    named = {"session": {"session_id": session}, "message": {"message_ids": ["a"]}}.get(narrow, {})
    policy = RedactPolicy(older_than=day, **named)  # type: ignore[arg-type]
    database.clock.advance(day)
    assert (store.maintenance.redact.plan(policy).counts, store.maintenance.redact.run(policy).counts) == ({}, {})
    database.clock.advance(timedelta(milliseconds=1))
    assert store.maintenance.redact.run(policy).counts == {"messages": 1}


def test_session_ids_and_roles_narrow_what_is_emptied(database: Database) -> None:
    """maintenance OP-32."""
    store = database.open()
    session = begun(store, "a", "b", branch_id="one").session_id
    store.conversations.branches.append("one", said("told", role="assistant"))
    begun(store, "c", branch_id="two")
    redact = store.maintenance.redact
    assert redact.plan(RedactPolicy(session_id=session)).counts == {"messages": 3}
    assert redact.plan(RedactPolicy(timedelta(days=1), session_id=session)).counts == {}
    assert redact.run(RedactPolicy(session_id=session, roles=["assistant"])).counts == {"messages": 1}
    assert redact.run(RedactPolicy(session_id=session, message_ids=["a", "c"])).counts == {"messages": 1}
    assert redact.run(RedactPolicy(message_ids=["c", "a"])).counts == {"messages": 1}
    assert emptied(store, "a", "b", "c", "told") == [True, False, True, True]


def test_messages_of_sessions_that_run_or_are_held_are_left_alone(store: Any, database: Database) -> None:
    """maintenance OP-32, OP-77: also if they stand in another session, too; what is held is held from an erasure."""
    talks = database.open().conversations
    for name in ("running", "held", "free"):
        talks.sessions.create(NewSession(name, user="ana"))
        talks.branches.create(name, NewBranch(id=name, user="ana"))
        talks.branches.append(name, said(f"of {name}"))
    talks.branches.append("free", ["of held"])
    talks.lifecycle.transition("running", "running")
    talks.sessions.hold("held", "a lawsuit")
    every = ("of running", "of held", "of free")
    policy = RedactPolicy(message_ids=every)
    assert store.maintenance.redact.plan(policy).protected == {"held": 1, "not_ended": 1}
    store.maintenance.redact.run(policy)
    assert emptied(database.open(), *every) == [False, False, True]
    plan = store.maintenance.erase.plan("ana")
    assert (plan.counts["sessions"], plan.counts["branches"], plan.protected) == (2, 2, {"held": 1})
    assert store.maintenance.erase.run("ana").counts == plan.counts
    assert emptied(database.open(), *every) == [True, False, True]
    for places in (talks.sessions, talks.branches):
        assert [places.get(name).user for name in ("running", "held", "free")] == [None, "ana", None]


@with_each(
    ("wrong", "error"),
    [
        (RedactPolicy(), InvalidValue),
        (RedactPolicy(roles=["user"]), InvalidValue),
        (RedactPolicy(timedelta(days=-1)), InvalidValue),
        (RedactPolicy(message_ids=["x"] * 501), InvalidValue),
        (RedactPolicy(message_ids=["none"]), NotFound),
        (RedactPolicy(session_id="none"), NotFound),
    ],
    ids=str,
)
def test_a_wrong_policy_empties_nothing(database: Database, wrong: RedactPolicy, error: type[Exception]) -> None:
    """maintenance OP-32."""
    store = database.open()
    for call in (store.maintenance.redact.plan, store.maintenance.redact.run):
        with pytest.raises(error):
            call(wrong)
    assert store.receipts.list().items == ()


def test_many_messages_are_emptied_in_short_transactions(database: Database) -> None:
    """maintenance OP-32: one that is interrupted says so, and doing it again does the rest."""
    store, now = database.open(), database.clock.now()
    row = {"role": "user", "content": '"x"', "created_at": now - timedelta(days=3)}
    insert(database.raw(), "messages", *({"id": f"m{n}", **row} for n in range(450)))

    def interrupt() -> None:
        raise KeyboardInterrupt

    policy = RedactPolicy(timedelta(days=1))
    with racing(store) as race:
        race.before_unit(4, interrupt)
        with pytest.raises(KeyboardInterrupt) as raised:
            store.maintenance.redact.run(policy)
    assert raised.value.__notes__ == ["interrupted; to go on: the same command"]
    assert [one.counts for one in store.receipts.list(state="interrupted")] == [{"messages": 200}]
    assert store.maintenance.redact.run(policy).counts == {"messages": 250}


def test_statements_about_messages_find_them_by_an_index(database: Database) -> None:
    """maintenance OP-32, OP-77."""
    store, now = database.open(), database.clock.now()
    values = {
        "key_0": "a",
        "key_1": "b",
        "person": "p",
        "namespace": "n",
        "after_id": "",
        **dict.fromkeys(("after_at", "cutoff"), now),
    }
    modules = (messages, messages, personal_rows, personal_rows, erasing)
    families = [one for module in modules for one in vars(module).values() if isinstance(one, Family)]
    statements: list[Statement[Any]] = [redacting.OLDER, erasing._SENT, erasing._RECEIVED]
    statements += [one.of(["a", "b"])[0] for one in families]
    for statement in statements:
        plan = plan_of(database, store, statement, values, in_order=True)
        assert not plan.scans_the_table, plan


def test_a_redaction_leaves_of_a_message_what_says_so(store: Any, database: Database) -> None:
    """maintenance M-82: names, and the metadata; everything personal else goes."""
    personal.fill(database)
    store.maintenance.redact.run(RedactPolicy(message_ids=["message"]))
    of_messages = {name for name in personal.left(database) if name.startswith(("messages.", "vectors."))}
    assert of_messages == {"messages.sender", "messages.recipient", "messages.node_metadata"}
