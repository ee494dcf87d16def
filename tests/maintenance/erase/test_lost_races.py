"""Somebody comes in between the statements of `Erase.run`, which looks again under its locks in each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.conversations.talk import said
from support.maintenance.people import emptied, shared_place
from support.rivals import shut_out

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewChunk, Reason
from lastlight_state.errors import BackendBusy
from lastlight_state.maintenance import RedactPolicy
from lastlight_state.maintenance.erase import messages
from lastlight_state.testing import Database, racing


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
