"""Mirrors: callables that receive a writer's events once they are stored, for example to write a log file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from lastlight_state import codec
from lastlight_state.clock import iso_text
from lastlight_state.codec import dump_line
from lastlight_state.db import valid
from lastlight_state.db.gate import guard_arguments
from lastlight_state.db.news.listeners import message_of
from lastlight_state.errors import InvalidValue, UnsafePath
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.cursor import read_tail
from lastlight_state.files.jsonl.reader import Line, LineKind
from lastlight_state.files.jsonl.writer import LineWriter, SyncWord
from lastlight_state.journal.events import Events
from lastlight_state.journal.records import Appended, Event
from lastlight_state.journal.writer.queue import Entry

# LineFileMirror writes each run's events to a line file of its own, for people and programs that read files.
#
# A file may lag behind the table, but never runs ahead of it: missing events are appended before the next events, or by
# `catch_up`. The mirror keeps no state: it reads from the file where the file ends.

SUFFIX = ".jsonl"


class LineFileMirror:
    """Writes ``<directory>/<run_id>.jsonl``: a line for each stored event, in the order of their numbers.

    Pass this object to a writer as one of its ``mirrors``. Several mirrors of one directory may write a line twice;
    such lines have the same ``seq``. Events that were pruned before they were written to the file are missing there. A
    file that another program wrote is not changed.
    """

    def __init__(self, events: Events, directory: str | Path, *, sync: SyncWord = "os") -> None:
        if not isinstance(events, Events):
            raise InvalidValue("events", f"expected store.journal.events, got {type(events).__name__}")
        if not isinstance(directory, str | Path):
            raise InvalidValue("directory", f"expected a path, got {type(directory).__name__}")
        self._events = events
        self._sync: SyncWord = sync
        #: The directory of the files.
        self.directory = files.real(Path(directory))

    def __call__(self, events: Sequence[Event]) -> None:
        """Append these events to the files of their runs. Earlier events that a file lacks are appended first."""
        problems: list[Exception] = []
        for run_id, of_run in groupby(sorted(events, key=_place), key=lambda event: event.run_id):
            try:
                self._append(run_id, list(of_run))
            except Exception as error:  # noqa: BLE001 - the files of other runs are not to lag because of it
                problems.append(error)
        if problems:
            raise problems[0]

    @guard_arguments
    def catch_up(self, run_id: str) -> int:
        """Append stored events that the run's file lacks, even if no writer queued them. Returns the number of lines.

        Raises `UnsafePath` if the run's id cannot be a file name.
        """
        return self._append(valid.lookup_text("run_id", run_id), [])

    def path_of(self, run_id: str) -> Path:
        """Return the path of a run's file, even if it does not exist. Raises `UnsafePath` if the id cannot be a file
        name.
        """
        name = valid.lookup_text("run_id", run_id) + SUFFIX
        problem = files.component_problem(name) or ("begins with a dot" if name.startswith(".") else None)
        if problem:
            raise UnsafePath("run_id", problem)
        return self.directory / name

    def _append(self, run_id: str, events: Sequence[Event]) -> int:
        path = self.path_of(run_id)
        last = _last_seq(path, run_id)
        written = 0
        for page in self._missing_events(run_id, last, events):
            with LineWriter(path, sync=self._sync, base=files.ROOT) as writer:
                writer.append([_line(event) for event in page])
            written += len(page)
        return written

    def _missing_events(self, run_id: str, last: int | None, events: Sequence[Event]) -> Iterator[Sequence[Event]]:
        """Yield the events after number ``last``: the given events if they follow without a gap, else stored events."""
        after = -1 if last is None else last
        behind = [event for event in events if event.seq > after]
        if behind and behind[-1].seq - after == len(behind):
            yield behind
        elif behind or not events:
            read = partial(self._events.list, run_id, limit=valid.PAGE_LIMIT)
            yield from _pages(read, last)


def _pages(read: Callable[..., Any], last: int | None) -> Iterator[Sequence[Event]]:
    page = read(after_seq=last)
    while page.items:
        yield page.items
        if page.next_page_token is None:
            return
        page = read(page_token=page.next_page_token)


def _place(event: Event) -> tuple[str, int]:
    return event.run_id, event.seq


def _line(event: Event) -> bytes:
    names = ("run_id", "seq", "type", "payload", "occurred_at", "node_id", "event_id")
    values = {name: getattr(event, name) for name in names}
    return dump_line({**values, "occurred_at": iso_text(event.occurred_at)})


def _last_seq(path: Path, run_id: str) -> int | None:
    """Return the event number in the file's last whole line; None if the file is missing or empty.

    Raises `InvalidValue` if that line is not an event of the run.
    """
    try:
        descriptor = files.open_to_read(path, base=files.ROOT)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise files.failure(error, path) from error
    kind = LineKind(Line, lambda value: type(value.get("seq")) is int and value.get("run_id") == run_id)
    try:
        found = read_tail(descriptor, path, kind, n=1, before=os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)
    if not found.lines:
        return None
    value = found.lines[-1].value
    if not kind.accepts(value):
        raise InvalidValue("path", f"{path.name} must end with an event of its run")
    return int(value["seq"])


#: A callable that gets a batch's events after its commit, in the order in which they were appended.
Mirror: TypeAlias = Callable[[Sequence[Event]], Any]

_log = logging.getLogger("lastlight_state.journal")


class Mirrors:
    """The mirrors of one writer. If a mirror fails, nothing else stops.

    The failure is counted, and the first is logged.
    """

    def __init__(self, mirrors: Sequence[Mirror]) -> None:
        self.failures = 0
        self.last_error: str | None = None
        self._mirrors = tuple(mirrors)
        self._logged: set[int] = set()

    def show(self, stored: Sequence[tuple[Entry, Appended]]) -> None:
        """Call each mirror with these events, which are stored."""
        if not (stored and self._mirrors):
            return
        events = [_event(entry, outcome) for entry, outcome in stored]
        for number, mirror in enumerate(self._mirrors):
            try:
                mirror(events)
            except Exception as error:  # noqa: BLE001 - the events are stored
                self.failures += 1
                self.last_error = message_of(error)
                if number not in self._logged:
                    self._logged.add(number)
                    _log.exception("the mirror %r failed; further failures of it are only counted", mirror)


def _event(entry: Entry, outcome: Appended) -> Event:
    payload = codec.decode(entry.row["payload"])
    return Event.of({**entry.row, "seq": outcome.seq, "occurred_at": outcome.occurred_at, "payload": payload})
