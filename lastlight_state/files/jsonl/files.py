"""Opening line files: modes, missing directories, symbolic links, and errors of the operating system.

New files are 0600 and new directories 0700; modes that exist are kept. Below its base, which is the file's directory
unless given, no symbolic link is followed (see `places`).
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from lastlight_state import special_files
from lastlight_state.errors import BackendBusy, BackendUnavailable, StateError, UnsafePath

# The advisory lock of an append, under which a writer looks at the file's end and writes behind it.
#
# It is ``flock``: it belongs to the open file, so it separates threads, writers and processes, and the kernel releases
# it when its holder dies.

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


# Objects that must not be shared between a parent and its forked child.
#
# A child inherits locks that a thread of its parent may have held, and descriptors whose file locks count as the
# parent's own. Objects registered here are told in the child, before any of its code runs.


class Inherited(Protocol):
    """An object with something to renew."""

    def after_fork(self) -> None:
        """Called in the child, which has one thread at that time."""
        ...


_objects: WeakSet[Inherited] = WeakSet()


def renew_after_fork(thing: Inherited) -> None:
    """Have ``thing.after_fork()`` called in every child forked while it lives."""
    _objects.add(thing)


def _renew() -> None:
    for thing in tuple(_objects):
        thing.after_fork()


os.register_at_fork(after_in_child=_renew)


# Opening files step by step: no component below a base is ever followed where it is a symbolic link.
#
# A check of a path and the opening of it are two moments, and between them somebody who may write a directory can put
# a link in its place. So each component is opened by itself, relative to the descriptor of the one before it, and a
# link among them is refused (``ELOOP``). Links in the base are the operator's own and are followed.
#
# What is opened is a regular file or an error: a FIFO or device of that name neither stops its opener nor gets lines.

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
#: The base of a `real` path: no component of it may be a link when it is opened.
ROOT = Path("/")
_NAME_BYTES = 255
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def component_problem(name: str) -> str | None:
    """Return why a text cannot be one component of a path; None if it can."""
    if name in {"", ".", ".."}:
        return f"{name!r} is not a name"
    if "/" in name or "\0" in name:
        return "must not contain a separator or NUL in a name"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "must not contain a lone surrogate in a name"
    return f"{size} bytes, more than the limit of {_NAME_BYTES}" if size > _NAME_BYTES else None


def real(path: Path) -> Path:
    """Return the absolute path without any link, as far as it exists: a path to open with the base `ROOT`."""
    return Path(os.path.realpath(path))


def opened_file(path: Path, flags: int, *, base: Path | None = None) -> int:
    """Return a descriptor of a regular file.

    Raises OSError: ``ELOOP`` for a link below the base, ``EINVAL`` for what else is not a regular file. The base is the
    file's directory unless given, so that only a link in its place is refused.
    """
    with open_directory(path.parent, base=base) as (parent, _):
        return special_files.opened(path.name, flags | os.O_NOFOLLOW, PRIVATE_FILE, folder=parent)


@contextmanager
def open_directory(path: Path, *, base: Path | None = None, create: bool = False) -> Iterator[tuple[int, list[Path]]]:
    """Lend a descriptor of the directory, for use as ``dir_fd``, and the directories that got an entry by making it.

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
    """Return a descriptor of the directory whose names can be listed and whose entries can be brought to disk."""
    with open_directory(path, base=base) as (held, _):
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)


def sync(held: int) -> None:
    """Bring the entries of a directory that was opened here to disk."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _existing(path: Path) -> Path:
    """Return the nearest directory above the path that is there."""
    while not os.path.lexists(path):
        path = path.parent
    return path


def _step(held: int, name: str, path: Path, *, create: bool) -> tuple[int, bool]:
    """Return the directory of this name, and whether it was made."""
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


_APPEND = os.O_RDWR | os.O_APPEND


def failure(error: OSError, path: Path, *, outcome: str = "none") -> StateError:
    """Return the error of this library for a failed file operation, to be raised ``from`` it."""
    if error.errno == errno.ELOOP:
        return UnsafePath(str(path), "must not lead through a symbolic link, or a loop of symbolic links")
    reason = special_files.reason_of(error, path)
    return BackendUnavailable(f"{path}: {reason}", outcome=outcome, path=str(path), errno=error.errno)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise what the operating system refuses in the block as an error of this library."""
    try:
        yield
    except OSError as error:
        raise failure(error, path) from error


# From Python 3.14 on the methods of `Path` answer False where nobody may tell, and what is there would be passed over.

#: What means that there is nothing of a name, or nothing that it leads to.
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


def is_directory(path: Path) -> bool:
    """True if the path leads to a directory. Raises OSError where nobody may tell."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """True if the path leads to a regular file. Raises OSError where nobody may tell."""
    return stat.S_ISREG(_mode(path))


def is_link(path: Path) -> bool:
    """True if the path is a symbolic link. Raises OSError where nobody may tell."""
    return stat.S_ISLNK(_mode(path, follow=False))


def _mode(path: Path, *, follow: bool = True) -> int:
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
    except ValueError:  # no path has a NUL
        pass
    return 0


def open_to_append(path: Path, *, create: bool, base: Path | None = None) -> tuple[int, list[Path]]:
    """Return a descriptor that appends and may look back, and the directories whose entries changed by making the file.

    Raises OSError; FileNotFoundError when the file is missing and ``create`` is false.
    """
    try:
        return opened_file(path, _APPEND, base=base), []
    except FileNotFoundError:
        if not create:
            raise
    with open_directory(path.parent, base=base, create=True) as (_, changed):
        descriptor = opened_file(path, _APPEND | os.O_CREAT, base=base)
    return descriptor, [*changed, path.parent]


def open_to_read(path: Path, *, base: Path | None = None) -> int:
    """Return a descriptor of a regular file. Raises FileNotFoundError for anything else, and OSError."""
    try:
        return opened_file(path, os.O_RDONLY, base=base)
    except OSError as error:
        if error.errno == errno.EINVAL:  # a directory, a FIFO, a device, a socket
            raise FileNotFoundError(errno.ENOENT, error.strerror, str(path)) from error
        raise


def make_directory(path: Path, *, base: Path | None = None) -> None:
    """Make the directory if it is missing, and those above it, private to their owner; all on disk. Raises OSError."""
    with open_directory(path, base=base, create=True) as (_, changed):
        for directory in changed:
            sync_directory(directory)


def sync_directory(path: Path) -> None:
    """Bring a directory's entries to disk. Raises OSError."""
    descriptor = listable(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
