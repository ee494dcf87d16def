"""Many callers who write at once: each has its own outcome, and nobody waits out of turn. On both databases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest
from support.crowd import Crowd, failing, put
from support.scratch import scratch_tables

from lastlight_state import AsyncStateStore, InvalidValue, StateStore
from lastlight_state.aio import outcomes
from lastlight_state.backends.sqlite import group_commit
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.testing import Database


@pytest.fixture
def everywhere(fresh_database: Database) -> Iterator[StateStore]:
    """Give a store on each database, with tables of its own."""
    with fresh_database.open() as store, scratch_tables(store):
        yield store


@pytest.fixture
def normal(sqlite_database: Database) -> Iterator[StateStore]:
    """Give a store on a file whose commits do not wait for the disk."""
    with sqlite_database.open(durability="normal") as store, scratch_tables(store):
        yield store


def stored(database: Database) -> list[str]:
    """Return the ids that another connection sees."""
    return sorted(name for (name,) in database.raw().execute("SELECT id FROM scratch_things").fetchall())


@pytest.mark.parametrize("together", [64, 1])
def test_of_64_threads_none_has_a_second_turn_before_each_had_its_first(
    normal: StateStore, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """backends GC-2: in groups and one by one, no call waits longer than two turns of each other thread."""
    crowd = Crowd(normal, monkeypatch)
    monkeypatch.setattr(group_commit, "MOST_UNITS", together)
    numbers = range(64)

    def twice(number: int) -> str:
        normal._scope.write(put(f"first-{number:02}"))
        return normal._scope.write(put(f"second-{number:02}"))

    crowd.calls([partial(twice, number) for number in numbers])
    rows = sqlite_database.raw().execute("SELECT id FROM scratch_things ORDER BY rowid").fetchall()
    order = [name for (name,) in rows]
    assert order[:64] == [f"first-{number:02}" for number in numbers]
    assert sorted(order[64:]) == [f"second-{number:02}" for number in numbers]


def test_16_tasks_send_what_16_writes_by_hand_would(normal: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends GC-2: one statement for each write, on one thread, and the loop is not woken more often than that."""
    crowd = Crowd(normal, monkeypatch)
    crowd.calls([])
    store = AsyncStateStore(normal)
    threads: set[int] = set()
    wakes: list[None] = []
    wake = outcomes.Completions.wake

    def woken(completions: outcomes.Completions) -> None:
        wakes.append(None)
        wake(completions)

    def write(name: str) -> str:
        threads.add(threading.get_ident())
        return normal._scope.one_statement(put(name))

    async def sixteen() -> list[str]:
        return list(await asyncio.gather(*(store._lanes.writers.run(partial(write, f"{n:02}")) for n in range(16))))

    monkeypatch.setattr(outcomes.Completions, "wake", woken)
    assert asyncio.run(sixteen()) == [f"{n:02}" for n in range(16)]
    assert [text.split()[0] for text in crowd.sent] == ["INSERT"] * 16
    assert len(threads) == 1
    assert 1 <= len(wakes) <= 16


def test_of_1000_units_of_which_a_third_fail_exactly_the_others_are_stored(
    everywhere: StateStore, fresh_database: Database
) -> None:
    """backends GC-3: each caller has its own outcome, and a failure is nobody else's."""
    outcomes: dict[int, object] = {}

    def calls(numbers: range) -> None:
        for number in numbers:
            name = f"{number:04}"
            work = failing(name, number // 3 % 3) if number % 3 == 0 else put(name)
            try:
                outcomes[number] = everywhere._scope.write(work)
            except Exception as error:  # noqa: BLE001 - judged below
                outcomes[number] = type(error)

    threads = [threading.Thread(target=calls, args=(range(first, 1000, 20),)) for first in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [Conflict, InvalidValue, ZeroDivisionError]
    expected = {number: f"{number:04}" if number % 3 else kinds[number // 3 % 3] for number in range(1000)}
    assert outcomes == expected
    assert stored(fresh_database) == [f"{number:04}" for number in range(1000) if number % 3]


def test_tasks_that_are_cancelled_leave_the_others_unharmed(everywhere: StateStore, fresh_database: Database) -> None:
    """backends GC-5: each other task has its result, and of a cancelled one all is stored or nothing."""
    runs = AsyncStateStore(everywhere)._lanes.writers

    async def crowd() -> list[object]:
        tasks = [asyncio.ensure_future(once(f"{number:02}")) for number in range(60)]
        await asyncio.wait(tasks[:1])
        for task in tasks[::3]:
            task.cancel()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    async def once(name: str) -> str:
        return await runs.run(partial(everywhere._scope.write, put(name)))

    outcomes = asyncio.run(crowd())
    others = [f"{number:02}" for number in range(60) if number % 3]
    assert [outcome for number, outcome in enumerate(outcomes) if number % 3] == others
    assert {*others} <= {*stored(fresh_database)}
    assert all(isinstance(outcome, str | asyncio.CancelledError) for outcome in outcomes)


def test_a_reader_sees_a_unit_only_after_its_commit(everywhere: StateStore, fresh_database: Database) -> None:
    """backends GC-6: not while it is made, and from the return of the call on."""
    seen = []

    def looking(unit: Unit) -> None:
        put("a")(unit)
        seen.append(stored(fresh_database))

    everywhere._scope.write(looking)
    seen.append(stored(fresh_database))
    assert seen == [[], ["a"]]
