"""Follow a line file: its records, then new ones as they come, each once.

Only lines that end in a newline are delivered. If the file was shrunk or replaced, a `Reset` says that everything is
delivered again from its beginning.
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
    """Tells when to stop, and waits between two looks; a ``threading.Event``, for example."""

    def is_set(self) -> bool:
        """Return whether to stop."""
        ...

    def wait(self, timeout: float) -> object:
        """Wait until it is set, at most for this many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Reset:
    """The file was replaced or shrunk: the next line is its first."""

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
    """Yield the records of a file after ``after``, until ``stop``; looks for new ones every ``poll`` seconds.

    ``locate`` returns the file, or None as long as there is none. Ends within one poll of ``stop``;
    leaving the iterator closes the file. Raises `BackendUnavailable` when it cannot be read.
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
        self._mark = after  # how far the file has been read
        self._is_other_file = False  # whether the one that was read is gone
        self._path = Path()
        self._descriptor = _CLOSED
        self._identity = os.stat_result((0,) * 10)
        self._reader: LineReader[L] | None = None
        self._last_seen = (0, 0)

    def look(self) -> Iterator[L | Reset]:
        """Yield the new records. The file is closed meanwhile: the iterator may be left between two, and kept."""
        while True:
            if self._reader is None:
                yield from self._begin()
            if self._reader is None:
                return
            is_current = self._is_current()  # looked up before reading, so that what came before the change is read
            yield from self._news(self._reader)
            if self._reader is not None:
                if is_current:
                    return
                self._leave()

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def _leave(self) -> None:
        """Go on with the file that has the path now."""
        self.close()
        self._reader = None
        self._is_other_file = True

    def _begin(self) -> Iterator[Reset]:
        """Open the file if there is one, at the mark if that still holds."""
        path = self._locate()
        if path is None or not self._opened(path):
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
        """Say that everything comes again. The next look begins with it."""
        self.close()
        self._reader = None
        self._mark = START
        self._is_other_file = False
        yield Reset(reason)

    def _opened(self, path: Path) -> bool:
        """Open the file; returns whether there is one."""
        try:
            self._descriptor = files.open_to_read(path, base=self._base)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise files.failure(error, path) from error
        return True

    def _is_current(self) -> bool:
        """Return whether the path still names the open file."""
        try:
            named = self._path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise files.failure(error, self._path) from error
        return os.path.samestat(named, os.fstat(self._descriptor))

    def _news(self, reader: LineReader[L]) -> Iterator[L | Reset]:
        """Yield the lines that came, after a `Reset` if the bytes that were read are not there any more."""
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
        """Open the file that was closed to hand out lines; returns whether it is still the one of that path."""
        return self._opened(self._path) and os.path.samestat(self._identity, os.fstat(self._descriptor))
