from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue, MisuseError, NotFound, StoreClosed
from lastlight_state.journal import EventFilter, NewEvent
from lastlight_state.testing import Database

WRITERS = 8
#: Seconds between two looks.
POLL = 0.02
#: Ends the connections of this database, but for the one that asks.
KILL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
SCALE = [pytest.param(15, id="15"), pytest.param(500, id="500", marks=pytest.mark.soak)]


def followed(store: Any, run_id: str, **given: Any) -> list[int]:
    options = {"idle_timeout": 0.05, "poll_interval": 0.01, **given}
    return [event.seq for event in store.journal.events.follow(run_id, **options)]


@pytest.mark.parametrize("events", SCALE)
def test_a_follower_sees_each_event_once_and_in_order_whoever_commits_last(
    every_backend: StateStore, run_id: str, events: int
) -> None:
    """journal F-1: eight writers whose transactions overlap, some of them rolled back."""

    def write(number: int) -> None:
        for i in range(events):
            if i % 3 == 0:
                every_backend.journal.events.append(run_id, "a", {"by": number})
                continue
            with every_backend.transaction() as tx:
                tx.journal.events.append(run_id, "b", {"by": number})
                tx.workflows.runs.merge_scratch(run_id, {f"w{number}": i})
                tx.journal.events.append(run_id, "c", {"by": number})

    writers = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    total = WRITERS * sum(1 if i % 3 == 0 else 2 for i in range(events))
    for writer in writers:
        writer.start()
    stream = every_backend.journal.events.follow(run_id, poll_interval=0.005, idle_timeout=30)
    seen = [event.seq for event in itertools.islice(stream, total)]
    for writer in writers:
        writer.join()
    assert seen == list(range(total))
    assert followed(every_backend, run_id, after_seq=total - 1) == []


def test_following_begins_after_a_number_and_ends_at_a_stop_type(store: StateStore) -> None:
    """journal E-8, F-1, F-2: the event of that type is the last one; silence ends it as well."""
    run = started(store).id
    store.journal.events.append_many(run, [NewEvent("a" if i != 7 else "done") for i in range(10)])
    assert followed(store, run) == list(range(10))
    assert followed(store, run, after_seq=4) == [5, 6, 7, 8, 9]
    assert followed(store, run, stop_types=("done",), idle_timeout=None) == list(range(8))
    only = EventFilter(types=("none",))
    assert followed(store, run, where=only) == []
    assert followed(store, run, where=only, stop_types=("done",), idle_timeout=None) == [7]
    assert followed(store, "nobody") == []


def test_more_events_than_a_page_are_followed(every_backend: StateStore, run_id: str) -> None:
    """journal F-6, P-4: a page is all that a follower holds."""
    every_backend.journal.events.append_many(run_id, [NewEvent("a")] * 450)
    assert followed(every_backend, run_id) == list(range(450))


def test_many_runs_are_followed_each_in_its_order(every_backend: StateStore) -> None:
    """journal E-8, F-1, F-9."""
    runs = [started(every_backend).id for _ in range(3)]
    for run in runs:
        every_backend.journal.events.append_many(run, [NewEvent("a")] * 4)
    options = {"idle_timeout": 0.05, "poll_interval": 0.01}
    stream = every_backend.journal.events.follow_many(dict(zip(runs, (None, 1, 3), strict=True)), **options)  # type: ignore[call-overload]
    seen = [(event.run_id, event.seq) for event in stream]
    assert [[seq for found, seq in seen if found == run] for run in runs] == [[0, 1, 2, 3], [2, 3], []]


def test_what_was_pruned_is_named_and_not_skipped(every_backend: StateStore, run_id: str, raw: Raw) -> None:
    """journal F-7."""
    every_backend.journal.events.append_many(run_id, [NewEvent("a")] * 6)
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('prune')")
    raw("DELETE FROM run_events WHERE seq < 4")
    raw("DELETE FROM maintenance_permits")
    with pytest.raises(NotFound) as raised:
        followed(every_backend, run_id, after_seq=1)
    assert (raised.value.kind, raised.value.key) == ("run_event", (run_id, 4))
    assert followed(every_backend, run_id, after_seq=3) == followed(every_backend, run_id) == [4, 5]


