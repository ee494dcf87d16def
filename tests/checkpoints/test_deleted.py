"""Threads that are deleted while somebody still writes."""

from __future__ import annotations

from typing import Any

import pytest
from support.checkpoints.steps import step, write
from support.each import with_each

from lastlight_state import NotFound, StateStore
from lastlight_state.testing import Database, racing


def test_the_last_writes_of_a_task_bring_no_deleted_thread_back(store: Any) -> None:
    """checkpoints CK-7: a task was cancelled, and stores what it had."""
    c = store.checkpoints
    c.put("t", step(1, {"a": "x"}), user="ana")
    c.delete("t")
    with pytest.raises(NotFound):
        c.put_writes("t", "step-1", "x", [write(0, "late")])
    assert c.threads().items == ()


def test_writes_of_a_checkpoint_that_went_are_refused_and_the_thread_keeps_its_owner(store: Any) -> None:
    """checkpoints CK-7: of a thread that was made anew, and of a superseded checkpoint."""
    c = store.checkpoints
    for n in (1, 2):
        c.put("t", step(n, {"a": f"{n}"}), user="ana")
    c.keep_latest("t")
    for gone in ("step-1", "step-9"):
        with pytest.raises(NotFound):
            c.put_writes("t", gone, "x", [write(0, "late")])
    c.put_writes("t", "step-2", "x", [write(0, "w")])
    assert [one.user for one in c.threads()] == ["ana"]


def test_writes_that_an_erasure_overtakes_are_refused(database: Database) -> None:
    """checkpoints CK-7: nothing of the person is left, and no thread without an owner."""
    store, rival = database.open(), database.open()
    store.checkpoints.put("t", step(1, {"a": "x"}), user="ana")
    with racing(store) as race:
        race.before_unit(1, lambda: rival.maintenance.erase.run("ana"))
        with pytest.raises(NotFound):
            store.checkpoints.put_writes("t", "step-1", "x", [write(0, "late")])
    assert race.left == 0
    assert store.checkpoints.threads().items == ()


#: Calls that add to something by its id, after it is gone. None of them makes it again.
ADDING: dict[str, Any] = {
    "writes": lambda store: store.checkpoints.put_writes("gone", "c", "x", [write(0, "w")]),
    "latest of a thread": lambda store: store.checkpoints.keep_latest("gone"),
    "messages of a branch": lambda store: store.conversations.branches.append("gone", ["m"]),
    "messages of an order": lambda store: store.conversations.progressions.append("gone", ["m"]),
    "expiry of a state": lambda store: store.states.expire("gone", None),
}


@with_each("verb", ADDING)
def test_adding_to_what_is_gone_makes_nothing(every_backend: StateStore, verb: str) -> None:
    """checkpoints CK-7, and the same of other domains."""
    with pytest.raises(NotFound):
        ADDING[verb](every_backend)
    assert every_backend.checkpoints.threads().items == ()
    assert every_backend.conversations.sessions.list().items == ()
    assert every_backend.states.list().items == ()
