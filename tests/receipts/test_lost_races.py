"""Somebody comes in between the statements of a receipt's owner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lastlight_state import ClaimLost, Conflict
from lastlight_state.testing import Database, racing


def begun(store: Any) -> Any:
    return store.receipts.begin("prune", scope="runs", owner="a", policy={})


def test_work_that_begins_between_the_look_and_the_insert_is_seen(postgres_database: Database) -> None:
    """maintenance OP-7: `Receipts.begin`. On SQLite the look already holds the file's write lock."""
    store, rival = postgres_database.open(), postgres_database.open()
    with racing(store) as race:
        race.before("INSERT", lambda: begun(rival))
        with pytest.raises(Conflict) as refused:
            begun(store)
    assert (race.left, refused.value.code) == (0, "already_running")


def test_of_two_that_resume_at_once_one_goes_on(database: Database) -> None:
    """maintenance OP-7: `Receipts.resume` locks the receipt that it judges."""
    store, rival = database.open(), database.open()
    receipt = store.receipts.finish(begun(store), "interrupted")
    with racing(store) as race:
        race.before_unit(1, lambda: rival.receipts.resume(receipt.id, owner="b"))
        with pytest.raises(Conflict) as refused:
            store.receipts.resume(receipt.id, owner="c")
    assert (race.left, refused.value.code) == (0, "already_running")
    assert store.receipts.get(receipt.id).owner == "b"


OWNERS: dict[str, Callable[[Any, Any], object]] = {
    "Receipts.step": lambda store, receipt: store.receipts.step(receipt, counts={"t": 1}),
    "Receipts.finish": lambda store, receipt: store.receipts.finish(receipt),
}


@pytest.mark.parametrize("call", OWNERS)
def test_an_owner_whose_work_was_taken_over_meanwhile_stores_nothing(database: Database, call: str) -> None:
    """maintenance OP-7."""
    store, rival = database.open(), database.open()
    receipt = begun(store)
    database.clock.advance(seconds=600)
    with racing(store) as race:
        race.before_unit(1, lambda: rival.receipts.resume(receipt.id, owner="b"))
        with pytest.raises(ClaimLost):
            OWNERS[call](store, receipt)
    assert race.left == 0
    assert (store.receipts.get(receipt.id).state, store.receipts.get(receipt.id).counts) == ("running", {})