@pytest.mark.parametrize(("after", "first"), [(0, 1), (1, 2), (2, 3)])
def test_the_last_events_that_were_pruned_are_named(
    every_backend: StateStore, run_id: str, raw: Raw, after: int, first: int
) -> None:
    """journal F-7: also a single one; who has seen them all goes on."""
    every_backend.journal.events.append_many(run_id, [NewEvent("a")] * 3)
    assert followed(every_backend, run_id, after_seq=after) == list(range(first, 3))
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('prune')")
    raw("DELETE FROM run_events WHERE seq > 0")
    raw("DELETE FROM maintenance_permits")
    if first == 3:
        assert followed(every_backend, run_id, after_seq=after) == []
        return
    for where in (None, EventFilter(types=("none",))):
        with pytest.raises(NotFound) as raised:
            followed(every_backend, run_id, after_seq=after, where=where)
        assert raised.value.key == (run_id, 3)


def test_what_a_follower_passed_over_may_be_pruned_before_its_next_look(every_backend: StateStore, raw: Raw) -> None:
    """journal F-7: it has seen that nothing there was asked for."""
    events, (quiet, loud) = every_backend.journal.events, (started(every_backend).id for _ in range(2))
    events.append_many(quiet, [NewEvent("a"), NewEvent("other")])
    events.append(loud, "a")
    stream = events.follow_many(
        {quiet: 0, loud: None}, where=EventFilter(types=("a",)), poll_interval=0.01, idle_timeout=30
    )
    assert next(stream).run_id == loud
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('prune')")
    raw("DELETE FROM run_events WHERE run_id = ? AND seq = 1", quiet)
    raw("DELETE FROM maintenance_permits")
    events.append(quiet, "a")
    found = next(stream)
    assert (found.run_id, found.seq) == (quiet, 2)


def test_a_follower_misses_nothing_when_the_server_ends_its_connections(postgres_database: Database) -> None:
    """journal F-3: the next look takes another connection."""
    store = postgres_database.open()
    run = started(store).id
    store.journal.events.append(run, "a")
    stream = store.journal.events.follow(run, poll_interval=0.01, idle_timeout=30)
    assert next(stream).seq == 0
    killed = postgres_database.raw().execute(KILL).fetchall()
    assert killed
    postgres_database.open().journal.events.append_many(run, [NewEvent("b")] * 2)
    assert [event.seq for event in itertools.islice(stream, 2)] == [1, 2]


def test_seconds_of_a_follower_that_are_no_length_of_time_are_refused(every_backend: StateStore) -> None:
    """journal E-8: before anything waits; the look that all followers of a store share would end by them."""
    for argument in ("idle_timeout", "heartbeat", "poll_interval"):
        for seconds in (float("nan"), float("inf"), -1.0):
            given: dict[str, Any] = {argument: seconds}
            with pytest.raises(InvalidValue, match=argument):
                every_backend.journal.events.follow_many({"r": None}, **given)


def test_following_is_refused_in_a_transaction_and_ends_with_the_store(database: Database) -> None:
    """journal F-2, F-8."""
    store = database.open()
    run = started(store).id
    with store.transaction() as tx, pytest.raises(MisuseError):
        tx.journal.events.follow(run)
    stream = store.journal.events.follow(run, poll_interval=0.01)
    closing = threading.Timer(0.05, store.close)
    closing.start()
    with pytest.raises(StoreClosed):
        next(stream)
    closing.join()


def test_many_followers_ask_with_one_statement(database: Database) -> None:
    """journal F-5: what is sent while nothing happens does not grow with the followers."""
    with recorded(database) as (store, sent):
        runs = [started(store).id for _ in range(20)]
        for run in runs:
            store.journal.events.append(run, "a")
        stop = threading.Event()
        begun = threading.Barrier(21, timeout=60)

        def follow(run: str) -> None:
            stream = store.journal.events.follow(run, poll_interval=POLL, stop=stop)
            next(stream)
            begun.wait()
            assert list(stream) == []

        followers = [threading.Thread(target=follow, args=(run,)) for run in runs]
        for follower in followers:
            follower.start()
        begun.wait()
        begin = time.monotonic()
        sent.clear()
        while len(sent) < 5:
            time.sleep(POLL)
        counted, lasted = len(sent), time.monotonic() - begin
        stop.set()
        for follower in followers:
            follower.join()
        assert counted <= lasted / POLL + 2
