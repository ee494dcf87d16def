"""Receipts of maintenance: one piece of work of a kind and scope at a time, and one owner of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lastlight_state import ClaimLost, Conflict, InvalidValue, NotFound, StateStore
from lastlight_state.testing import Database


def begun(store: Any, **more: Any) -> Any:
    return store.receipts.begin("prune", scope="runs", owner="a", policy={"keep": 1}, **more)


def test_a_receipt_says_what_was_done_and_how_far_it_came(store: StateStore) -> None:
    """maintenance OP-7."""
    receipt = begun(store, actor="ana")
    assert (receipt.state, receipt.epoch, receipt.policy, receipt.counts) == ("running", 1, {"keep": 1}, {})
    receipt = store.receipts.step(receipt, counts={"t": 2}, cursor=["x"])
    ended = store.receipts.finish(receipt)
    assert store.receipts.get(receipt.id) == ended == store.receipts.find(receipt.id)
    assert (ended.state, ended.counts, ended.cursor, ended.actor) == ("done", {"t": 2}, ["x"], "ana")
    assert ended.finished_at == ended.updated_at
    with pytest.raises(ClaimLost):
        store.receipts.step(ended, counts={})


def test_receipts_are_listed_newest_first_by_kind_and_state(store: StateStore) -> None:
    """maintenance OP-7."""
    first = store.receipts.finish(begun(store), "failed", error="why")
    second = begun(store)
    other = store.receipts.begin("copy", owner="a", policy={})
    listed = store.receipts.list
    assert [found.id for found in listed()] == [other.id, second.id, first.id]
    assert [found.id for found in listed(kind="prune")] == [second.id, first.id]
    assert [found.id for found in listed(state="failed")] == [first.id]
    assert store.receipts.get(first.id).error == "why"


def test_what_is_no_receipt_is_not_found_and_nothing_unknown_is_written(every_backend: StateStore) -> None:
    """maintenance OP-7, OP-74."""
    receipts: Any = every_backend.receipts
    assert receipts.find("none") is None
    with pytest.raises(NotFound):
        receipts.get("none")
    with pytest.raises(NotFound):
        receipts.resume("none", owner="b")
    refused: tuple[Callable[[], object], ...] = (
        lambda: receipts.begin("tidy", owner="a", policy={}),
        lambda: receipts.begin("prune", owner="a", policy=[1]),
        lambda: receipts.begin("prune", owner="a", policy=[["keep", 1]]),
        lambda: receipts.begin("prune", owner=" ", policy={}),
        lambda: receipts.resume("none", owner=" "),
        lambda: receipts.list(state="gone"),
        lambda: receipts.step("a", counts={}),
        lambda: receipts.finish(begun(every_backend), "running"),
        lambda: receipts.step(receipts.get(receipts.list().items[0].id), counts=[["t", 1]]),
        lambda: receipts.step(receipts.list().items[0], counts={}),
        lambda: receipts.finish(receipts.list().items[0]),
    )
    for wrong in refused:
        with pytest.raises(InvalidValue):
            wrong()
    gone = receipts.list().items[0]
    with pytest.raises(NotFound):
        receipts.step(receipts.get(gone.id).model_copy(update={"id": "gone"}), counts={})


def test_what_becomes_of_one_receipt_leaves_others_alone(database: Database) -> None:
    """maintenance OP-7: those of another kind or scope, which run at the same time with the same epoch."""
    store = database.open()
    others = [
        store.receipts.begin("copy", scope="runs", owner="b", policy={}),
        store.receipts.begin("prune", scope="fires", owner="c", policy={}),
    ]
    receipt = begun(store)
    store.receipts.step(receipt, counts={"t": 1}, cursor="x")
    store.receipts.finish(receipt, "interrupted", error="why")
    store.receipts.finish(store.receipts.resume(receipt.id, owner="d"))
    assert [store.receipts.get(one.id) for one in others] == others
    begun(store)
    database.clock.advance(seconds=600)
    begun(store)
    assert [store.receipts.get(one.id) for one in others] == others


def test_a_second_piece_of_work_of_the_kind_and_scope_is_a_conflict(store: StateStore) -> None:
    """maintenance OP-7."""
    first = begun(store)
    with pytest.raises(Conflict, match=first.id) as refused:
        begun(store)
    assert (refused.value.code, refused.value.details["owner"]) == ("already_running", "a")
    store.receipts.begin("prune", scope="fires", owner="a", policy={})
    store.receipts.finish(first)
    assert begun(store).id != first.id


def test_work_whose_owner_is_silent_for_ten_minutes_is_taken_over_and_the_owner_writes_nothing_more(
    database: Database,
) -> None:
    """maintenance OP-7, OP-31."""
    store = database.open()
    first = store.receipts.step(begun(store), counts={"t": 1})
    with pytest.raises(Conflict) as refused:
        store.receipts.resume(first.id, owner="b")
    assert refused.value.code == "already_running"
    database.clock.advance(seconds=600)
    second = store.receipts.resume(first.id, owner="b")
    assert (second.owner, second.epoch, second.counts) == ("b", 2, {"t": 1})
    with pytest.raises(ClaimLost) as lost, store.transaction() as tx:
        tx.receipts.step(first, counts={"t": 9})
    assert (lost.value.details["receipt_id"], lost.value.held_by) == (first.id, "b")
    assert store.receipts.get(first.id).counts == {"t": 1}


def test_silent_work_does_not_stand_in_the_way_of_new_work_and_can_go_on_later(database: Database) -> None:
    """maintenance OP-7, OP-31."""
    store = database.open()
    first = begun(store)
    database.clock.advance(seconds=600)
    second = begun(store)
    interrupted = store.receipts.get(first.id)
    assert (interrupted.state, interrupted.epoch) == ("interrupted", first.epoch + 1)
    with pytest.raises(Conflict, match=second.id):
        store.receipts.resume(first.id, owner="b")
    store.receipts.finish(second)
    assert store.receipts.resume(first.id, owner="b").state == "running"
    with pytest.raises(Conflict) as refused:
        store.receipts.resume(second.id, owner="b")
    assert refused.value.code == "receipt_finished"
