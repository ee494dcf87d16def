"""Opening line files: modes, missing directories, symbolic links, and errors of the operating system.

New files are 0600 and new directories 0700; modes that exist are kept. A symbolic link in the last component of a path
is never followed.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from lastlight_state.errors import BackendUnavailable, StateError, UnsafePath

_COMMON = os.O_CLOEXEC | os.O_NOFOLLOW
_APPEND = os.O_RDWR | os.O_APPEND | _COMMON
_READ = os.O_RDONLY | os.O_NONBLOCK | _COMMON  # a FIFO of that name must not stop the reader


def failure(error: OSError, path: Path, *, outcome: str = "none") -> StateError:
    """The error of this library for a failed file operation, to be raised ``from`` it."""
    if error.errno == errno.ELOOP:
        return UnsafePath(str(path), "a symbolic link, or behind a loop of them")
    return BackendUnavailable(f"{path}: {error.strerror or error}", outcome=outcome, path=str(path), errno=error.errno)


def open_to_append(path: Path, *, create: bool) -> tuple[int, list[Path]]:
    """A descriptor that appends and may look back, and the directories whose entries changed by making the file.

    Raises OSError; FileNotFoundError when the file is missing and ``create`` is false.
    """
    try:
        return os.open(path, _APPEND), []
    except FileNotFoundError:
        if not create:
            raise
    changed = make_directories(path.parent)
    descriptor = os.open(path, _APPEND | os.O_CREAT, 0o600)
    return descriptor, [*changed, path.parent]


def open_to_read(path: Path) -> int:
    """A descriptor of a regular file. Raises OSError, FileNotFoundError for what is no regular file."""
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path))
    return descriptor


def make_directories(path: Path) -> list[Path]:
    """Make what is missing of a directory path, private to its owner. Returns the directories that got an entry."""
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
    return [directory.parent for directory in missing]


def sync_directory(path: Path) -> None:
    """Bring a directory's entries to disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
