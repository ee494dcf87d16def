from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.garbage import collect
from support.sent import recorded
from support.workflows.steps import Raw, all_pages, started, together

from lastlight_state import StateStore
from lastlight_state.backends import waiting as backends_waiting
from lastlight_state.errors import (
    AlreadyExists,
    BackendBusy,
    InvalidValue,
    MisuseError,
    NotFound,
    ReadOnlyTransaction,
    StoreClosed,
    UnsavedEvents,
)
from lastlight_state.journal import Event, NewEvent, QueuedEvent, WriterOptions
from lastlight_state.journal.writer import JournalWriter, queue
from lastlight_state.journal.writer.saver import Saver
from lastlight_state.testing import Database, FrozenClock

SCALE = [pytest.param(600, 6, id="600"), pytest.param(10_000, 20, id="10000", marks=pytest.mark.soak)]


def told(store: Any, run_id: str) -> list[tuple[int, Any]]:
    """Number and payload of every event of a run."""
    return [(event.seq, event.payload.get("i")) for event in all_pages(store.journal.events.list, run_id=run_id)]


class Held:
    """A mirror that keeps the thread that stores, until it is let go."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, events: Any) -> None:
        self.reached.set()
        assert self.go_on.wait(30)


@pytest.mark.parametrize(("events", "runs"), SCALE)
def test_queued_events_are_stored_in_the_order_in_which_they_were_appended(
    store: StateStore, events: int, runs: int
) -> None:
    """journal W-1, W-3, W-5, W-7: of many runs, without gaps."""
    ids = [started(store).id for _ in range(runs)]
    with store.journal.writer() as writer:
        pending = [writer.append(ids[i % runs], "a", {"i": i // runs}) for i in range(events)]
        writer.flush()
        assert [one.seq for one in pending] == [i // runs for i in range(events)]
        for run_id in ids:
            assert told(store, run_id) == [(i, i) for i in range(events // runs)]


def test_an_event_is_checked_and_encoded_when_it_is_appended(store: StateStore, frozen_clock: FrozenClock) -> None:
    """journal W-1, W-2, J-7: bad input raises here and nothing is queued."""
    run_id, payload = started(store).id, {"i": 1}
    with store.journal.writer() as writer:
        kept = writer.append(run_id, "a", payload, node_id="build")
        payload["i"] = 2
        for bad in ({"payload": {1: 2}}, {"payload": {"text": "x" * 65_536}}, {"event_id": "\n"}, {"at": "now"}):
            with pytest.raises(InvalidValue):
                writer.append(run_id, "a", **bad)
        with pytest.raises(InvalidValue):
            writer.append_nowait(7, "a")  # type: ignore[arg-type]
        assert kept.wait() == 0
        stored = store.journal.events.get(run_id, 0)
        assert (stored.payload, stored.node_id, stored.occurred_at) == ({"i": 1}, "build", frozen_clock.now())
        assert (kept.run_id, kept.event_id, kept.occurred_at) == (run_id, stored.event_id, stored.occurred_at)
        assert store.journal.events.latest_seq(run_id) == 0


def test_a_key_is_stored_once_and_another_content_is_handed_back(store: StateStore) -> None:
    """journal W-2, W-10, D-1, D-2, D-6: in one batch, and before it."""
    run_id = started(store).id
    store.journal.events.append(run_id, "a", event_id="first")
    mirrored: list[Sequence[Event]] = []
    with store.journal.writer(mirrors=[mirrored.append]) as writer:
        found = writer.append(run_id, "a", event_id="first")
        new, twice = (writer.append(run_id, "a", event_id="second") for _ in range(2))
        other = writer.append(run_id, "b", event_id="second")
        with pytest.raises(UnsavedEvents) as raised:
            writer.flush()
        [(event, error)] = raised.value.failures
        assert isinstance(error, AlreadyExists)
        assert (event.type, event.event_id, error.seq) == ("b", "second", 1)  # type: ignore[attr-defined]
        assert (found.seq, new.seq, twice.seq, other.seq) == (0, 1, 1, None)
        stats = writer.stats()
        assert (stats.stored, stats.duplicates, stats.failed, stats.queued) == (1, 2, 1, 0)
        assert [[event.event_id for event in batch] for batch in mirrored] == [["second"]]
        assert writer.append(run_id, "a", event_id="second").wait() == 1
    assert len(mirrored) == 1


@pytest.mark.logs("cannot be stored")
def test_an_event_that_is_refused_is_handed_back_once_and_the_others_are_stored(store: StateStore) -> None:
    """journal W-9, W-10, W-16: it blocks nothing, and the second flush is clean."""
    run_id = started(store).id
    with store.journal.writer() as writer:
        for i in range(5):
            writer.append(run_id, "a", {"i": i})
        bad = writer.append("nobody", "a", {"secret": 1})
        for i in range(5, 9):
            writer.append(run_id, "a", {"i": i})
        with pytest.raises(UnsavedEvents) as raised:
            writer.flush()
        [(event, error)] = raised.value.failures
        assert isinstance(event, QueuedEvent)
        assert (event.run_id, event.payload) == ("nobody", {"secret": 1})
        assert isinstance(error, NotFound)
        assert raised.value.__cause__ is error
        assert raised.value.waiting == ()
        assert "secret" not in str(raised.value) + repr(raised.value)
        writer.flush()
        assert told(store, run_id) == [(i, i) for i in range(9)]
        stats = writer.stats()
        assert (stats.stored, stats.failed, stats.duplicates, stats.queued) == (9, 1, 0, 0)
        with pytest.raises(NotFound):
            bad.wait()


@pytest.mark.logs("a listener of events failed")
def test_listeners_hear_of_an_event_at_once_whatever_another_one_raises(store: StateStore) -> None:
    """journal W-4, W-9: in order, by type; the error is reported by the next flush."""
    run_id, heard = started(store).id, []

    def failing(event: QueuedEvent) -> None:
        raise ValueError(event.type)

    def second(event: QueuedEvent) -> None:
        heard.append(("second", event.type, event.payload))

    with store.journal.writer() as writer:
        writer.subscribe(failing, types=("a",))
        writer.subscribe(second)
        writer.append(run_id, "a", {"x": 1})
        assert heard == [("second", "a", {"x": 1})]
        with pytest.raises(UnsavedEvents) as raised:
            writer.flush()
        assert [str(error) for error in raised.value.listener_errors] == ["a"]
        assert (raised.value.failures, raised.value.waiting) == ((), ())
        writer.append(run_id, "b")
        writer.unsubscribe(failing)
        writer.append(run_id, "a")
        writer.flush()
        assert [kind for _, kind, _ in heard] == ["a", "b", "a"]
        assert len(told(store, run_id)) == 3


def test_a_flush_waits_for_what_was_appended_before_it(every_backend: StateStore, run_id: str) -> None:
    """journal W-7: and not for what others append meanwhile."""
    with every_backend.journal.writer() as writer:
        stop = threading.Event()

        def append_on() -> None:
            while not stop.is_set():
                writer.append(run_id, "a")

        appending = threading.Thread(target=append_on)
        appending.start()
        for _ in range(3):
            mine = writer.append(run_id, "mine")
            writer.flush()
            assert mine.seq is not None
        stop.set()
        appending.join()


@pytest.mark.parametrize("limit", [{"max_queued": 3}, {"max_queued_bytes": 30}])
def test_a_full_queue_makes_an_append_wait_or_refuses_it(store: StateStore, limit: Any) -> None:
    """journal W-6: `append_nowait` at once, `append` when its time is over, or when there is room."""
    run_id, held = started(store).id, Held()
    options = WriterOptions(**limit, linger=0, full_timeout=0.05)
    with store.journal.writer(options, mirrors=[held]) as writer:
        for _ in range(3):
            writer.append(run_id, "a", {"x": 1234})
        assert held.reached.wait(30)
        with pytest.raises(BackendBusy, match="full"):
            writer.append_nowait(run_id, "a", {"x": 1234})
        with pytest.raises(BackendBusy, match="full"):
            writer.append(run_id, "a", {"x": 1234})
        assert writer.stats().queued == 3
        held.go_on.set()
        writer.append(run_id, "late")
        writer.flush()
        assert len(told(store, run_id)) == 4
        assert writer.append_nowait(run_id, "at once").wait(30) == 4


def test_a_writer_that_refuses_when_full_does_not_wait(every_backend: StateStore, run_id: str) -> None:
    """journal W-6."""
    held = Held()
    options = WriterOptions(max_queued=1, when_full="refuse", linger=0)
    with every_backend.journal.writer(options, mirrors=[held]) as writer:
        writer.append(run_id, "a")
        with pytest.raises(BackendBusy, match="full"):
            writer.append(run_id, "a")
        held.go_on.set()


#: Nothing is stored before somebody waits for it.
FULL_WITH_ONE = WriterOptions(max_queued=1, linger=60, full_timeout=0.01)


def test_waiting_is_refused_where_it_would_never_end(every_backend: StateStore, run_id: str) -> None:
    """journal W-14: inside a transaction's block; appending with room is not waiting."""
    store = every_backend
    with store.journal.writer(FULL_WITH_ONE) as writer:
        with store.transaction() as tx:
            pending = writer.append(run_id, "a")
            waits: list[Callable[[], Any]] = [
                writer.flush, writer.close, tx.journal.writer, pending.wait, lambda: writer.append(run_id, "b")
            ]  # fmt: skip
            for wait in waits:
                with pytest.raises(MisuseError):
                    wait()
        writer.flush()
        with store.view() as view, pytest.raises(MisuseError):
            view.journal.writer()
        assert len(told(store, run_id)) == 1


