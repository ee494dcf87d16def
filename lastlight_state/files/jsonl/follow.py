"""Following a line file: its records are yielded, then new records as they are appended, each once.

Only lines that end in a newline are yielded. If the file was truncated or replaced, a `Reset` comes first, and
everything is yielded again from its beginning.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, Protocol, runtime_checkable

from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.cursor import START, Mark, mark_at
from lastlight_state.files.jsonl.reader import L, LineKind, LineReader

_CLOSED = -1


@runtime_checkable
class Stop(Protocol):
    """An event that ends a follower and times its polls, such as a ``threading.Event``."""

    def is_set(self) -> bool:
        """Return True when the follower must end."""
        ...

    def wait(self, timeout: float) -> object:
        """Wait until the event is set, for at most this many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Reset:
    """Yielded when the file was replaced or truncated: the next line is the first line of the file."""

    reason: Literal["replaced", "shrunk"]


def follow(
    locate: Callable[[], Path | None],
    kind: LineKind[L],
    *,
    after: Mark = START,
    poll: float = 0.5,
    stop: Stop | None = None,
    base: Path | None = None,
) -> Iterator[L | Reset]:
    """Yield the records of a file after the mark ``after``, then new ones, until ``stop`` is set.

    Polls for new records every ``poll`` seconds. ``locate`` returns the file's path, or None while there is no file.
    The iterator ends within one poll of ``stop``; leaving it closes the file. Raises `BackendUnavailable` if the file
    cannot be read.
    """
    stop = stop or threading.Event()
    follower = _Follower(locate, kind, after, base)
    try:
        while not stop.is_set():
            for news in follower.look():
                yield news
                if stop.is_set():
                    return
            stop.wait(poll)
    finally:
        follower.close()


class _Follower(Generic[L]):
    def __init__(self, locate: Callable[[], Path | None], kind: LineKind[L], after: Mark, base: Path | None) -> None:
        self._base = base
        self._locate = locate
        self._kind = kind
        self._mark = after  # the position up to which the file has been read
        self._is_other_file = False  # True if the file that was read has left the path
        self._path = Path()
        self._descriptor = _CLOSED
        self._identity = os.stat_result((0,) * 10)
        self._reader: LineReader[L] | None = None
        self._last_seen = (0, 0)

    def look(self) -> Iterator[L | Reset]:
        """Yield the new records.

        The file is closed before each yield, because the iterator may be abandoned at any time.
        """
        while True:
            if self._reader is None:
                yield from self._begin()
            if self._reader is None:
                return
            is_current = self._is_current()  # checked before reading, so that lines before a change are still read
            yield from self._news(self._reader)
            if self._reader is not None:
                if is_current:
                    return
                self._leave()

    def close(self) -> None:
        """Close the file that is being followed."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def _leave(self) -> None:
        """Leave the open file, so that the file that the path leads to now is opened next."""
        self.close()
        self._reader = None
        self._is_other_file = True

    def _begin(self) -> Iterator[Reset]:
        """Open the file if there is one. Reading begins at the mark if it still holds."""
        path = self._locate()
        if path is None or not self._open_file(path):
            return
        self._path = path
        if self._mark.offset and (self._is_other_file or not self._mark.holds(self._descriptor, path)):
            yield from self._reset("replaced")
            yield from self._begin()
            return
        self._is_other_file = False
        self._last_seen = (0, 0)
        self._identity = os.fstat(self._descriptor)
        self._reader = LineReader(self._descriptor, path, self._kind, start=self._mark.offset)

    def _reset(self, reason: Literal["replaced", "shrunk"]) -> Iterator[Reset]:
        """Yield a `Reset`, and start again from the beginning of the file at the next poll."""
        self.close()
        self._reader = None
        self._mark = START
        self._is_other_file = False
        yield Reset(reason)

    def _open_file(self, path: Path) -> bool:
        """Open the file. Returns False if there is none."""
        try:
            self._descriptor = files.open_to_read(path, base=self._base)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise files.failure(error, path) from error
        return True

    def _is_current(self) -> bool:
        """True if the path still names the open file."""
        try:
            named = self._path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise files.failure(error, self._path) from error
        return os.path.samestat(named, os.fstat(self._descriptor))

    def _news(self, reader: LineReader[L]) -> Iterator[L | Reset]:
        """Yield the lines that were appended. If the bytes before them have changed, yield a `Reset` instead."""
        found = os.fstat(self._descriptor)
        if (found.st_size, found.st_mtime_ns) == self._last_seen:
            return
        self._last_seen = found.st_size, found.st_mtime_ns
        while self._mark.holds(self._descriptor, self._path):
            lines = reader.batch(self._descriptor)
            if lines is None:
                return
            self._mark = mark_at(self._descriptor, self._path, reader.position)
            if lines:
                self.close()
                yield from lines
                if not self._opened_again():
                    self._leave()
                    return
        yield from self._reset("shrunk")

    def _opened_again(self) -> bool:
        """Open the file again after yielding lines. Returns True if the path still leads to the same file."""
        return self._open_file(self._path) and os.path.samestat(self._identity, os.fstat(self._descriptor))
