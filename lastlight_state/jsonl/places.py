"""Opening files step by step: no component below a base is ever followed where it is a symbolic link.

A check of a path and the opening of it are two moments, and between them somebody who may write a directory can put a
link in its place. So each component is opened by itself, relative to the descriptor of the one before it, and a link
among them is refused (``ELOOP``). Links in the base are the operator's own and are followed.

What is opened is a regular file or an error: a FIFO or device of that name neither stops its opener nor gets lines.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
#: The base of a `real` path: no component of it may be a link when it is opened.
ROOT = Path("/")
_NAME_BYTES = 255
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def component_problem(name: str) -> str | None:
    """Why a text cannot be one component of a path; None if it can."""
    if name in {"", ".", ".."}:
        return f"{name!r} is not a name"
    if "/" in name or "\0" in name:
        return "a separator or NUL in a name"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "a lone surrogate in a name"
    return f"{size} bytes, more than the limit of {_NAME_BYTES}" if size > _NAME_BYTES else None


def real(path: Path) -> Path:
    """The absolute path without any link, as far as it exists: a path to open with the base `ROOT`."""
    return Path(os.path.realpath(path))


def opened_file(path: Path, flags: int, *, base: Path | None = None) -> int:
    """A descriptor of a regular file. Raises OSError: ``ELOOP`` for a link below the base, ``EINVAL`` for no file.

    The base is the file's directory unless given, so that only a link in its place is refused.
    """
    with directory(path.parent, base=base) as (parent, _):
        descriptor = os.open(path.name, flags | _FILE, PRIVATE_FILE, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


@contextmanager
def directory(path: Path, *, base: Path | None = None, create: bool = False) -> Iterator[tuple[int, list[Path]]]:
    """A descriptor of the directory, for use as ``dir_fd``, and the directories that got an entry by making it.

    Missing ones are made private to their owner with ``create``. Raises OSError.
    """
    at = base or path
    changed: list[Path] = []
    if base is None and create:
        at = _existing(path)
    held = os.open(at, _STEP & ~os.O_NOFOLLOW)
    try:
        for name in path.relative_to(at).parts:
            inner, made = _step(held, name, at / name, create=create)
            left, held = held, inner  # before it is closed: an interrupt in between must not close it twice
            os.close(left)
            if made:
                changed.append(at)
            at = at / name
        yield held, changed
    finally:
        os.close(held)


def listable(path: Path, *, base: Path | None = None) -> int:
    """A descriptor of the directory whose names can be listed and whose entries can be brought to disk."""
    with directory(path, base=base) as (held, _):
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)


def sync(held: int) -> None:
    """Bring the entries of a directory that was opened here to disk."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _existing(path: Path) -> Path:
    """The nearest directory above the path that is there."""
    while not os.path.lexists(path):
        path = path.parent
    return path


def _step(held: int, name: str, path: Path, *, create: bool) -> tuple[int, bool]:
    """The directory of this name, and whether it was made."""
    try:
        return _opened(held, name, path), False
    except FileNotFoundError:
        if not create:
            raise
    made = False
    try:
        os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=held)
        made = True
    except FileExistsError:  # made by another meanwhile
        pass
    return _opened(held, name, path), made


def _opened(held: int, name: str, path: Path) -> int:
    try:
        return os.open(name, _STEP, dir_fd=held)
    except NotADirectoryError as error:
        found = os.stat(name, dir_fd=held, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, "a symbolic link", str(path)) from None
        raise NotADirectoryError(error.errno, error.strerror, str(path)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
