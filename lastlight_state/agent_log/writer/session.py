"""SessionWriter: feeds an agent's events into the log of its session.

A call returns when its lines are with the operating system, or raises; there is no queue behind it. A call that raises
may be repeated as it is: what it changed is taken back. Only a failed write with ``outcome="unknown"``, and a
`feed_many` that went on to another session, may have left lines.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from lastlight_state.agent_log import raw_files
from lastlight_state.agent_log.arguments import Event, OnError, Outcome
from lastlight_state.agent_log.envelopes import Envelope
from lastlight_state.agent_log.tree import LogTree
from lastlight_state.agent_log.writer import display
from lastlight_state.agent_log.writer.lines import Pin, SessionLines
from lastlight_state.clock import Clock
from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendError, InvalidValue, StoreClosed
from lastlight_state.jsonl import forks
from lastlight_state.jsonl.writer import LineWriter, SyncWord

_log = logging.getLogger(__name__)


class Files(NamedTuple):
    """How log files are written."""

    tree: LogTree
    clock: Clock
    sync: SyncWord
    lock_timeout: float


class SessionWriter:
    """Writes the log of one agent session, or of several one after the other. From any thread; a context manager.

    ``lines_written`` counts lines, ``failed_appends`` calls whose failure was reported and not raised.
    """

    def __init__(self, files: Files, lines: SessionLines, on_error: OnError) -> None:
        self.lines_written = 0
        self.failed_appends = 0
        self._files = files
        self._session = lines
        self._on_error = on_error
        self._lock = threading.RLock()
        self._is_closed = False
        self._line_writer: LineWriter | None = None
        self._looked_up: tuple[Pin, Path] | None = None
        forks.renew_after_fork(self)

    @property
    def session_id(self) -> str | None:
        """The session that lines go to; None before one is known."""
        return self._session.pin.session_id if self._session.pin else None

    @property
    def slug(self) -> str | None:
        """Its project directory; None before it is known."""
        return self._session.pin.slug if self._session.pin else None

    @property
    def path(self) -> Path | None:
        """Its log, which exists from the first line on. Raises `UnsafePath` where that would be out of the tree."""
        pin = self._session.pin
        return self._files.tree.path_to_write(pin.slug, pin.session_id) if pin and pin.slug is not None else None

    @property
    def ignored(self) -> Mapping[str, int]:
        """Events without a line, by type: unknown types, malformed events, and what came before a session was known."""
        return Counter(self._session.ignored)

    def feed(self, event: Event) -> int:
        """Write the lines of an event and return how many. Unknown and malformed events are counted in ``ignored``.

        Raises `UnsafePath` and `ReservedName` for a session id that names no log, `InvalidValue` when no place is known
        or a value cannot be written, `PayloadTooLarge` past 64 MiB, `BackendBusy`, `BackendUnavailable`, `StoreClosed`.
        """
        return self.feed_many((event,))

    def feed_many(self, events: Iterable[Event]) -> int:
        """Like `feed`, with one write for all lines that go to one file."""
        with self._lock:
            before = self.lines_written
            with self._unit():
                waiting: list[Envelope] = []
                for event in events:
                    pin = self._session.pin_for(event)
                    if self._session.goes_elsewhere(pin):
                        self._write(waiting)
                        waiting = []
                    self._session.go_to(pin)
                    waiting += map(self._shown, self._session.of_event(event, self._files.clock.now()))
                self._write(waiting)
            return self.lines_written - before

    def append(self, lines: Iterable[Mapping[str, Any]]) -> int:
        """Write lines as they are, and return how many were written (with the prompt, if it is still to come).

        Each has a text ``type`` or ``role``; unknown types are allowed. Errors as in `feed`.
        """
        with self._lock:
            before = self.lines_written
            with self._unit():
                given = [_checked(line) for line in lines]
                self._write(self._session.after_prompt(given, self._files.clock.now()) if given else [])
            return self.lines_written - before

    def finish(self, outcome: Outcome) -> str | None:
        """Close the run: its error and result lines, as far as they are not there. Returns the session id.

        None when no session is known: then nothing is written.
        """
        with self._lock:
            with self._unit():
                self._write(self._session.of_end(outcome, self._files.clock.now()))
            return self.session_id

    def finish_failed(self, fallback_id: str, outcome: Outcome, *, error: str | None = None) -> str:
        """Close a run that may have died before its session was known: then it is logged under ``fallback_id``.

        Returns the session id to store with the execution. Raises `UnsafePath` for a fallback that names no log.
        """
        with self._lock:
            with self._unit():
                self._session.fall_back_to(fallback_id)
                self._write(self._session.of_end(outcome, self._files.clock.now(), error=error))
            return self.session_id or fallback_id

    def sync(self) -> None:
        """Bring what was written to disk now."""
        with self._lock, self._unit():
            if self._line_writer:
                self._line_writer.sync()

    def close(self) -> None:
        """Close the log, without adding anything to it. Closing again does nothing."""
        with self._lock:
            if not self._is_closed:
                with self._unit():
                    self._is_closed = True
                    self._leave_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def after_fork(self) -> None:
        """In a forked child: forget a lock that a thread of the parent may have held."""
        self._lock = threading.RLock()

    @contextmanager
    def _unit(self) -> Iterator[None]:
        """One call: what it changed stays when its lines are written, or their failure is only to be reported."""
        if self._is_closed:
            raise StoreClosed(f"the log writer of session {self.session_id!r} is closed")
        try:
            yield
        except BackendError as error:
            if self._on_error == "raise":
                self._session.restore()
                raise
            self._session.ask_again()
            self.failed_appends += 1
            _log.warning("lines of session %s were not written: %s", self.session_id, error)
        except BaseException:
            self._session.restore()
            raise
        self._session.keep()

    def _write(self, lines: list[Envelope]) -> None:
        if lines:
            data = [dump_line(line) for line in lines]
            self._writer_of(self._known_path()).append(data, end=any(line.get("type") == "result" for line in lines))
            self.lines_written += len(data)
        self._session.keep()

    def _writer_of(self, path: Path) -> LineWriter:
        if self._line_writer is None or self._line_writer.path != path:
            self._leave_file()
            self._line_writer = LineWriter(path, sync=self._files.sync, lock_timeout=self._files.lock_timeout)
        return self._line_writer

    def _leave_file(self) -> None:
        writer, self._line_writer = self._line_writer, None
        if writer:
            writer.close()

    def _known_path(self) -> Path:
        pin = self._session.pin
        if pin is None:
            raise InvalidValue("session_id", "none is known yet")
        if pin.slug is None:
            raise InvalidValue("place", "none was given, and no session event told where the agent works")
        if self._looked_up is None or self._looked_up[0] != pin:
            self._looked_up = pin, self._files.tree.path_to_write(pin.slug, pin.session_id)
        return self._looked_up[1]

    def _shown(self, line: Envelope) -> Envelope:
        """The line with its long tool results cut for display, after the whole texts are kept."""
        content = line["message"]["content"] if line.get("type") == "user" else None
        for block in content if isinstance(content, list) else ():
            cut = display.cut_for_display(block["content"])
            if cut:
                whole = block["content"]
                block["raw_ref"] = raw_files.keep(self._known_path(), whole, cut.units, sync=self._files.sync)
                block["content"] = cut.shown
        return line


def _checked(line: Any) -> Envelope:
    if not isinstance(line, Mapping) or not any(isinstance(line.get(name), str) for name in ("type", "role")):
        raise InvalidValue("line", "an object with a text 'type' or 'role' is needed")
    return dict(line)
