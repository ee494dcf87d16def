"""Opening line files: modes, missing directories, symbolic links, and errors of the operating system.

New files are 0600 and new directories 0700; modes that exist are kept. Below its base, which is the file's directory
unless given, no symbolic link is followed (see `places`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lastlight_state.errors import BackendUnavailable, StateError, UnsafePath
from lastlight_state.jsonl import places

_APPEND = os.O_RDWR | os.O_APPEND


def failure(error: OSError, path: Path, *, outcome: str = "none") -> StateError:
    """The error of this library for a failed file operation, to be raised ``from`` it."""
    if error.errno == errno.ELOOP:
        return UnsafePath(str(path), "a symbolic link, or a loop of symbolic links")
    return BackendUnavailable(f"{path}: {error.strerror or error}", outcome=outcome, path=str(path), errno=error.errno)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what the operating system refuses in the block as an error of this library."""
    try:
        yield
    except OSError as error:
        raise failure(error, path) from error


def open_to_append(path: Path, *, create: bool, base: Path | None = None) -> tuple[int, list[Path]]:
    """A descriptor that appends and may look back, and the directories whose entries changed by making the file.

    Raises OSError; FileNotFoundError when the file is missing and ``create`` is false.
    """
    try:
        return places.opened_file(path, _APPEND, base=base), []
    except FileNotFoundError:
        if not create:
            raise
    with places.directory(path.parent, base=base, create=True) as (_, changed):
        descriptor = places.opened_file(path, _APPEND | os.O_CREAT, base=base)
    return descriptor, [*changed, path.parent]


def open_to_read(path: Path, *, base: Path | None = None) -> int:
    """A descriptor of a regular file. Raises FileNotFoundError for anything else, and OSError."""
    try:
        return places.opened_file(path, os.O_RDONLY, base=base)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENXIO):  # a directory, a FIFO, a device; a socket
            raise FileNotFoundError(errno.ENOENT, "not a regular file", str(path)) from error
        raise


def make_directory(path: Path, *, base: Path | None = None) -> None:
    """Make the directory if it is missing, and those above it, private to their owner; all on disk. Raises OSError."""
    with places.directory(path, base=base, create=True) as (_, changed):
        for directory in changed:
            sync_directory(directory)


def sync_directory(path: Path) -> None:
    """Bring a directory's entries to disk. Raises OSError."""
    descriptor = places.listable(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
