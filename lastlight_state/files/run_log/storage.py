"""Files of run logs: new ones, packed ones, and the lock that a writer holds as long as it lives.

A lock file is removed when it is released. So whoever gets a lock looks whether the path still names the file that it
has locked, and tries again where it does not.
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
    """Make a file in the directory ``held``, which must not have one of this name.

    Raises OSError; then there is no such file.
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


# Packed logs: gzip files that hold the bytes of logs that have ended.

SUFFIX = ".gz"
_BLOCK_BYTES = 256 * 1024
#: Begins a line that never ends. It stands where a damaged gzip cannot be read on, so that the log reads as torn there.
_TORN = b"{"


def pack(plain: int, target: int) -> None:
    """Write the bytes of an open log into an open file as gzip, on disk when this returns. Raises OSError."""
    with open(target, "wb", closefd=False) as raw:
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed, _from_start(plain) as source:
            shutil.copyfileobj(source, packed, _BLOCK_BYTES)
        raw.flush()
        os.fsync(target)


def unpacked(packed: int, most: int | None = None) -> int:
    """Return a descriptor of an unnamed file with the bytes of a packed log, or the first ``most`` of them.

    Raises OSError.
    """
    with tempfile.TemporaryFile() as plain, _from_start(packed) as raw, gzip.GzipFile(fileobj=raw) as source:
        try:
            rest = most  # read1: what stands before the damage is not held back until a block is full
            while block := source.read1(_BLOCK_BYTES if rest is None else min(rest, _BLOCK_BYTES)):
                plain.write(block)
                rest = None if rest is None else rest - len(block)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            plain.write(_TORN)
        if not plain.tell():  # no log is empty
            plain.write(_TORN)
        plain.flush()
        return os.dup(plain.fileno())


def is_same(plain: int, packed: int) -> bool:
    """Return whether a packed log holds exactly the bytes of an open one. Raises OSError."""
    unpacked_again = unpacked(packed)
    try:
        return _digest(plain) == _digest(unpacked_again)
    finally:
        os.close(unpacked_again)


def _digest(descriptor: int) -> bytes:
    with _from_start(descriptor) as source:
        return hashlib.file_digest(source, "sha256").digest()  # type: ignore[arg-type]


def _from_start(descriptor: int) -> IO[bytes]:
    """Return the open file from its first byte. It stays open when what is returned is closed."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    return open(descriptor, "rb", closefd=False)


Liveness: TypeAlias = Literal["held", "free", "unknown"]

_OPEN = os.O_RDWR
_CLOSED = -1
#: How long somebody who looks may hold a lock, in seconds.
_LOOKING = 0.2


class LockFile:
    """A held lock file. ``is_real`` is False where the file system has no locks."""

    def __init__(self, path: Path, descriptor: int, *, is_real: bool) -> None:
        self.is_real = is_real
        self._path = path
        self._descriptor = descriptor
        files.renew_after_fork(self)

    def release(self) -> None:
        """Remove the file and give the lock back. Again does nothing."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor == _CLOSED:
            return
        try:
            with files.open_directory(self._path.parent, base=files.ROOT) as (held, _):
                if _names(held, self._path.name, descriptor):
                    os.unlink(self._path.name, dir_fd=held)
        except OSError:  # a leftover lock file that nobody holds says the same as none
            pass
        finally:
            os.close(descriptor)

    def after_fork(self) -> None:
        """Let go, in a forked child, of the parent's lock, which stays the parent's."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def __del__(self) -> None:
        """Let go of a lock that was left held, and warn: its run or session has no writer any more."""
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
    """Hold the lock file, waiting for at most ``timeout`` seconds. Raises `BackendBusy`, `BackendUnavailable`.

    With ``sync``, directories that are made for it are on disk: what is locked is stored in one of them.
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
                os.close(descriptor)  # removed by the one who held it before
            if time.monotonic() > end:
                raise BackendBusy(f"{path}: others made and removed the lock for {timeout:g} seconds")
    except OSError as error:
        raise files.failure(error, path) from error


def liveness(path: Path) -> Liveness:
    """Return whether somebody holds the lock file. ``unknown`` where that cannot be told."""
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
    """Hold the lock file, or None if another does. Waits for those who only look whether it is held."""
    try:
        return acquire(path, _LOOKING, sync=sync)
    except BackendBusy:
        return None


def _names(held: int, name: str, descriptor: int) -> bool:
    """Return whether the name in this directory is the open file."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=held, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
