"""Threads of LangGraph that are deleted, or not there yet, while their tasks still write."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

from lastlight_state.integrations import langgraph_writes
from lastlight_state.integrations.langgraph import LangGraphSaver
from lastlight_state.testing import Database


def pending(saver: Any, config: Any) -> Any:
    """Return the pending writes of a checkpoint that is there."""
    found = saver.get_tuple(config)
    assert found is not None
    return found.pending_writes


PLACE: dict[str, Any] = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "user_id": "ana"}}


def put(saver: LangGraphSaver) -> Any:
    return saver.put(PLACE, empty_checkpoint(), {}, {})


def test_late_writes_of_a_deleted_thread_are_never_stored(database: Database) -> None:
    """checkpoints CK-54: nothing is raised, and no thread without an owner comes back."""
    store = database.open()
    saver = LangGraphSaver(store)
    config = put(saver)
    saver.delete_thread("t")
    saver.put_writes(config, [("a", 1)], "task")
    assert store.checkpoints.threads().items == ()
    put(saver)
    assert [one.user for one in store.checkpoints.threads(scope="langgraph")] == ["ana"]
    assert pending(saver, PLACE) == []


def test_writes_that_come_before_their_checkpoint_are_stored_with_it(database: Database) -> None:
    """checkpoints CK-54: LangGraph stores both at once, from two threads."""
    store = database.open()
    saver = LangGraphSaver(store)
    checkpoint = empty_checkpoint()
    config = {"configurable": {**PLACE["configurable"], "checkpoint_id": checkpoint["id"]}}
    saver.put_writes(config, [("a", 1), ("b", 2)], "one")
    saver.put_writes(config, [("__interrupt__", 3)], "two")
    assert store.checkpoints.threads().items == ()
    saver.put(PLACE, checkpoint, {}, {})
    assert pending(saver, PLACE) == [("one", "a", 1), ("one", "b", 2), ("two", "__interrupt__", 3)]
    assert store.checkpoints.thread("t", scope="langgraph").user == "ana"


def test_a_checkpoint_that_comes_while_its_writes_are_kept_gets_them(database: Database, monkeypatch: Any) -> None:
    """checkpoints CK-54: between the look and the keeping."""
    saver = LangGraphSaver(database.open())
    checkpoint = empty_checkpoint()
    config = {"configurable": {**PLACE["configurable"], "checkpoint_id": checkpoint["id"]}}
    add = langgraph_writes.EarlyWrites.add

    def late(kept: Any, place: Any, made: Any) -> None:
        saver.put(PLACE, checkpoint, {}, {})
        add(kept, place, made)

    monkeypatch.setattr(langgraph_writes.EarlyWrites, "add", late)
    saver.put_writes(config, [("a", 1)], "one")
    assert pending(saver, PLACE) == [("one", "a", 1)]
    assert not saver._early._kept


def test_kept_writes_have_a_bound(database: Database, monkeypatch: Any) -> None:
    """checkpoints CK-54: the oldest are forgotten."""
    monkeypatch.setattr(langgraph_writes, "_MOST_EARLY", 3)
    saver = LangGraphSaver(database.open())
    for n in range(10):
        config = {"configurable": {**PLACE["configurable"], "checkpoint_id": f"{n}"}}
        saver.put_writes(config, [("a", n)], "one")
    assert [one for _, _, one in saver._early._kept] == ["7", "8", "9"]
