"""LineWriter: appends whole lines to a file that many writers may share.

A line is always either whole or recognisably torn, and a torn line never damages the next one. An append is one lock,
one check of the path, one write, one unlock. While it holds the lock, the writer checks whether the file ends in the
middle of a line, because an earlier writer was killed or the disk was full. In that case the append begins with a
newline: nothing is ever truncated or overwritten. Without the lock, a second writer could check before the first
writer's line is torn, and then append to the torn line. If the caller guarantees a single writer, the writer does not
release the lock, and an append is one check and one write.

If a process is killed, no line of an append that returned is lost. If power fails, the lines of the last seconds may be
lost (see `SyncWord`). Network file systems are not supported.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias, get_args

from lastlight_state.errors import BackendUnavailable, InvalidValue, PayloadTooLarge, StoreClosed
from lastlight_state.files.jsonl import files
from lastlight_state.locks import Lock
from lastlight_state.reprs import repr_of

#: When lines are synced to disk: never by the library, at ends and on request, or after each append. In all cases the
#: operating system has them when an append returns. ``end`` and ``record`` also sync the name of a new file.
SyncWord: TypeAlias = Literal["os", "end", "record"]

SYNC_WORDS: tuple[str, ...] = get_args(SyncWord)
MAX_LINE_BYTES = 64 * 1024 * 1024
_MOST_REOPENINGS = 20
_NEWLINE = b"\n"
_CLOSED = -1


class LineWriter:
    """Appends to one line file. Threads may share a writer; a forked child opens the file again.

    The file is opened at the first append, and opened again when its path names another file. A missing file is created
    again with its directories (``on_removed="create"``), or raises `BackendUnavailable` (``"raise"``).

    Below ``base`` (the file's directory unless given) no component may be a symbolic link, whenever the file is opened.
    A link that appears later raises `UnsafePath`, and nothing is written through it.

    A writer that is garbage-collected without being closed closes its file, with a `ResourceWarning`.

    ``check`` is called with the descriptor of each opened file, and raises for a file that must not be written.

    With ``keeps_lock`` the lock is taken with the first line and released when the writer is closed: no other writer
    appends meanwhile. Use it if the caller permits one writer at a time: it saves two system calls for each append.
    """

    def __init__(
        self,
        path: Path,
        *,
        sync: SyncWord = "end",
        on_removed: Literal["create", "raise"] = "create",
        max_line_bytes: int = MAX_LINE_BYTES,
        lock_timeout: float = files.LOCK_TIMEOUT,
        base: Path | None = None,
        check: Callable[[int], object] | None = None,
        keeps_lock: bool = False,
    ) -> None:
        if sync not in SYNC_WORDS:
            raise InvalidValue("sync", f"{repr_of(sync, 80)} is unknown", permitted=SYNC_WORDS)
        self.path = path
        self._name = os.fspath(path)
        self._base = base
        self._check = check
        self._sync = sync
        self._create = on_removed == "create"
        self._max_line_bytes = max_line_bytes
        self._lock_timeout = lock_timeout
        self._mutex = Lock()
        self._closed = False
        self._descriptor = _CLOSED
        self._keeps_lock = keeps_lock
        self._is_locked = False  # only used for a lock that is kept
        self._has_locks = True
        self._device = self._inode = 0
        self._size_left = -1  # the file's size after our last append, so its last byte is our newline
        files.renew_after_fork(self)

    def append(self, lines: Sequence[bytes], *, end: bool = False) -> None:
        """Append the lines, each with a newline, in one ``write``. An empty sequence does nothing.

        ``end`` marks lines that ``sync="end"`` syncs to disk. Raises `PayloadTooLarge` and `InvalidValue` before
        anything is written, `BackendBusy` if another writer holds the lock for 10 s, `BackendUnavailable` if the file
        cannot be opened or written (``outcome`` says whether a part may be in the file), `UnsafePath` for a symbolic
        link, and `StoreClosed`. The writer stays usable.
        """
        data = self._check_and_join(lines)
        with self._mutex:
            self._refuse_if_closed()
            if not data:
                return
            try:
                self._put(data, self._lock())
            finally:
                if not self._keeps_lock:
                    self._unlock()
            if self._sync == "record" or (end and self._sync == "end"):
                self._flush()

    def seal(self) -> bool:
        """End a last line that has no newline. Returns True if there was such a line. May be repeated.

        Errors as in `append`.
        """
        with self.hold_lock() as size:
            is_open = size > 0 and not self._ends_in_newline(size)
            if is_open:
                self._put(b"", size)
        if is_open and self._sync != "os":
            self.sync()
        return is_open

    @contextmanager
    def hold_lock(self) -> Iterator[int]:
        """Lock the file against all other writers in the block. Yields the file's size. Errors as in `append`."""
        with self._mutex:
            self._refuse_if_closed()
            try:
                yield self._lock()
            finally:
                if not self._keeps_lock:
                    self._unlock()

    def sync(self) -> None:
        """Sync all appended lines to disk now (fsync)."""
        with self._mutex:
            self._refuse_if_closed()
            self._flush()

    def close(self) -> None:
        """Close the file, syncing it to disk unless ``sync="os"``. Closing again does nothing."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            try:
                if self._sync != "os":
                    self._flush()
            finally:
                if self._is_locked:  # explicitly: a child forked just now shares the descriptor and its lock
                    self._unlock()
                self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        """Close a file that was left open, and warn like Python's own files. Does not sync the file."""
        if getattr(self, "_descriptor", _CLOSED) != _CLOSED:
            warnings.warn(f"a writer of {self.path} was left open", ResourceWarning, source=self, stacklevel=2)
            self._let_go()

    def after_fork(self) -> None:
        """Drop the descriptor and mutex in a forked child, because the file lock belongs to the parent."""
        self._mutex = Lock()
        self._let_go()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.path}: the writer is closed")

    def _check_and_join(self, lines: Sequence[bytes]) -> bytes:
        for line in lines:
            size = line.find(_NEWLINE)
            if size != len(line) - 1 or size < 1:
                raise InvalidValue("line", "must be one line, which ends in a newline")
            if size > self._max_line_bytes:
                raise PayloadTooLarge("line", limit=self._max_line_bytes, actual=size)
        return lines[0] if len(lines) == 1 else b"".join(lines)

    def _lock(self) -> int:
        """Lock the file that the path leads to now, and return its size."""
        for _ in range(_MOST_REOPENINGS):
            try:
                if self._descriptor == _CLOSED:
                    self._open()
                if not self._is_locked:
                    self._has_locks = files.acquire(self._descriptor, self.path, self._lock_timeout)
                    self._is_locked = self._keeps_lock and self._has_locks
                found = os.lstat(self._name)
            except FileNotFoundError as error:
                self._let_go()
                if not self._create:
                    raise files.failure(error, self.path) from error
                continue
            except OSError as error:
                self._let_go()
                raise files.failure(error, self.path) from error
            if found.st_ino == self._inode and found.st_dev == self._device:
                return found.st_size
            self._let_go()
        raise BackendUnavailable(f"{self.path}: replaced again and again", path=str(self.path))

    def _unlock(self) -> None:
        self._is_locked = False
        if self._has_locks and self._descriptor != _CLOSED:
            files.release(self._descriptor)

    def _open(self) -> None:
        self._descriptor, changed = files.open_to_append(self.path, create=self._create, base=self._base)
        found = os.fstat(self._descriptor)
        self._device, self._inode = found.st_dev, found.st_ino
        if self._check is not None:
            try:
                self._check(self._descriptor)
            except BaseException:
                self._let_go()
                raise
        if self._sync != "os":
            for directory in changed:
                files.sync_directory(directory)

    def _put(self, data: bytes, size: int) -> None:
        written = 0
        try:
            if size not in (0, self._size_left) and not self._ends_in_newline(size):
                data = _NEWLINE + data
            self._size_left = -1
            written = os.write(self._descriptor, data)
            while written < len(data):  # on a full disk, a write is partial and the next one fails
                written += os.write(self._descriptor, memoryview(data)[written:])
        except OSError as error:
            raise files.failure(error, self.path, outcome="unknown" if written else "none") from error
        self._size_left = size + len(data)

    def _ends_in_newline(self, size: int) -> bool:
        try:
            return os.pread(self._descriptor, 1, size - 1) == _NEWLINE
        except OSError as error:
            raise files.failure(error, self.path) from error

    def _flush(self) -> None:
        if self._descriptor == _CLOSED:
            return
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise files.failure(error, self.path, outcome="unknown") from error

    def _let_go(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        self._is_locked, self._size_left = False, -1
        if descriptor != _CLOSED:
            os.close(descriptor)
