"""Files of run logs: new files, packed files, and the lock that a writer holds as long as it lives.

A lock file is deleted when it is released. So after taking a lock, a process checks that the path still names the
locked file, and otherwise tries again.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import shutil
import tempfile
import time
import warnings
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, Self, TypeAlias

from lastlight_state.errors import BackendBusy
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.files import PRIVATE_FILE

# New files in an open directory, written whole.

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_new(held: int, name: str, data: bytes, *, sync: bool = True) -> None:
    """Create a file in the directory ``held``, in which no file has this name.

    Raises OSError; then no file was created.
    """
    descriptor = os.open(name, _NEW, PRIVATE_FILE, dir_fd=held)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=held)
        raise
    finally:
        os.close(descriptor)


# Packed logs: gzip files with the bytes of logs of ended runs.

SUFFIX = ".gz"
_BLOCK_BYTES = 256 * 1024
#: An unfinished line. It replaces the unreadable rest of a damaged gzip, so that the log reads as torn there.
_TORN = b"{"


def pack(plain: int, target: int) -> None:
    """Write the bytes of an open log into an open file as gzip, synced to disk. Raises OSError."""
    with open(target, "wb", closefd=False) as raw:
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed, _from_start(plain) as source:
            shutil.copyfileobj(source, packed, _BLOCK_BYTES)
        raw.flush()
        os.fsync(target)


def unpack(packed: int, most: int | None = None) -> int:
    """Unpack a log, and return the descriptor of an unnamed file with its bytes, or the first ``most`` of them.

    Raises OSError.
    """
    with tempfile.TemporaryFile() as plain, _from_start(packed) as raw, gzip.GzipFile(fileobj=raw) as source:
        try:
            rest = most  # read1: bytes before the damage are returned even if they fill no block
            while block := source.read1(_BLOCK_BYTES if rest is None else min(rest, _BLOCK_BYTES)):
                plain.write(block)
                rest = None if rest is None else rest - len(block)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            plain.write(_TORN)
        if not plain.tell():  # a log is never empty
            plain.write(_TORN)
        plain.flush()
        return os.dup(plain.fileno())


def is_same(plain: int, packed: int) -> bool:
    """True if a packed log has exactly the bytes of an open one. Raises OSError."""
    unpacked_again = unpack(packed)
    try:
        return _digest(plain) == _digest(unpacked_again)
    finally:
        os.close(unpacked_again)


def _digest(descriptor: int) -> bytes:
    with _from_start(descriptor) as source:
        return hashlib.file_digest(source, "sha256").digest()  # type: ignore[arg-type]


def _from_start(descriptor: int) -> IO[bytes]:
    """Return a file object at the first byte of the open file. Closing it leaves the descriptor open."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return open(descriptor, "rb", closefd=False)


Liveness: TypeAlias = Literal["held", "free", "unknown"]

_OPEN = os.O_RDWR
_CLOSED = -1
#: The most seconds that a process may hold a lock only to check it.
_LOOKING = 0.2


class LockFile:
    """A lock file that this process holds. ``is_real`` is False if the file system has no locks."""

    def __init__(self, path: Path, descriptor: int, *, is_real: bool) -> None:
        self.is_real = is_real
        self._path = path
        self._descriptor = descriptor
        files.renew_after_fork(self)

    def release(self) -> None:
        """Delete the lock file and release the lock. Calling this again does nothing."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor == _CLOSED:
            return
        try:
            with files.open_directory(self._path.parent, base=files.ROOT) as (held, _):
                if _names(held, self._path.name, descriptor):
                    os.unlink(self._path.name, dir_fd=held)
        except OSError:  # a leftover lock file that nobody holds has no effect
            pass
        finally:
            os.close(descriptor)

    def after_fork(self) -> None:
        """Close the lock file in a forked child. The parent keeps the lock."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def __del__(self) -> None:
        """Release a lock that was not released before, with a warning: its run or session has no writer any more."""
        descriptor = getattr(self, "_descriptor", _CLOSED)
        if descriptor != _CLOSED:
            self._descriptor = _CLOSED
            os.close(descriptor)
            warnings.warn(f"the lock {self._path} was left held", ResourceWarning, source=self, stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire(path: Path, timeout: float, *, sync: bool = True) -> LockFile:
    """Take the lock file, waiting for at most ``timeout`` seconds. Raises `BackendBusy`, `BackendUnavailable`.

    With ``sync``, new directories are synced to disk, because the locked file is stored in one of them.
    """
    end = time.monotonic() + timeout
    try:
        while True:
            with files.open_directory(path.parent, base=files.ROOT, create=True) as (held, changed):
                if sync:
                    for directory in changed:
                        files.sync_directory(directory)
                descriptor = files.opened_file(path, _OPEN | os.O_CREAT, base=files.ROOT)
                try:
                    is_real = files.acquire(descriptor, path, max(0.0, end - time.monotonic()))
                    if _names(held, path.name, descriptor):
                        return LockFile(path, descriptor, is_real=is_real)
                except BaseException:
                    os.close(descriptor)
                    raise
                os.close(descriptor)  # deleted by the former holder
            if time.monotonic() > end:
                raise BackendBusy(f"{path}: others made and removed the lock for {timeout:g} seconds")
    except OSError as error:
        raise files.failure(error, path) from error


def liveness(path: Path) -> Liveness:
    """Return whether a process holds the lock file: ``held``, ``free``, or ``unknown`` if that cannot be determined."""
    try:
        descriptor = files.opened_file(path, os.O_RDONLY, base=files.ROOT)
    except FileNotFoundError:
        return "free"
    except OSError:
        return "unknown"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "unknown"
    else:
        return "free"
    finally:
        os.close(descriptor)


def try_acquire(path: Path, *, sync: bool = False) -> LockFile | None:
    """Return the lock file, held, or None if a process holds it. Waits for processes that only check the lock."""
    try:
        return acquire(path, _LOOKING, sync=sync)
    except BackendBusy:
        return None


def _names(held: int, name: str, descriptor: int) -> bool:
    """True if the name in this directory leads to the open file."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=held, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
