"""The thread that stores queued events in order, many in one unit, and retries while the database is unavailable.

If the database refuses a batch, the batch is halved until the refused event is found. That event is given up; all
others are stored. The thread ends when there is nothing to do for a while, and starts again with the next event.
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
from lastlight_state.journal.records import Appended, QueuedEvent
from lastlight_state.journal.shared import Numbered
from lastlight_state.journal.writer.mirrors import Mirrors
from lastlight_state.journal.writer.queue import Entry, Queue

# Failures of a writer that were not reported yet. Each is reported once, even after an interruption.

_log = logging.getLogger("lastlight_state.journal")


class Unreported:
    """Failures to report: events that were given up, and errors that listeners raised.

    Keeps at most ``most`` failures of each kind, the earliest. All failures are logged.
    """

    def __init__(self, most: int) -> None:
        self.failed = 0
        self._most = most
        self._number = count()
        self._failures: dict[int, tuple[QueuedEvent, Exception]] = {}
        self._listener_errors: dict[int, Exception] = {}

    def give_up(self, entry: Entry, error: Exception) -> None:
        """Log an event that cannot be stored, and keep it for the next report."""
        self.failed += 1
        row = entry.row
        _log.error("event %r of run %r cannot be stored: %s", row["event_id"], row["run_id"], error)
        if len(self._failures) < self._most:
            self._failures[next(self._number)] = event_of(entry), error

    def listener_failed(self, listener: Callable[..., object], error: Exception) -> None:
        """Log an exception that a listener raised, and keep it for the next report."""
        _log.error("a listener of events failed: %r", listener, exc_info=error)
        if len(self._listener_errors) < self._most:
            self._listener_errors[next(self._number)] = error

    def report(self, waiting: Sequence[Entry], cause: Exception | None) -> None:
        """Raise `UnsavedEvents` with all unreported failures and the ``waiting`` entries.

        Does nothing if there are none.
        """
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
    """Return the queued event of an entry, as callers see it."""
    return QueuedEvent.of({**entry.row, "payload": codec.decode(entry.row["payload"])})


#: Seconds without an event after which the thread ends.
IDLE_SECONDS = 2.0
#: Seconds between two attempts while the database is away: the first pause, which doubles, and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
#: A number of entries that no queue reaches.
_NEVER = sys.maxsize


class Batches(Numbered):
    """Stores batches of queued events: all events of a batch or none."""

    _stream = sql.STREAM

    def store(self, batch: Sequence[Entry], *, in_doubt: bool) -> tuple[list[Appended], bool]:
        """Store a batch. Returns the outcome of each event, and True if an earlier attempt may have stored the events.

        ``in_doubt`` is True if an attempt before this call may have stored them.
        """

        doubts = [in_doubt]

        def work(unit: Unit) -> list[Appended]:
            drafts = [Draft(entry.row, is_fresh=not (entry.is_keyed or doubts[-1])) for entry in batch]
            doubts.append(True)  # if work runs again, its first run may have stored them
            return statements.append(unit, drafts)

        if len(batch) > 1:
            outcomes = self._writing(work, repeatable=True)
        else:
            outcomes = self._append(batch[0].row["run_id"], self._writing, work, repeatable=True)
        return outcomes, in_doubt or len(doubts) > 2


class Saver:
    """A saver: takes entries from a queue and stores them. At most one thread of a saver works at a time."""

    def __init__(
        self, queue: Queue, batches: Batches, options: WriterOptions, mirrors: Mirrors, unreported: Unreported
    ) -> None:
        self.stored = self.duplicates = 0
        #: The number of the last attempt that began, and of the last attempt that failed because of the database.
        self.begun = self.failed = 0
        #: The error of the last failed attempt.
        self.error: Exception | None = None
        #: The writer, kept alive as long as the thread has work: its store holds only a weak reference to it.
        self.owner: object = None
        #: True once the thread must end, whatever is queued.
        self.is_over = False
        self._queue = queue
        self._batches = batches
        self._options = options
        self._mirrors = mirrors
        self._unreported = unreported
        self._working: dict[str, int] = {}
        self._gate = waiting.closed_gate()
        #: The length of the queue from which on an append wakes the thread.
        self._wanted = _NEVER
        self._pause = 0.0
        self._in_doubt = False
        self._is_hurried = False

    @property
    def is_at_work(self) -> bool:
        """True if a thread is storing entries or waiting for them."""
        return bool(self._working)

    @property
    def is_this_thread(self) -> bool:
        """True if the caller runs in the saver's thread, as a mirror does."""
        return self._working.get("thread") == threading.get_ident()

    def notice(self) -> None:
        """Start the saver's thread after an append, or wake it if enough entries are queued."""
        if not self._working:
            self._start()
        elif len(self._queue) >= self._wanted:
            waiting.wake(self._gate)

    def hurry(self) -> None:
        """Store the queued entries now, for a waiting caller, without collecting more entries and without pausing."""
        self._is_hurried = True
        waiting.wake(self._gate)
        if not self._working:
            self._start()

    def end(self) -> None:
        """Make the thread end after its current attempt."""
        self.is_over = True
        waiting.wake(self._gate)

    def after_fork(self) -> None:
        """Forget the thread in a child process after ``fork()``: threads do not survive a fork."""
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
            if self.is_over or not self._queue:  # a meanwhile appended entry may have started no thread
                return

    def run_here(self) -> None:
        """Store the queued entries in the caller's thread, unless a thread is storing already.

        Stops at the first failure.
        """
        me = threading.get_ident()
        if self._working.setdefault("thread", me) == me:
            failed = self.failed
            try:
                while self._queue and self.failed == failed:
                    self._attempt()
            finally:
                self._working.clear()

    def _start(self) -> None:
        with suppress(RuntimeError):  # no thread starts at interpreter exit; see `run_here`
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
        """Store these entries, and give up those that the database refuses.

        Raises `BackendError` for the first entries that failed but may be stored later.
        """
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
