"""The thread that stores queued events: many in one unit, in their order, again and again while the database is away.

An event that the database refuses is found by halving its batch, and given up; all others are stored. The thread ends
when there is nothing to do for a while, and begins again with the next event.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count

from lastlight_state import codec
from lastlight_state.backends import waiting
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendBusy, BackendError, BackendUnavailable, UnsavedEvents
from lastlight_state.journal.arguments import WriterOptions
from lastlight_state.journal.events import statements, statements as sql
from lastlight_state.journal.events.statements import Draft
from lastlight_state.journal.kernel import Numbered
from lastlight_state.journal.records import Appended, QueuedEvent
from lastlight_state.journal.writer.mirrors import Mirrors
from lastlight_state.journal.writer.queue import Entry, Queue

# What went wrong in a writer and was not reported yet. Each error is reported once, also after an interruption.

_log = logging.getLogger("lastlight_state.journal")


class Unreported:
    """Events that were given up, and errors of listeners: the first ``most`` of each. All of them are logged."""

    def __init__(self, most: int) -> None:
        self.failed = 0
        self._most = most
        self._number = count()
        self._failures: dict[int, tuple[QueuedEvent, Exception]] = {}
        self._listener_errors: dict[int, Exception] = {}

    def give_up(self, entry: Entry, error: Exception) -> None:
        """Note an event that cannot be stored."""
        self.failed += 1
        row = entry.row
        _log.error("event %r of run %r cannot be stored: %s", row["event_id"], row["run_id"], error)
        if len(self._failures) < self._most:
            self._failures[next(self._number)] = event_of(entry), error

    def listener_failed(self, listener: Callable[..., object], error: Exception) -> None:
        """Note what a listener raised."""
        _log.error("a listener of events failed: %r", listener, exc_info=error)
        if len(self._listener_errors) < self._most:
            self._listener_errors[next(self._number)] = error

    def report(self, waiting: Sequence[Entry], cause: Exception | None) -> None:
        """Raise `UnsavedEvents` with everything that is not reported, and these entries that are not stored yet."""
        failures, errors = list(self._failures.items()), list(self._listener_errors.items())
        if not (failures or errors or waiting):
            return
        unsaved = UnsavedEvents(
            f"events given up: {len(failures)}, still queued: {len(waiting)}, failed listeners: {len(errors)}",
            failures=tuple(failure for _, failure in failures),
            waiting=tuple(event_of(entry) for entry in waiting),
            listener_errors=tuple(error for _, error in errors),
        )
        first = next((error for _, (_, error) in failures), cause) or next((error for _, error in errors), None)
        for number, _ in failures:
            self._failures.pop(number, None)
        for number, _ in errors:
            self._listener_errors.pop(number, None)
        raise unsaved from first


def event_of(entry: Entry) -> QueuedEvent:
    """Return the event of an entry, for callers."""
    return QueuedEvent.of({**entry.row, "payload": codec.decode(entry.row["payload"])})


#: Seconds without an event after which the thread ends.
IDLE_SECONDS = 2.0
#: Seconds between two attempts while the database is away: the first pause, which doubles, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
#: More entries than a queue ever has.
_NEVER = sys.maxsize


class Batches(Numbered):
    """Stores queued events, all of a batch or none."""

    _stream = sql.STREAM

    def store(self, batch: Sequence[Entry], *, in_doubt: bool) -> tuple[list[Appended], bool]:
        """Return what became of each event, and whether the unit may have met events that it stored itself.

        ``in_doubt``: they may be stored already.
        """

        doubts = [in_doubt]

        def work(unit: Unit) -> list[Appended]:
            drafts = [Draft(entry.row, is_fresh=not (entry.is_keyed or doubts[-1])) for entry in batch]
            doubts.append(True)  # for when it is run again
            return statements.append(unit, drafts)

        if len(batch) > 1:
            outcomes = self._writing(work, repeatable=True)
        else:
            outcomes = self._append(batch[0].row["run_id"], self._writing, work, repeatable=True)
        return outcomes, in_doubt or len(doubts) > 2


class Saver:
    """Takes entries from a queue and stores them. Of its threads one works at a time."""

    def __init__(
        self, queue: Queue, batches: Batches, options: WriterOptions, mirrors: Mirrors, unreported: Unreported
    ) -> None:
        self.stored = self.duplicates = 0
        #: The number of the attempt that began last, and of the one that failed last because of the database.
        self.begun = self.failed = 0
        #: Why that one failed.
        self.error: Exception | None = None
        #: What is to live as long as the thread has work: the writer, which its store knows by a weak reference.
        self.owner: object = None
        #: Told to end, whatever is queued.
        self.is_over = False
        self._queue = queue
        self._batches = batches
        self._options = options
        self._mirrors = mirrors
        self._unreported = unreported
        self._working: dict[str, int] = {}
        self._gate = waiting.closed_gate()
        #: How many entries are worth waking the thread for.
        self._wanted = _NEVER
        self._pause = 0.0
        self._in_doubt = False
        self._is_hurried = False

    @property
    def is_at_work(self) -> bool:
        """True if there is a thread."""
        return bool(self._working)

    @property
    def is_this_thread(self) -> bool:
        """True if the caller is that thread: a mirror."""
        return self._working.get("thread") == threading.get_ident()

    def notice(self) -> None:
        """Note that an event was appended."""
        if not self._working:
            self._start()
        elif len(self._queue) >= self._wanted:
            waiting.wake(self._gate)

    def hurry(self) -> None:
        """Store what is there now for a waiting caller, without waiting for more or for a better time."""
        self._is_hurried = True
        waiting.wake(self._gate)
        if not self._working:
            self._start()

    def end(self) -> None:
        """Let the thread end after what it is at."""
        self.is_over = True
        waiting.wake(self._gate)

    def after_fork(self) -> None:
        """Forget, in a child process, the thread, which it does not have."""
        self.is_over = True
        self._working.clear()

    def run(self) -> None:
        """Store entries until there are none for a while."""
        me = threading.get_ident()
        while self._working.setdefault("thread", me) == me:
            try:
                while not self.is_over and self._has_work():
                    self._attempt()
            finally:
                self._working.clear()
                self._queue.wake()
            if self.is_over or not self._queue:  # an entry that came meanwhile may have seen this thread at work
                return

    def run_here(self) -> None:
        """Store what is queued in the caller's thread, unless there is one at work. Ends at the first failure."""
        me = threading.get_ident()
        if self._working.setdefault("thread", me) == me:
            failed = self.failed
            try:
                while self._queue and self.failed == failed:
                    self._attempt()
            finally:
                self._working.clear()

    def _start(self) -> None:
        with suppress(RuntimeError):  # at the end of the interpreter there are no new threads; see `run_here`
            threading.Thread(target=self.run, name="lastlight-journal", daemon=True).start()

    def _has_work(self) -> bool:
        if not self._queue:
            self._is_hurried = False
            self._rest(1, IDLE_SECONDS)
        if self._pause:
            self._rest(_NEVER, self._pause)
        elif 0 < len(self._queue) < self._options.max_batch:
            self._rest(self._options.max_batch, self._options.linger)
        return bool(self._queue)

    def _rest(self, wanted: int, seconds: float) -> None:
        self._wanted = wanted
        if len(self._queue) < wanted and not (self._is_hurried or self.is_over):
            self._gate.acquire(timeout=seconds)
        self._wanted = _NEVER

    def _attempt(self) -> None:
        self.begun += 1
        self._is_hurried = False
        try:
            self._store(self._queue.head(self._options.max_batch))
        except BackendError as error:
            self.error = error
            self.failed = self.begun
            self._in_doubt = self._in_doubt or error.outcome == "unknown"
            self._pause = min(max(self._pause * 2, FIRST_PAUSE), LONGEST_PAUSE)
        else:
            self._pause = 0.0
            self._in_doubt = False
        self._queue.wake()

    def _store(self, batch: Sequence[Entry]) -> None:
        """Store these, but for those that are refused. Raises `BackendError` for the first that may be stored later."""
        try:
            outcomes, in_doubt = self._batches.store(batch, in_doubt=self._in_doubt)
        except (BackendBusy, BackendUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported with the event
            if len(batch) > 1:
                middle = len(batch) // 2
                self._store(batch[:middle])
                self._store(batch[middle:])
            else:
                self._give_up(batch[0], error)
        else:
            self._keep(batch, outcomes, in_doubt)

    def _keep(self, batch: Sequence[Entry], outcomes: Sequence[Appended], in_doubt: bool) -> None:
        shown = []
        for entry, outcome in zip(batch, outcomes, strict=True):
            entry.seq = outcome.seq
            is_new = outcome.created or not entry.is_keyed
            self.stored += is_new
            self.duplicates += not is_new
            if is_new or in_doubt:
                shown.append((entry, outcome))
        self._queue.wake()
        self._mirrors.show(shown)
        for entry in batch:
            self._queue.remove(entry)

    def _give_up(self, entry: Entry, error: Exception) -> None:
        entry.error = error
        self._unreported.give_up(entry, error)
        self._queue.remove(entry)
