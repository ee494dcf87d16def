"""Followers that end with their run, and that say in silence that they are there."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.steps import TRIGGER, Raw, started

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.journal import NewEvent
from lastlight_state.testing import Database

POLL = 0.01


def types(found: Iterator[Any]) -> list[str]:
    return [event.type for event in found]


def test_a_follower_ends_with_its_run_and_gives_all_that_came_before(every_backend: StateStore) -> None:
    """journal J-20: more than a page of events in the last moment is given whole."""
    run = started(every_backend).id
    events = every_backend.journal.events
    events.append(run, "first")

    def end() -> None:
        with every_backend.transaction() as tx:
            tx.journal.events.append_many(run, [NewEvent("last")] * 450)
            tx.workflows.runs.finish(run, "succeeded")

    ending = threading.Timer(0.1, end)
    ending.start()
    seen = types(events.follow(run, until_end=True, poll_interval=POLL))
    ending.join()
    assert seen == ["first", *["last"] * 450]
    assert types(events.follow(run, until_end=True, after_seq=450)) == []


def test_a_run_that_has_ended_is_told_whole_and_left(store: StateStore) -> None:
    """journal J-20: also one without events; a cancel is an end, a pause is none."""
    run, silent, paused = (started(store).id for _ in range(3))
    store.journal.events.append_many(run, [NewEvent("a")] * 3)
    store.workflows.runs.finish(run, "failed")
    store.workflows.runs.cancel(silent, by="ana", reason="enough")
    store.workflows.waits.pause(paused)
    follow = store.journal.events.follow
    assert types(follow(run, until_end=True)) == ["a", "a", "a"]
    assert types(follow(run, until_end=True, after_seq=1)) == ["a"]
    assert types(follow(silent, until_end=True)) == []
    before = time.monotonic()
    assert types(follow(paused, until_end=True, idle_timeout=0.2)) == []
    assert time.monotonic() - before >= 0.2


def test_a_follower_that_was_not_asked_to_end_goes_on(store: StateStore) -> None:
    """journal J-20: events may come after the end of a run."""
    run = started(store).id
    store.workflows.runs.finish(run, "succeeded")
    late = threading.Timer(0.1, store.journal.events.append, (run, "late"))
    late.start()
    assert types(itertools.islice(store.journal.events.follow(run, poll_interval=POLL), 1)) == ["late"]
    late.join()


def test_many_followed_runs_end_with_the_last_of_them(every_backend: StateStore) -> None:
    """journal J-20."""
    first, second = (started(every_backend).id for _ in range(2))
    every_backend.workflows.runs.finish(first, "succeeded")

    def end() -> None:
        every_backend.journal.events.append(first, "after")
        every_backend.journal.events.append(second, "work")
        every_backend.workflows.runs.finish(second, "succeeded")

    ending = threading.Timer(0.1, end)
    ending.start()
    stream = every_backend.journal.events.follow_many({first: None, second: None}, until_end=True, poll_interval=POLL)
    assert sorted(types(stream)) == ["after", "work"]
    ending.join()


def test_the_end_of_an_unknown_run_is_not_waited_for(store: StateStore) -> None:
    """journal J-20."""
    with pytest.raises(NotFound) as raised:
        next(store.journal.events.follow("nobody", until_end=True))
    assert (raised.value.kind, raised.value.key) == ("workflow_run", "nobody")


def test_a_run_that_is_removed_has_ended(store: StateStore, raw: Raw) -> None:
    """journal J-20."""
    run = started(store).id
    store.journal.events.append(run, "only")
    stream = store.journal.events.follow(run, until_end=True, poll_interval=POLL)
    assert next(stream).type == "only"
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('prune')")
    for table in ("run_events", "run_sequences", "run_transitions"):
        raw(f"DELETE FROM {table} WHERE run_id = '{run}'")
    raw(f"DELETE FROM workflow_runs WHERE id = '{run}'")
    raw("DELETE FROM maintenance_permits")
    assert list(stream) == []


def test_silence_is_told_by_none(store: StateStore) -> None:
    """journal J-21: as often as asked for, not while events come, and it neither ends nor delays anything."""
    run = started(store).id
    stream = store.journal.events.follow(run, heartbeat=0.05, poll_interval=POLL)
    assert list(itertools.islice(stream, 2)) == [None, None]
    store.journal.events.append(run, "news")
    assert next(event for event in stream if event is not None).type == "news"
    assert next(stream) is None
    store.workflows.runs.finish(run, "succeeded")
    beats = list(store.journal.events.follow(run, after_seq=0, heartbeat=0.02, idle_timeout=0.2, poll_interval=POLL))
    assert set(beats) == {None}
    assert len(beats) <= 10
    for wrong in (0, -1):
        with pytest.raises(InvalidValue, match="heartbeat"):
            next(store.journal.events.follow(run, heartbeat=wrong))


def test_ends_of_many_runs_are_asked_for_with_one_statement(database: Database) -> None:
    """journal J-20, F-5: a look is two statements, as many followers as there are."""
    with recorded(database) as (store, sent):
        runs = [started(store).id for _ in range(10)]
        stop, begun = threading.Event(), threading.Barrier(11, timeout=60)

        def follow(run: str) -> None:
            stream = store.journal.events.follow(run, until_end=True, heartbeat=0.01, poll_interval=0.05, stop=stop)
            next(stream)
            begun.wait()
            assert set(stream) <= {None}

        followers = [threading.Thread(target=follow, args=(run,)) for run in runs]
        for follower in followers:
            follower.start()
        begun.wait()
        begin = time.monotonic()
        sent.clear()
        while len(sent) < 6:
            time.sleep(0.01)
        counted, lasted = len(sent), time.monotonic() - begin
        stop.set()
        for follower in followers:
            follower.join()
        assert counted <= 2 * (lasted / 0.05 + 2)


def test_coroutines_follow_until_the_end(async_state_store: AsyncStateStore) -> None:
    """journal J-20, J-21, J-22: a heartbeat, the end of the run, and being told to stop."""
    store = async_state_store

    async def story() -> None:
        run = (await store.workflows.runs.create("deploy", trigger=TRIGGER, phase="plan")).id
        seen: list[str | None] = []
        async for event in store.journal.events.follow(run, until_end=True, heartbeat=0.05, poll_interval=POLL):
            seen.append(None if event is None else event.type)
            if seen == [None]:
                await store.journal.events.append(run, "news")
            elif event is not None:
                await store.workflows.runs.finish(run, "succeeded")
        assert [kind for kind in seen if kind is not None] == ["news"]

        stop = threading.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        before = time.monotonic()
        async for _ in store.journal.events.follow_many({run: 0}, stop=stop):
            pass
        assert time.monotonic() - before < 1

    asyncio.run(story())
