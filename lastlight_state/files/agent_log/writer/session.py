"""SessionWriter: writes an agent's events to the log of its session.

A call returns after its lines were handed to the operating system, or raises; there is no queue. A call that raises can
be repeated unchanged, because its changes are undone. Lines of a failed call may stay in a file in two cases: after a
write error with ``outcome="unknown"``, and after a `feed_many` that had begun lines of another session.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from lastlight_state.clock import Clock
from lastlight_state.codec import dump_line
from lastlight_state.db.gate import check_arguments, guard_arguments
from lastlight_state.errors import BackendError, InvalidValue, StoreClosed
from lastlight_state.files.agent_log import raw
from lastlight_state.files.agent_log.arguments import Event, OnError, Outcome
from lastlight_state.files.agent_log.events import Envelope
from lastlight_state.files.agent_log.tree import LogTree
from lastlight_state.files.agent_log.writer.lines import Pin, SessionLines
from lastlight_state.files.jsonl import files, files as jsonl_files
from lastlight_state.files.jsonl.writer import LineWriter, SyncWord
from lastlight_state.locks import RLock

# The length limit of displayed tool results.
#
# Lengths are in UTF-16 code units, as in earlier programs, so that a cut text has the same bytes as theirs. The whole
# text is stored beside the log.

CAP_UNITS = 65_536
_UNIT_BYTES = 2


class Cut(NamedTuple):
    """A cut text, and the whole text's length in UTF-16 code units."""

    shown: str
    units: int


def cut_for_display(text: str) -> Cut | None:
    """Return the shortened form of a text above the limit; None for a shorter text.

    A character beyond U+FFFF counts as two units and is never split. Instead, one unit less is shown.
    """
    if len(text) <= CAP_UNITS // 2 or (len(text) <= CAP_UNITS and text.isascii()):
        return None
    data = text.encode("utf-16-le", "surrogatepass")
    units = len(data) // _UNIT_BYTES
    if units <= CAP_UNITS:
        return None
    kept = CAP_UNITS - (_is_high(data, CAP_UNITS - 1) and _is_low(data, CAP_UNITS))
    shown = data[: kept * _UNIT_BYTES].decode("utf-16-le", "surrogatepass")
    return Cut(f"{shown}\n…[truncated {units - kept} chars]", units)


def _is_high(data: bytes, unit: int) -> bool:
    return 0xD8 <= data[unit * _UNIT_BYTES + 1] <= 0xDB


def _is_low(data: bytes, unit: int) -> bool:
    return 0xDC <= data[unit * _UNIT_BYTES + 1] <= 0xDF


_log = logging.getLogger(__name__)


class Files(NamedTuple):
    """The settings for writing log files."""

    tree: LogTree
    clock: Clock
    sync: SyncWord
    lock_timeout: float


