"""Writers of the same states at once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from support.answers import dropped_answers
from support.processes import started
from support.states import counters

from lastlight_state import NotFound, StaleVersion, StateStore
from lastlight_state.states import REMOVED, face
from lastlight_state.testing import Database, racing


@pytest.mark.parametrize(("processes", "times"), [(3, 10), pytest.param(8, 200, marks=pytest.mark.soak)])
def test_processes_that_count_by_compare_and_set_lose_nothing(
    fresh_database: Database, processes: int, times: int
) -> None:
    """states ST-3."""
    store = fresh_database.open(migrate=True)
    command = [sys.executable, "-W", "error", str(Path(counters.__file__)), fresh_database.url, str(times)]
    with ExitStack() as running:
        for one in [running.enter_context(started(command)) for _ in range(processes)]:
            assert one.wait(120) == 0
    assert store.states.get("count", scope="s").value == processes * times


def test_merges_of_the_same_keys_in_any_order_wait_in_no_circle(database: Database) -> None:
    """states ST-6."""
    stores = [database.open() for _ in range(3)]
    names = [f"k{n}" for n in range(20)]

    def many(store: StateStore, who: int) -> None:
        for _ in range(10):
            store.states.merge(dict.fromkeys(names if who % 2 else reversed(names), who), scope="s")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(many, stores, range(3)))
    found = stores[0].states.items(scope="s").items
    assert (len({one.version for one in found}), len({one.value for one in found})) == (1, 1)


@pytest.mark.parametrize("expected", ["same", None])
def test_somebody_else_before_the_write_is_seen(database: Database, expected: str | None) -> None:
    """states ST-3."""
    store, rival = database.open(), database.open()
    version = store.states.put("k", 1).version if expected else None
    with racing(store) as race:
        race.before_unit(1, lambda: rival.states.put("k", 2))
        with pytest.raises(StaleVersion):
            store.states.put("k", 3, expected=version)
    assert (race.left, store.states.get("k").value) == (0, 2)


def test_a_write_that_finds_its_own_version_has_been_done(database: Database) -> None:
    """states ST-3: as the same call does whose commit was lost on its way back."""
    store = database.open()
    states = store.states
    common = states._common("", None, None)

    def twice(value: object, expected: object) -> str:
        change = face._change(common, "k", value, expected)
        return [store._scope.write(lambda unit: face._put(unit, common, change)) for _ in range(2)][1].version

    assert twice(1, None) == common["version"]
    assert states.merge({"k": REMOVED}) == {}
    with pytest.raises(StaleVersion):
        states.put("k", 2, expected=common["version"])


def test_an_expiry_in_the_past_that_got_no_answer_is_done(postgres_database: Database) -> None:
    """states ST-33: the call is repeated by itself, and finds the state as it left it."""
    clock = postgres_database.clock
    past = clock.now() - timedelta(seconds=1)
    postgres_database.open().states.put("k", 1)
    with dropped_answers(postgres_database.url) as (url, drop), StateStore.open(url, clock=clock) as store:
        drop("UPDATE")
        assert store.states.expire("k", past).expires_at == past
        assert store.states.find("k") is None


def test_a_repeated_expiry_in_the_past_is_done_and_another_is_not(database: Database) -> None:
    """states ST-33: a state that has expired at another time is not there."""
    states = database.open().states
    past = database.clock.now() - timedelta(seconds=1)
    states.put("k", 1)
    assert states.expire("k", past) == states.expire("k", past)
    for other in (past - timedelta(seconds=1), None):
        with pytest.raises(NotFound):
            states.expire("k", other)
