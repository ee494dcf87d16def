"""Somebody writes while `Reencrypt._batches` seals what is stored: it looks at rows, and again under their locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.between import before
from support.rivals import Wait, after_waiting
from support.sealing import Bound, Xor

from lastlight_state.conversations import NewMessage
from lastlight_state.maintenance.upkeep.reencrypt import Reencrypted
from lastlight_state.testing import Database

SEALED = Xor(7)


def sealed_while(
    database: Database, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], codec: Any = SEALED, many: int = 1
) -> Reencrypted:
    """What the call returns if this happens after its first look at rows that need it, before it locks them."""
    reencrypt = database.open(codec=codec).maintenance.reencrypt
    happened = before(monkeypatch, reencrypt, "_writing", act)
    done: Reencrypted = reencrypt.run(batch_rows=many)
    assert happened
    assert reencrypt.plan() == dict.fromkeys(("states",) if done.damaged else (), 1)
    return done


def three_states(store: Any) -> None:
    for key in "abc":
        store.states.put(key, f"old {key}")


def values(store: Any) -> list[Any]:
    return [state and state.value for state in map(store.states.find, "abc")]


def first(database: Database) -> str:
    """The state that a walk in the order of the keys meets first."""
    return str(database.raw().execute("SELECT key FROM states ORDER BY id LIMIT 1").fetchone()[0])


@pytest.mark.parametrize("many", [1, 200])
@pytest.mark.parametrize(("codec", "sealed"), [(None, 3), (SEALED, 2)], ids=["plain", "sealed"])
def test_what_is_written_meanwhile_is_not_lost(
    database: Database, codec: Any, sealed: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """codec CO-10: the newer value stays, and is sealed only where its writer did not."""
    three_states(database.open())
    key, rival = first(database), database.open(codec=codec)
    done = sealed_while(database, monkeypatch, lambda: rival.states.put(key, "newer"), many=many)
    assert (done.counts, done.complete) == ({"states": sealed}, True)
    expected = ["newer" if one == key else f"old {one}" for one in "abc"]
    assert values(database.open(codec=SEALED)) == expected


@pytest.mark.parametrize("many", [1, 200])
def test_what_is_removed_meanwhile_does_not_come_back(
    database: Database, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """codec CO-10: and no row behind it is passed over."""
    three_states(database.open())
    key, rival = first(database), database.open()
    done = sealed_while(database, monkeypatch, lambda: rival.states.remove(key), many=many)
    assert (done.counts, done.complete) == ({"states": 2}, True)
    assert values(database.open(codec=SEALED)) == [None if one == key else f"old {one}" for one in "abc"]


def test_what_another_has_sealed_meanwhile_is_counted_by_that_one_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """codec CO-10."""
    three_states(database.open())
    rival, counted = database.open(codec=SEALED), []
    done = sealed_while(database, monkeypatch, lambda: counted.append(rival.maintenance.reencrypt.run().counts))
    assert (counted, done.counts, done.complete) == ([{"states": 3}], {}, True)
    assert values(rival) == ["old a", "old b", "old c"]


def test_what_another_seals_meanwhile_with_an_unknown_key_is_named(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """codec CO-12: it stays as it is."""
    three_states(database.open())
    key, rival = first(database), database.open(codec=Xor(9))
    done = sealed_while(database, monkeypatch, lambda: rival.states.put(key, "newer"))
    assert (done.counts, done.complete, done.unopened) == ({"states": 2}, False, {"key-9": 1})
    assert rival.states.get(key).value == "newer"


def test_a_message_that_gets_another_role_meanwhile_is_bound_to_that_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """codec CO-17: what is sealed for the role that was seen first could not be opened."""
    messages = database.open().conversations.messages
    asked, answered = (NewMessage(id="m", role=role, content="said") for role in ("user", "tool"))
    messages.create(asked)
    done = sealed_while(database, monkeypatch, lambda: messages.put(answered), Bound(1))
    found = database.open(codec=Bound(1)).conversations.messages.get("m")
    assert (done.counts, found.role, found.content) == ({"messages": 1}, "tool", "said")


def test_a_row_that_another_has_locked_is_sealed_as_that_one_leaves_it(shared_postgres: Database) -> None:
    """codec CO-10, Postgres: it waits for the lock, and reads what was committed."""

    def given(store: Any) -> Any:
        three_states(store)
        return shared_postgres.open(codec=SEALED)

    def rival(tx: Any, _: Any) -> None:
        tx.states.put("a", "newer")
        tx.states.remove("b")

    done = after_waiting(shared_postgres, Wait(given, rival, lambda _, sealing: sealing.maintenance.reencrypt.run()))
    assert (done.counts, done.complete) == ({"states": 2}, True)
    assert values(shared_postgres.open(codec=SEALED)) == ["newer", None, "old c"]