class SessionWriter:
    """Writes the log of one agent session, or of several one after the other. Thread-safe; a context manager.

    ``lines_written`` counts lines; ``failed_appends`` counts calls whose failure was logged instead of raised.
    """

    def __init__(self, files: Files, lines: SessionLines, on_error: OnError) -> None:
        self.lines_written = 0
        self.failed_appends = 0
        self._files = files
        self._session = lines
        self._on_error = on_error
        self._lock = RLock()
        self._is_closed = False
        self._has_begun = False
        self._line_writer: LineWriter | None = None
        self._looked_up: tuple[Pin, Path] | None = None
        jsonl_files.renew_after_fork(self)

    @property
    def session_id(self) -> str | None:
        """Return the id of the session that lines are written to, or None until it is known."""
        return self._session.pin.session_id if self._session.pin else None

    @property
    def slug(self) -> str | None:
        """Return the project directory of the session; None until it is known."""
        return self._session.pin.slug if self._session.pin else None

    @property
    def path(self) -> Path | None:
        """Return the log file, which exists from the first line on.

        Raises `UnsafePath` if it would be outside the tree.
        """
        pin = self._session.pin
        return self._files.tree.path_to_write(pin.slug, pin.session_id) if pin and pin.slug is not None else None

    @property
    def ignored(self) -> Mapping[str, int]:
        """Return how many events produced no line, by type: unknown, malformed, or before a session was known."""
        return Counter(self._session.ignored)

    def feed(self, event: Event) -> int:
        """Write the lines of an event.

        Returns their number. Unknown and malformed events are counted in ``ignored``.

        NaN and infinities are written as null, NUL and lone surrogates as escapes. A call that raised can be
        repeated.

        Raises `UnsafePath` and `ReservedName` for a session id that cannot name a log, `InvalidValue` if no place is
        known or a value cannot be written, such as two keys with the same text, `PayloadTooLarge` beyond 64 MiB,
        `BackendBusy`, `BackendUnavailable`, `StoreClosed`.
        """
        return self.feed_many((event,))

    @guard_arguments
    def feed_many(self, events: Iterable[Event]) -> int:
        """Write several events, each as `feed` does. All lines for one file are written at once."""
        with self._lock:
            before = self.lines_written
            with self._unit():
                for batch in self._session.take(events, self._files.clock):
                    self._write([self._shorten_results(line) for line in batch])
            return self.lines_written - before

    @guard_arguments
    def append(self, lines: Iterable[Mapping[str, Any]]) -> int:
        """Write lines unchanged, after the prompt if that is not written yet. Returns the number of written lines.

        Each line must have a text ``type`` or ``role``; unknown types are allowed. Errors as in `feed`.
        """
        with self._lock:
            before = self.lines_written
            with self._unit():
                given = [_check_line(line) for line in lines]
                self._write(self._session.after_prompt(given, self._files.clock.now()) if given else [])
            return self.lines_written - before

    @check_arguments
    def finish(self, outcome: Outcome) -> str | None:
        """Write the missing error and result lines that end the run. Returns the session id.

        Returns None and writes nothing if no session is known.
        """
        with self._lock:
            with self._unit():
                self._write(self._session.of_end(outcome, self._files.clock.now()))
            return self.session_id

    @check_arguments
    def finish_failed(self, fallback_id: str, outcome: Outcome, *, error: str | None = None) -> str:
        """Finish a run that may have died before its session was known. Then its session id is ``fallback_id``.

        Otherwise like `finish`. Returns the session id to store with the execution. Raises `UnsafePath` if
        ``fallback_id`` cannot name a log.
        """
        with self._lock:
            with self._unit():
                self._session.fall_back_to(fallback_id)
                self._write(self._session.of_end(outcome, self._files.clock.now(), error=error))
            return self.session_id or fallback_id

    def sync(self) -> None:
        """Sync the written lines to disk now (fsync)."""
        with self._lock, self._unit():
            if self._line_writer:
                self._line_writer.sync()

    def close(self) -> None:
        """Write the prompt if no line was written, and close the log file. Closing again does nothing.

        The prompt needs a session id and a place. If it cannot be written, the file is closed all the same.
        """
        with self._lock:
            if self._is_closed:
                return
            try:
                with self._unit():
                    self._write([] if self._has_begun else self._session.unwritten_prompt(self._files.clock.now()))
            finally:
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
        """Replace the lock in a forked child, because a thread of the parent may have held it."""
        self._lock = RLock()

    @contextmanager
    def _unit(self) -> Iterator[None]:
        """Run one call of the writer. Its changes are kept if its lines were written, and undone otherwise."""
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
            self._has_begun = True  # also if the first write fails: its caller gets the error
            data = [dump_line(line) for line in lines]
            self._writer_of(self._known_path()).append(data, end=any(line.get("type") == "result" for line in lines))
            self.lines_written += len(data)
        self._session.keep()

    def _writer_of(self, path: Path) -> LineWriter:
        if self._line_writer is None or self._line_writer.path != path:
            self._leave_file()
            self._line_writer = LineWriter(
                path, sync=self._files.sync, lock_timeout=self._files.lock_timeout, base=files.ROOT
            )
        return self._line_writer

    def _leave_file(self) -> None:
        writer, self._line_writer = self._line_writer, None
        if writer:
            writer.close()

    def _known_path(self) -> Path:
        pin = self._session.pin
        if pin is None:
            raise InvalidValue("session_id", "must be given: no event has told it yet")
        if pin.slug is None:
            raise InvalidValue("place", "must be given: no session event has told where the agent works")
        if self._looked_up is None or self._looked_up[0] != pin:
            self._looked_up = pin, self._files.tree.path_to_write(pin.slug, pin.session_id)
        return self._looked_up[1]

    def _shorten_results(self, line: Envelope) -> Envelope:
        """Return the line with long tool results shortened. Their complete texts are first stored in separate files."""
        content = line["message"]["content"] if line.get("type") == "user" else None
        for block in content if isinstance(content, list) else ():
            cut = cut_for_display(block["content"])
            if cut:
                whole = block["content"]
                block["raw_ref"] = raw.keep(self._known_path(), whole, cut.units, sync=self._files.sync)
                block["content"] = cut.shown
        return line


def _check_line(line: Any) -> Envelope:
    if not isinstance(line, Mapping) or not any(isinstance(line.get(name), str) for name in ("type", "role")):
        raise InvalidValue("line", "must be an object with a text 'type' or 'role'")
    return dict(line)
