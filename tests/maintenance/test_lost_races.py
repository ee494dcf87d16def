"""Somebody comes in between the statements of `Redact.run`, `Erase.run`, `Counters.run` and `Reap.run`.

Each batch looks again, under its locks.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.conversations.talk import begun, running_hours_apart, said
from support.maintenance.people import emptied, shared_place
from support.rivals import shut_out

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewChunk, NewMessage, Reason
from lastlight_state.errors import BackendBusy, ClaimLost
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.maintenance.erase import messages
from lastlight_state.testing import Database, racing


def test_a_message_that_gets_another_role_meanwhile_stays(database: Database) -> None:
    """maintenance OP-32."""
    store, other = database.open(), database.open()
    for one in said("a", "b"):
        store.conversations.messages.put(one)
    with racing(store) as race:
        race.before_unit(3, lambda: other.conversations.messages.put(NewMessage("tool", "x", id="a")))
        receipt = store.maintenance.redact.run(RedactPolicy(message_ids=["a", "b"], roles=["user"]))
    assert (race.left, receipt.counts, emptied(store, "a", "b")) == (0, {"messages": 1}, [False, True])


def test_what_is_said_while_a_person_is_erased_goes_with_the_session(database: Database) -> None:
    """maintenance OP-77: a session is looked at again before it forgets whose it was."""
    store, other = database.open(), database.open()
    shared_place(store)
    with racing(store) as race:
        race.before_unit(4, lambda: other.conversations.branches.append("own", said("late")))
        receipt = store.maintenance.erase.run("ana")
    assert (race.left, emptied(store, "late"), receipt.counts["messages"]) == (0, [True], 4)


def test_a_session_that_somebody_else_gets_meanwhile_stays(database: Database) -> None:
    """maintenance OP-77."""
    store = database.open()
    shared_place(store)
    with racing(store) as race:
        change = "UPDATE sessions SET \"user\" = 'eve' WHERE id = 'own'"
        race.before_unit(4, lambda: database.raw().execute(change))
        assert "sessions" not in store.maintenance.erase.run("ana").counts
    assert race.left == 0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE sessions SET hold_reason = 'x' WHERE id = 'other'",
        "UPDATE branches SET \"user\" = 'eve' WHERE id = 'hers'",
    ],
    ids=["held", "given away"],
)
def test_a_branch_that_is_held_or_somebody_elses_by_then_stays(database: Database, change: str) -> None:
    """maintenance OP-77: with its chunks; and so does what was said of a change, where the session is held."""
    store = database.open()
    shared_place(store)
    talks = store.conversations
    talks.branches.create("other", NewBranch(id="hers", user="ana"))
    talks.lifecycle.transition("other", "running", reason=Reason(actor="ana"))
    talks.lifecycle.transition("other", "failed")
    talks.vectors.put("texts", [NewChunk("hers", "x", [1.0])])
    with racing(store) as race:
        race.before_unit(4, lambda: database.raw().execute(change))
        done = store.maintenance.erase.run("ana").counts
    held = "hold_reason" in change
    assert (race.left, done["branches"], "vectors" in done) == (0, 1, False)
    assert ("session_transitions" in done, talks.branches.get("hers").user) == (not held, "ana" if held else "eve")


def test_a_branch_whose_session_is_held_meanwhile_stays(database: Database) -> None:
    """maintenance OP-77."""
    store = database.open()
    shared_place(store)
    with racing(store) as race:
        race.before_unit(4, lambda: database.raw().execute("UPDATE sessions SET hold_reason = 'x' WHERE id = 'own'"))
        assert "branches" not in store.maintenance.erase.run("ana").counts
    assert (race.left, store.conversations.branches.get("own").user) == (0, "ana")


def test_an_erasure_waits_for_no_inbox_of_others(shared_postgres: Database) -> None:
    """maintenance OP-77."""
    store, raw = shared_postgres.open(), shared_postgres.raw()
    store.conversations.exchange.send(said("a")[0], to=["ana", "bo"])
    raw.execute("BEGIN")
    for table in ("exchange_inboxes", "exchange_deliveries"):
        raw.execute(f"SELECT owner FROM {table} WHERE owner = 'bo' FOR UPDATE")
    assert store.maintenance.erase.run("ana").counts == {"exchange_deliveries": 1, "exchange_inboxes": 1}
    raw.execute("ROLLBACK")


@pytest.mark.parametrize(
    "work",
    [
        lambda store: store.maintenance.redact.run(RedactPolicy(message_ids=["a"])),
        lambda store: store.maintenance.erase.run("ana"),
    ],
    ids=["redact", "erase"],
)
def test_nobody_holds_a_session_while_its_messages_are_emptied(
    database: Database, work: Callable[[StateStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-32, OP-77: from the look at the session to the commit."""
    store, other = database.open(), shut_out(database)
    shared_place(store)
    empty, refused = messages.empty, []

    def beside(unit: Any, found: list[Any], at: Any) -> None:
        if found:
            with pytest.raises(BackendBusy) as refusal:
                other.conversations.sessions.hold("own", "a lawsuit")
            refused.append(refusal)
        empty(unit, found, at)

    monkeypatch.setattr(messages, "empty", beside)
    work(store)
    assert refused
    assert emptied(store, "a") == [True]


def test_a_counter_that_is_raised_meanwhile_is_not_raised_again(database: Database) -> None:
    """maintenance OP-67: nor is one that is ahead by then brought back."""
    store, raw = database.open(), database.raw()
    order = begun(store, "a", "b").progression_id
    raw.execute(f"UPDATE progressions SET next_ord = 1 WHERE id = '{order}'")
    with racing(store) as race:
        raising = f"UPDATE progressions SET next_ord = 7 WHERE id = '{order}'"
        race.before_unit(3, lambda: raw.execute(raising))
        assert store.maintenance.counters.run().counts == {}
    assert race.left == 0
    assert raw.execute(f"SELECT next_ord FROM progressions WHERE id = '{order}'").fetchone()[0] == 7


def test_work_that_was_taken_over_is_left_to_its_new_owner(database: Database) -> None:
    """maintenance OP-7: nobody is told to go on with it."""
    store, other = running_hours_apart(database, "silent"), database.open()

    def take_over() -> None:
        [running] = other.receipts.list(state="running")
        database.clock.advance(timedelta(minutes=10))
        other.receipts.resume(running.id, owner="other")

    with racing(store) as race:
        race.before_unit(3, take_over)
        with pytest.raises(ClaimLost) as lost:
            store.maintenance.reap.run(older_than=timedelta(0))
    assert (race.left, getattr(lost.value, "__notes__", [])) == (0, [])
    assert [(one.owner, one.state) for one in other.receipts.list()] == [("other", "running")]


def test_a_session_that_wakes_up_meanwhile_is_skipped(database: Database) -> None:
    """maintenance OP-33: as is one that somebody else ended."""
    store, other = running_hours_apart(database, "ended", "silent", "woken"), database.open()
    with racing(store) as race:
        race.before_unit(3, lambda: other.conversations.lifecycle.heartbeat("woken", "w"))
        race.before_unit(3, lambda: other.conversations.lifecycle.transition("ended", "completed"))
        receipt = store.maintenance.reap.run(older_than=timedelta(0))
    assert (race.left, receipt.counts) == (0, {"retired": 1, "skipped": 2})
    found = [store.conversations.sessions.get(name).status for name in ("ended", "silent", "woken")]
    assert found == ["completed", "aborted", "running"]
