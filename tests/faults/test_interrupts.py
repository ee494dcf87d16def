"""backends B-87: after an exception from outside, at whatever instruction, a store works at once."""

import asyncio
import inspect
import random
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import Any

import pytest
import sqlalchemy as sa
from support.callers import engine_on
from support.faults.interrupts import (
    AT_ONCE,
    AWAITED,
    NEVER,
    SHORT,
    THREADED,
    WORKS,
    Interrupted,
    Watched,
    Work,
    alarm,
    pair,
    raised_at,
)
from support.tracing import traced

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.aio.outcomes import Completions
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

#: At what, and how many of them are passed over between two attacks.
EVERY = [
    pytest.param("line", 7, id="some lines"),
    pytest.param("line", 1, id="lines", marks=pytest.mark.soak),
    pytest.param("opcode", 1, id="opcodes", marks=pytest.mark.soak),
]
SIGNALS = [pytest.param(60), pytest.param(5000, marks=pytest.mark.soak)]
#: What asyncio says about a loop that an exception cut off, and Python about one in a finalizer.
UNRAISABLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
#: Makes two runs of one name, or none.
PAIRS = ("transaction", "run")


def attacked(database: Database, name: str, work: Work, *, step: int, **how: Any) -> int:
    """Do the work again and again, with an exception ``step`` instructions later each time, until it comes to its end.

    After each the store must work, and nothing be half done. Returns how far it got; ``how`` as for `raised_at`.
    """
    watched = Watched(database)
    for label in ("first", "second"):
        raised_at(NEVER, partial(work, watched.store, label), every=how.get("every", "line"))
    for number in count(1, step):
        label = f"{name} {number}"
        error = raised_at(number, partial(work, watched.store, label), **how)
        watched.works()
        if error is None:
            return number
        watched.nothing_half_done(*([label] if name in PAIRS else []))
        del error
    raise AssertionError


@pytest.mark.slow
@UNRAISABLE
@pytest.mark.parametrize(("every", "step"), EVERY)
@pytest.mark.parametrize("name", WORKS)
def test_a_store_works_after_an_exception_at_any_line(
    fresh_database: Database, name: str, every: str, step: int
) -> None:
    """backends B-87: also while the exception is still looked at; nothing is half done."""
    assert attacked(fresh_database, name, WORKS[name], step=step, every=every) > 50


@pytest.mark.parametrize("more", [pytest.param(7), *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 30, 3))])
@pytest.mark.parametrize("name", ["alone", "transaction"])
def test_a_store_works_after_a_second_exception_soon_after_the_first(
    fresh_database: Database, name: str, more: int
) -> None:
    """backends B-87: which cuts off what the first one made necessary."""
    assert attacked(fresh_database, name, WORKS[name], step=5, more=more) > 50


@pytest.mark.slow
@UNRAISABLE
@pytest.mark.parametrize(("every", "step"), EVERY)
def test_a_callers_transaction_stays_the_callers_after_an_exception_at_any_line_of_what_joined_it(
    fresh_database: Database, every: str, step: int
) -> None:
    """backends B-87, B-43: the caller goes on and commits; of what joined, all is kept or nothing."""
    watched, engine = Watched(fresh_database), engine_on(fresh_database)
    raw = fresh_database.raw()
    raw.execute("CREATE TABLE theirs (number INTEGER)")
    with engine.begin() as connection:
        raised_at(NEVER, partial(joined, watched.store, connection, "first"), every=every)
    for number in count(1, step):
        label = f"joined {number}"
        with engine.begin() as connection:
            connection.execute(sa.text("INSERT INTO theirs VALUES (:number)"), {"number": number})
            work = partial(joined, watched.store, connection, label)
            error = raised_at(number, work, every=every)
            connection.execute(sa.text("INSERT INTO theirs VALUES (:number)"), {"number": number})
        [(theirs,)] = raw.execute(f"SELECT count(*) FROM theirs WHERE number = {number}").fetchall()
        assert theirs == 2
        watched.works()
        watched.nothing_half_done(label)
        if error is None:
            break
        del error
    assert number > 50
    engine.dispose()


