"""Registries of open writers: one for each store, and one for the process."""

from __future__ import annotations

import atexit
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from lastlight_state.db.gate import guard_arguments
from lastlight_state.db.repository import Context
from lastlight_state.db.runs import TERMINAL_TOPIC
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.errors import MisuseError, ReadOnlyTransaction, StateError, UnsavedEvents
from lastlight_state.files.jsonl import files
from lastlight_state.journal.arguments import WriterOptions
from lastlight_state.journal.writer import NO_OPTIONS, JournalWriter
from lastlight_state.journal.writer.core import Core
from lastlight_state.journal.writer.mirrors import Mirror
from lastlight_state.locks import Lock

#: The most seconds that the end of a run waits for the run's events.
BOUNDARY_SECONDS = 30.0
#: The most seconds that the end of the interpreter waits for all writers.
EXIT_SECONDS = 5.0

_log = logging.getLogger("lastlight_state.journal")


class Writer:
    """``store.journal.writer``: call this to make a queued writer."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @guard_arguments
    def __call__(self, options: WriterOptions = NO_OPTIONS, *, mirrors: Collection[Mirror] = ()) -> JournalWriter:
        """Return a new queued writer of events, for any number of runs. It is a context manager.

        Each of ``mirrors``, for example a `LineFileMirror`, is called with the events of a batch after they are stored.
        The writer is closed with the store. Raises `MisuseError` in a transaction or view, `ReadOnlyTransaction` in a
        read-only store.
        """
        return self._context.remember(Opened).open(self._context, options, mirrors)


class Opened:
    """The open writers of one store."""

    def __init__(self) -> None:
        self._writers: WeakSet[JournalWriter] = WeakSet()
        self._lock = Lock()
        self._is_attached = False

    def open(self, context: Context, options: WriterOptions, mirrors: Collection[Mirror]) -> JournalWriter:
        """Return a new writer. Raises `MisuseError` in a transaction or view, `ReadOnlyTransaction` in a read-only
        store.
        """
        scope = context.scope
        if not isinstance(scope, StoreScope):
            raise MisuseError("a writer stores events in units of its own: make it on the store")
        if not scope.may_write:
            raise ReadOnlyTransaction("the store is open for reading only")
        scope.refuse_closed()
        writer = JournalWriter(context, options, mirrors)
        with self._lock:
            if not self._is_attached:
                context.listeners.subscribe(TERMINAL_TOPIC, self._run_ended)
                scope.before_close.append(self.close)
                self._is_attached = True
        self._writers.add(writer)
        _every_writer.add(writer)
        files.renew_after_fork(writer._core)
        return writer

    def close(self) -> None:
        """Close all writers of the store, then raise the first `UnsavedEvents` if there was any."""
        unsaved: list[UnsavedEvents] = []
        for writer in list(self._writers):
            try:
                writer.close()
            except UnsavedEvents as error:
                unsaved.append(error)
        if unsaved:
            for other in unsaved[1:]:
                unsaved[0].add_note(f"of another writer: {other}")
            raise unsaved[0]

    def _run_ended(self, run: Any) -> None:
        """Wait until the ended run's events are stored. Events that cannot be stored are reported by the next flush."""
        end = time.monotonic() + BOUNDARY_SECONDS
        for writer in list(self._writers):
            with suppress(StateError):
                _settle(writer._core, end, run.id)


def _settle(core: Core, end: float, run_id: str | None = None) -> None:
    flush = core.flush(run_id)
    core.queue.wait(flush.is_over, max(end - time.monotonic(), 0.0))


def _flush_all() -> None:
    """Flush all open writers when the interpreter exits."""
    end = time.monotonic() + EXIT_SECONDS
    for writer in list(_every_writer):
        core = writer._core
        if core.is_over or not core.queue:
            continue
        with suppress(Exception):
            core.saver.run_here()
            _settle(core, end)
        lost = len(core.queue)
        if lost:
            _log.error("the interpreter ends with %d events queued that are not stored: close the writer before", lost)


_every_writer: WeakSet[JournalWriter] = WeakSet()
atexit.register(_flush_all)
