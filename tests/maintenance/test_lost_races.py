"""Somebody comes in between the statements of `Redact.run` and `Erase.run`: each batch looks again, under its locks."""

from __future__ import annotations

from support.conversations.talk import said
from support.maintenance.people import emptied, shared_place

from lastlight_state.conversations import NewMessage
from lastlight_state.maintenance import RedactPolicy
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


def test_a_branch_whose_session_is_held_meanwhile_stays(database: Database) -> None:
    """maintenance OP-77."""
    store = database.open()
    shared_place(store)
    with racing(store) as race:
        race.before_unit(4, lambda: database.raw().execute("UPDATE sessions SET hold_reason = 'x' WHERE id = 'own'"))
        assert "branches" not in store.maintenance.erase.run("ana").counts
    assert (race.left, store.conversations.branches.get("own").user) == (0, "ana")
