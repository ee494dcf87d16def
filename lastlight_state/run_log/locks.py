"""Lock files: one is held as long as a writer lives, and the kernel releases it when its process dies.

A lock file is removed when it is released. So whoever gets a lock looks whether the path still names the file that it
has locked, and tries again where it does not.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Literal, Self, TypeAlias

from lastlight_state.errors import BackendBusy
from lastlight_state.jsonl import files, forks, lock, places

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
        forks.renew_after_fork(self)

    def release(self) -> None:
        """Remove the file and give the lock back. Again does nothing."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor == _CLOSED:
            return
        try:
            with places.directory(self._path.parent, base=places.ROOT) as (held, _):
                if _names(held, self._path.name, descriptor):
                    os.unlink(self._path.name, dir_fd=held)
        except OSError:  # a leftover lock file that nobody holds says the same as none
            pass
        finally:
            os.close(descriptor)

    def after_fork(self) -> None:
        """In a forked child: let go of the parent's lock, which stays the parent's."""
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

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
            with places.directory(path.parent, base=places.ROOT, create=True) as (held, changed):
                if sync:
                    for directory in changed:
                        files.sync_directory(directory)
                descriptor = places.opened_file(path, _OPEN | os.O_CREAT, base=places.ROOT)
                try:
                    is_real = lock.acquire(descriptor, path, max(0.0, end - time.monotonic()))
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
    """Whether somebody holds the lock file. ``unknown`` where that cannot be told."""
    try:
        descriptor = places.opened_file(path, os.O_RDONLY, base=places.ROOT)
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
    """Whether the name in this directory is the open file."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=held, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