@pytest.mark.slow
@UNRAISABLE
@pytest.mark.parametrize(("every", "step"), EVERY)
@pytest.mark.parametrize("name", THREADED)
def test_a_blocks_thread_ends_with_it_after_an_exception_at_any_line(
    fresh_database: Database, name: str, every: str, step: int
) -> None:
    """backends B-87: no lease is renewed for ever, and nothing is looked for that nobody waits for."""
    watched, (work, thread_name) = Watched(fresh_database), THREADED[name]
    raised_at(NEVER, partial(work, watched.store, "first"), every=every)
    for number in count(1, step):
        label = f"{name} {number}"
        error = raised_at(number, partial(work, watched.store, label), every=every)
        threads = [thread for thread in threading.enumerate() if thread.name.startswith(thread_name)]
        for thread in threads:
            thread.join(AT_ONCE)
        assert not [thread for thread in threads if thread.is_alive()], error
        watched.works()
        if error is None:
            break
        del error
    assert number > 50


def joined(store: StateStore, connection: sa.Connection, name: str) -> None:
    with store.transaction(connection=connection) as tx:
        pair(tx, name)


@UNRAISABLE
@pytest.mark.parametrize(("every", "step"), EVERY)
@pytest.mark.parametrize("name", AWAITED)
def test_a_store_works_after_an_exception_at_any_line_of_an_event_loops_thread(
    fresh_database: Database, name: str, every: str, step: int
) -> None:
    """backends B-87: coroutines."""
    assert attacked(fresh_database, name, AWAITED[name], step=step, every=every) > 20


@pytest.mark.timeout(60)
def test_an_outcome_comes_although_the_loops_callback_for_it_was_cut_off(fresh_database: Database) -> None:
    """backends B-87: an event loop drops a callback that raised; the outcome is handed out all the same."""
    store = fresh_database.open(settings=SHORT)
    code = Completions._deliver.__code__
    cut: list[int] = []

    def seen(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not code:
            return None
        if event == "line" and not cut:
            cut.append(frame.f_lineno)
            raise Interrupted
        return seen

    async def work() -> Any:
        with traced(seen):
            return await AsyncStateStore(store).workflows.runs.create("awaited", trigger=Trigger("t"), phase="p")

    made = asyncio.run(work())
    assert cut == [code.co_firstlineno + 1]
    assert store.workflows.runs.get(made.id).workflow_name == "awaited"


@UNRAISABLE
@pytest.mark.soak  # a signal that falls into the test's own machinery, or a tracer's, fails it now and then
@pytest.mark.parametrize("signals", SIGNALS)
def test_a_store_works_after_a_signal_that_raises_at_any_moment(fresh_database: Database, signals: int) -> None:
    """backends B-87: of 5,000 signals none leaves a store that does not work, and nothing is half done."""
    chance = random.Random(11)
    watched = Watched(fresh_database)
    works = [*WORKS.items(), *AWAITED.items()]
    lasts = {id(work): _duration(watched, name, work) for name, work in works}
    pairs, raised, turn = [], 0, 0
    with alarm() as bell:
        while raised < signals:
            turn += 1
            name, work = works[turn % len(works)]
            label = f"{name} signal {turn}"
            after = chance.uniform(0, lasts[id(work)] * 1.1)
            error = bell.during(after, lambda work=work, label=label: work(watched.store, label))  # type: ignore[misc]
            raised += error is not None
            watched.works()
            if name in PAIRS:
                pairs.append(label)
            del error
    watched.nothing_half_done(*pairs)
    watched.works()


@pytest.mark.slow
def test_a_store_works_after_the_stack_was_too_deep_at_any_depth(
    fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-87: `RecursionError`, also where a finalizer meets it and pytest has no room to note that."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    watched = Watched(fresh_database)
    for name in ("alone", "transaction", "reading"):
        work = WORKS[name]
        work(watched.store, "first")
        for room in range(1, 60):
            label = f"{name} deep {room}"
            try:
                _deep(room, lambda label=label, work=work: work(watched.store, label))  # type: ignore[misc]
            except RecursionError:
                watched.works()
            watched.nothing_half_done(*([label] if name in PAIRS else []))


def _deep(room: int, work: Callable[[], object]) -> None:
    """Do the work where the stack has that much room."""
    depth = len(inspect.stack(0))
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 10 + room)
    try:
        work()
    finally:
        sys.setrecursionlimit(before)


def _duration(watched: Watched, name: str, work: Work) -> float:
    times = []
    for number in range(5):
        begin = time.perf_counter()
        work(watched.store, f"{name} timed {number}")
        times.append(time.perf_counter() - begin)
    return sorted(times)[2]
