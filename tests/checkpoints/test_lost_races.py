"""Somebody comes in between the statements of a call, or before its unit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.checkpoints.steps import ids, step, texts, write
from support.rivals import Look, check, parameters

from lastlight_state import NotFound, StaleVersion, StateStore
from lastlight_state.testing import Database, racing


def grown(store: Any) -> None:
    """A thread of three checkpoints."""
    for number in range(1, 4):
        store.checkpoints.put("t", step(number, {"a": "x" * 99 * number}, run_ref=f"run-{number}"))


#: More writes than go in one statement on Postgres.
many = [write(number, "w") for number in range(5)]
LOOKS: dict[str, Look] = {
    f"{name}, {rival}": Look(grown, call, act, since=2)
    for name, call in {
        "Checkpoints.put": lambda store, _: store.checkpoints.put("t", step(9, {"a": "nine"})),
        "Checkpoints.put_writes": lambda store, _: store.checkpoints.put_writes("t", "step-3", "x", many),
        "Checkpoints.copy": lambda store, _: store.checkpoints.copy("t", "u"),
        "Checkpoints.delete": lambda store, _: store.checkpoints.delete("t"),
        "Checkpoints.keep_latest": lambda store, _: store.checkpoints.keep_latest("t"),
    }.items()
    for rival, act in {
        "put": lambda store, _: store.checkpoints.put("t", step(8, {"a": "eight"})),
        "delete": lambda store, _: store.checkpoints.delete("t"),
    }.items()
}


@parameters(LOOKS)
def test_nobody_else_writes_to_a_thread_between_a_look_and_the_write(database: Database, look: Look) -> None:
    """checkpoints CK-6."""
    check(database, look)


def test_a_run_is_deleted_under_the_lock_of_its_threads(database: Database) -> None:
    """checkpoints CK-6, CK-13: `Checkpoints.delete_runs`."""
    check(
        database,
        Look(
            grown,
            lambda store, _: store.checkpoints.delete_runs(["run-1"]),
            lambda store, _: store.checkpoints.put("t", step(8, {"a": "eight"})),
            since=3,
        ),
    )


def test_a_thread_that_is_deleted_before_a_put_is_made_anew(database: Database) -> None:
    """checkpoints CK-1, CK-7: by `Checkpoints.put`, and not by `Checkpoints.put_writes`."""
    store, rival = database.open(), database.open()
    grown(store)
    with racing(store) as race:
        race.before_unit(1, lambda: rival.checkpoints.delete("t"))
        store.checkpoints.put("t", step(4, {"a": "four"}))
    assert (race.left, ids(store.checkpoints.list("t"))) == (0, ["step-4"])
    with racing(store) as race:
        race.before_unit(1, lambda: rival.checkpoints.delete("t"))
        with pytest.raises(NotFound):
            store.checkpoints.put_writes("t", "step-4", "x", [write(0, "w")])
    assert (race.left, store.checkpoints.threads().items) == (0, ())


@pytest.mark.parametrize("call", ["copy", "keep_latest"])
def test_a_thread_that_is_deleted_before_a_call_is_not_found(database: Database, call: str) -> None:
    """checkpoints CK-11, CK-14."""
    store, rival = database.open(), database.open()
    grown(store)
    acts: dict[str, Callable[[StateStore], object]] = {
        "copy": lambda one: one.checkpoints.copy("t", "u"),
        "keep_latest": lambda one: one.checkpoints.keep_latest("t"),
    }
    with racing(store) as race:
        race.before_unit(1, lambda: rival.checkpoints.delete("t"))
        with pytest.raises(NotFound):
            acts[call](store)
    assert race.left == 0


def test_of_runners_that_go_on_at_once_one_wins_each_step(database: Database) -> None:
    """checkpoints CK-5, CK-6: threads of one process; every step follows the one before."""
    stores = [database.open() for _ in range(3)]

    def go_on(store: StateStore, who: int) -> int:
        won = 0
        while True:
            latest = store.checkpoints.find("t")
            number = 0 if latest is None else int(texts(latest)["n"])
            if number == 30:
                return won
            given = step(number + 1, {"n": str(number + 1), "log": "x" * (number + 1)}, run_ref=f"{who}")
            try:
                store.checkpoints.put("t", given, after=None if latest is None else latest.id)
                won += 1
            except StaleVersion:
                continue

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(go_on, stores, range(3))) == 30
    found = stores[0].checkpoints.history("t", limit=50)
    assert [texts(one)["log"] for one in found] == ["x" * number for number in range(30, 0, -1)]


def test_writers_without_a_fence_lose_nothing(database: Database) -> None:
    """checkpoints CK-6: in whichever order they come."""
    stores = [database.open() for _ in range(3)]

    def many(store: StateStore, who: int) -> None:
        for number in range(who * 10, who * 10 + 10):
            store.checkpoints.put("t", step(number, {"a": f"{'common ' * 50}{number}"}))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(many, stores, range(3)))
    found = {one.id: texts(one)["a"] for one in stores[0].checkpoints.history("t", limit=50)}
    assert found == {f"step-{number}": f"{'common ' * 50}{number}" for number in range(30)}
