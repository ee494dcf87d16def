"""Folders of private copies. Each is locked while a process that reads it lives; what is not locked was left behind."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

#: How the names of locked folders begin. Each gets such a name after its lock, so that none is met without one.
PREFIX = "lastlight-copy-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make(place: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock. Raises OSError.

    Where a file system has no locks, the folder keeps a name under which nobody looks for what was left.
    """
    folder = Path(tempfile.mkdtemp(prefix="lastlight-", dir=place))
    try:
        held = os.open(folder, _FOLDER)
    except OSError:
        folder.rmdir()
        raise
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX)
        folder = folder.rename(folder.with_name(folder.name.replace("lastlight-", PREFIX, 1)))
    return folder, held


def remove(folder: Path, held: int, maker: int) -> None:
    """Remove a folder and its lock; not in a forked child, whose parent may still read it."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(held)


def remove_left(place: str) -> None:
    """Remove the folders of this user that killed processes left in the place. What cannot be removed stays."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                _remove_if_left(entry.path)


def _remove_if_left(folder: str) -> None:
    with suppress(OSError):  # a link, another's, gone
        held = os.open(folder, _FOLDER)
        try:
            if os.fstat(held).st_uid != os.geteuid():
                return
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(held):  # noqa: PTH208 - of the folder that is locked, not of a path
                os.unlink(name, dir_fd=held)
            os.rmdir(folder)  # noqa: PTH106 - only an empty one goes, whatever stands there now
        finally:
            os.close(held)
