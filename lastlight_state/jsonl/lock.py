"""The advisory lock of an append, under which a writer looks at the file's end and writes behind it.

It is ``flock``: it belongs to the open file, so it separates threads, writers and processes, and the kernel releases it
when its holder dies.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import time
from pathlib import Path

from lastlight_state.errors import BackendBusy

LOCK_TIMEOUT = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_NO_LOCKS = frozenset({errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL})
_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB

_log = logging.getLogger(__name__)
_without_locks: set[Path] = set()


def acquire(descriptor: int, path: Path, timeout: float) -> bool:
    """Take the lock, waiting for at most ``timeout`` seconds. Returns False if the file system has no locks.

    Raises `BackendBusy` when the time is up, OSError when the file cannot be locked for another reason.
    """
    try:
        fcntl.flock(descriptor, _EXCLUSIVE)
    except BlockingIOError as error:
        _wait(descriptor, path, timeout, error)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _report_no_locks(path, error)
        return False
    return True


def release(descriptor: int) -> None:
    """Give the lock back."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _wait(descriptor: int, path: Path, timeout: float, error: BlockingIOError) -> None:
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE)
        try:
            return fcntl.flock(descriptor, _EXCLUSIVE)
        except BlockingIOError as latest:
            error = latest
    raise BackendBusy(f"{path}: locked by another writer for more than {timeout:g} s", path=str(path)) from error


def _report_no_locks(path: Path, error: OSError) -> None:
    if path.parent not in _without_locks:
        _without_locks.add(path.parent)
        _log.warning(
            "%s: this file system has no locks (%s); lines are appended without one", path.parent, error.strerror
        )