def test_a_mirror_may_append_and_may_not_wait(every_backend: StateStore, run_id: str) -> None:
    """journal W-14: what it waited for would wait for the mirror."""

    def mirror(events: Sequence[Event]) -> None:
        if events[0].type == "a":
            writer.append(run_id, "b")
            with pytest.raises(MisuseError):
                writer.flush()

    with every_backend.journal.writer(mirrors=[mirror]) as writer:
        writer.append(run_id, "a")
        writer.flush()
        writer.flush()
        assert (writer.stats().stored, writer.stats().mirror_failures) == (2, 0)


def test_a_full_batch_is_stored_without_waiting_for_more(every_backend: StateStore, run_id: str) -> None:
    """journal W-5: only one that is not full yet waits."""
    batches: list[int] = []
    done = threading.Event()

    def mirror(events: Sequence[Event]) -> None:
        batches.append(len(events))
        if sum(batches) == 6:
            done.set()

    with every_backend.journal.writer(WriterOptions(max_batch=3, linger=3_600), mirrors=[mirror]) as writer:
        for _ in range(6):
            writer.append(run_id, "a")
        assert done.wait(30)
    assert batches == [3, 3]


@contextmanager
def pairing(store: StateStore) -> Iterator[tuple[JournalWriter, threading.Event]]:
    """A writer that waits for two events, and what is set when some are stored."""
    mirrored = threading.Event()
    with store.journal.writer(WriterOptions(max_batch=2, linger=3_600), mirrors=[lambda _: mirrored.set()]) as writer:
        yield writer, mirrored


def test_an_event_that_comes_just_before_the_thread_rests_does_not_wait_for_its_end(
    every_backend: StateStore, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """journal W-5: where it fills the batch."""
    with pairing(every_backend) as (writer, mirrored):
        before(monkeypatch, Saver, "_rest", lambda: writer.append(run_id, "b"))
        writer.append(run_id, "a")
        assert mirrored.wait(10)


class Watched:
    """A gate that tells when somebody comes to it."""

    def __init__(self, gate: Any) -> None:
        self.reached, self.release, self._gate = threading.Event(), gate.release, gate

    def acquire(self, timeout: float) -> bool:
        self.reached.set()
        return bool(self._gate.acquire(timeout=timeout))


def test_the_event_that_fills_the_batch_wakes_the_thread(
    every_backend: StateStore, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """journal W-5: that one, not the next."""
    with pairing(every_backend) as (writer, mirrored):
        gate = Watched(writer._core.saver._gate)
        monkeypatch.setattr(writer._core.saver, "_gate", gate)
        writer.append(run_id, "a")
        assert gate.reached.wait(10)
        writer.append(run_id, "b")
        assert mirrored.wait(5)


@pytest.mark.logs("cannot be stored")
def test_as_many_errors_are_kept_as_a_queue_holds_events(store: StateStore) -> None:
    """journal W-9: of events and of listeners; the others are logged, and counted."""

    def failing(event: QueuedEvent) -> None:
        raise ValueError(event.type)

    with store.journal.writer(WriterOptions(max_queued=2)) as writer:
        writer.subscribe(failing)
        for kind in "abcd":
            with suppress(NotFound):
                writer.append("nobody", kind).wait()
        with pytest.raises(UnsavedEvents) as raised:
            writer.flush()
        assert [event.type for event, _ in raised.value.failures] == ["a", "b"]
        assert [str(error) for error in raised.value.listener_errors] == ["a", "b"]
        assert writer.stats().failed == 4


def test_a_writer_that_may_not_wait_where_it_is_left_says_so(every_backend: StateStore, run_id: str) -> None:
    """journal W-14: what the program raised is the context."""

    writer = every_backend.journal.writer()

    def use() -> None:
        with writer:
            writer.append(run_id, "a")
            raise LookupError("the program's own")

    with every_backend.transaction(), pytest.raises(MisuseError) as raised:
        use()
    assert isinstance(raised.value.__context__, LookupError)
    writer.close()
    assert writer.stats().stored == 1


def test_a_closed_writer_has_stored_everything_and_takes_nothing(store: StateStore) -> None:
    """journal W-12: closing again does nothing."""
    run_id = started(store).id
    with store.journal.writer() as writer:
        pending = writer.append(run_id, "a")
        writer.close()
        assert pending.seq == 0
        writer.close()
        for call in (writer.flush, lambda: writer.append(run_id, "b"), lambda: writer.append_nowait(run_id, "b")):
            with pytest.raises(StoreClosed):
                call()
    assert len(told(store, run_id)) == 1


def test_who_closes_a_writer_is_woken_by_the_end_of_its_thread(
    state_store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """journal W-12: and does not wait until it looks for itself."""
    writer = state_store.journal.writer()
    saver, waits, wait = writer._core.saver, threading.Event(), backends_waiting.wait

    def waiting(*given: Any) -> None:
        if saver.is_over:
            waits.set()
        wait(*given)

    monkeypatch.setattr(queue, "LOOK_SECONDS", 3_600)
    monkeypatch.setattr(backends_waiting, "wait", waiting)
    monkeypatch.setattr(saver, "_has_work", lambda: not waits.wait(30))
    saver.notice()
    closing = threading.Thread(target=writer.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()


def test_a_store_closes_its_writers(database: Database) -> None:
    """journal W-12: it stores what is queued, is closed in any case, and says what could not be stored."""
    store = database.open()
    run_id = started(store).id
    writer, other, third = (store.journal.writer() for _ in range(3))
    for i in range(50):
        writer.append(run_id, "a", {"i": i})
    other.append("nobody", "a")
    for _ in range(2):
        third.append("nobody", "a")
    with pytest.raises(UnsavedEvents) as raised:
        store.close()
    [note] = raised.value.__notes__
    assert {len(raised.value.failures), int(note.split("events given up: ")[1][0])} == {1, 2}
    assert note.startswith("of another writer: ")
    asked = (lambda: writer.append(run_id, "a"), lambda: store.journal.events.count(run_id), other.flush, third.flush)
    for closed in (*asked, store.journal.writer):
        with pytest.raises(StoreClosed):
            closed()
    store.close()
    assert told(database.open(), run_id) == [(i, i) for i in range(50)]


def test_a_writer_that_nobody_keeps_stores_what_it_was_given(database: Database) -> None:
    """journal W-12: it lives as long as it has work, and is closed with the store."""
    store = database.open()
    run_id = started(store).id
    store.journal.writer(WriterOptions(linger=60)).append(run_id, "a")
    collect()
    store.close()
    assert told(database.open(), run_id) == [(0, None)]


def test_an_exception_in_the_block_is_not_hidden_by_what_was_not_stored(store: StateStore) -> None:
    """journal W-12."""

    def use() -> None:
        with store.journal.writer() as writer:
            writer.append("nobody", "a")
            raise LookupError("the program's own")

    with pytest.raises(LookupError) as raised:
        use()
    assert "events given up: 1" in raised.value.__notes__[0]


def test_a_block_that_ends_well_raises_what_was_not_stored(store: StateStore) -> None:
    """journal W-12."""

    def use() -> None:
        with store.journal.writer() as writer:
            writer.append("nobody", "a")

    with pytest.raises(UnsavedEvents, match="events given up: 1"):
        use()


def test_the_end_of_a_run_finds_its_events_stored(store: StateStore) -> None:
    """journal W-17: alone and in a transaction; what cannot be stored is left for the next flush."""
    first, second = started(store).id, started(store).id
    with store.journal.writer(WriterOptions(linger=60)) as writer:
        writer.append(first, "a")
        store.workflows.runs.finish(first, "succeeded")
        assert len(told(store, first)) == 1
        writer.append("nobody", "a")
        writer.append(second, "a")
        with store.transaction() as tx:
            tx.workflows.runs.cancel(second, by="ana", reason="enough")
        assert len(told(store, second)) == 1
        with pytest.raises(UnsavedEvents):
            writer.flush()


def test_a_batch_is_a_constant_number_of_statements(database: Database) -> None:
    """journal W-5: whatever it holds, and of however many runs, new ones and known ones."""
    with recorded(database) as (store, sent):
        counts = []
        for runs, events in ((1, 5), (5, 50), (20, 200)):
            ids = [started(store).id for _ in range(runs)]
            for _ in range(2):
                with store.journal.writer(WriterOptions(linger=60, max_batch=events)) as writer:
                    sent.clear()
                    for i in range(events):
                        writer.append(ids[i % runs], "a", {"i": i})
                    writer.flush()
                    counts.append(len([sql for sql in sent if not sql.startswith(("BEGIN", "COMMIT"))]))
        assert len(set(counts[::2])) == len(set(counts[1::2])) == 1, counts
        assert counts[:2] == [4, 2]


def test_a_counter_behind_its_table_is_raised(every_backend: StateStore, run_id: str, raw: Raw) -> None:
    """journal Q-3, W-10: for queued events as for others."""
    every_backend.journal.events.append_many(run_id, [NewEvent("a")] * 3)
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('edit')")
    raw("UPDATE run_sequences SET next_seq = 0 WHERE run_id = ?", run_id)
    raw("DELETE FROM maintenance_permits")
    with every_backend.journal.writer() as writer:
        for i in range(5):
            writer.append(run_id, "b", {"i": i})
        writer.flush()
    assert told(every_backend, run_id)[3:] == [(3 + i, i) for i in range(5)]


def test_threads_share_a_writer(every_backend: StateStore, run_id: str) -> None:
    """journal W-3, W-16: each thread's events are in its order; stats count them all."""
    with every_backend.journal.writer(WriterOptions(max_queued=20)) as writer:

        def work(number: int) -> list[int]:
            pending = [writer.append(run_id, "a", {"i": number}) for _ in range(30)]
            return [one.wait(30) for one in pending]

        numbers: list[Any] = together([lambda number=number: work(number) for number in range(4)])  # type: ignore[misc]
        assert all(one == sorted(one) for one in numbers)
        assert sorted(seq for one in numbers for seq in one) == list(range(120))
        stats = writer.stats()
        assert (stats.stored, stats.queued, stats.queued_bytes, stats.oldest_age) == (120, 0, 0, None)
        assert repr(writer) == "JournalWriter(0 queued)"


@with_each(
    "options",
    [
        {"max_queued": 0},
        {"max_queued_bytes": True},
        {"max_batch": 1001},
        {"linger": -1},
        {"full_timeout": "1"},
        {"when_full": "drop"},
    ],
)
def test_options_outside_their_range_are_refused(store: StateStore, options: dict[str, Any]) -> None:
    """journal W-6."""
    with pytest.raises(InvalidValue):
        store.journal.writer(WriterOptions(**options))
    with pytest.raises(InvalidValue):
        store.journal.writer(mirrors=["file"])  # type: ignore[list-item]


@pytest.mark.parametrize("most", [1, 1_000])
def test_options_at_the_ends_of_their_ranges_are_taken(store: StateStore, most: int) -> None:
    """journal W-5, W-6."""
    run_id = started(store).id
    options = WriterOptions(max_queued=most, max_queued_bytes=most, max_batch=most, linger=0, full_timeout=30)
    with store.journal.writer(options) as writer:
        for i in range(4):
            writer.append(run_id, "a", {"i": i})
        writer.flush(0 if most == 0 else 30)
        assert told(store, run_id) == [(i, i) for i in range(4)]
        for call in (writer.flush, writer.append(run_id, "a").wait):
            with pytest.raises(InvalidValue, match="timeout"):
                call(-1)


def test_a_store_that_only_reads_makes_no_writer(database: Database) -> None:
    """journal J-10."""
    with pytest.raises(ReadOnlyTransaction):
        database.open(read_only=True).journal.writer()
