"""Opening line files: modes, missing directories, symbolic links, and errors of the operating system.

New files get mode 0600 and new directories 0700; existing modes are kept. No symbolic link is followed below the base,
which is the file's directory unless given (see `places`).
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

# The advisory lock of an append: under it a writer checks the file's end and appends to it.
#
# It is a ``flock``. It belongs to the open file, so it separates threads, writers and processes, and the kernel
# releases it when its holder dies.

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
    """Release the lock of an open file."""
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


# Objects that a parent and its forked child must not share.
#
# A child inherits locks that a thread of its parent may have held, and descriptors whose file locks count as the
# parent's own. Objects registered here are called in the child, before any of its code runs.


class Inherited(Protocol):
    """An object that must renew its state in a forked child."""

    def after_fork(self) -> None:
        """Renew the object. Called in the child, which has only one thread at that time."""
        ...


_objects: WeakSet[Inherited] = WeakSet()


def renew_after_fork(thing: Inherited) -> None:
    """Register an object, so that its ``after_fork()`` is called in every child forked while the object exists."""
    _objects.add(thing)


def _renew() -> None:
    for thing in tuple(_objects):
        thing.after_fork()


os.register_at_fork(after_in_child=_renew)


# Opening files component by component: no symbolic link below a base is ever followed.
#
# Between a check of a path and its opening, a user who may write a directory can put a link in its place. So each
# component is opened by itself, relative to the descriptor of the directory before it, and a link raises ``ELOOP``.
# Links in the base belong to the operator and are followed.
#
# The result is a regular file or an error: a FIFO or device of that name neither blocks its opener nor receives lines.

PRIVATE_FILE, PRIVATE_DIRECTORY = 0o600, 0o700
#: The base for a `real` path: no component of it may be a link when it is opened.
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
    """Return the absolute path with all links resolved, as far as it exists. Open it with the base `ROOT`."""
    return Path(os.path.realpath(path))


def opened_file(path: Path, flags: int, *, base: Path | None = None) -> int:
    """Return a descriptor of a regular file.

    Raises OSError: ``ELOOP`` for a link below the base, ``EINVAL`` for anything else that is not a regular file. The
    base is the file's directory unless given, so only the file itself must not be a link.
    """
    with open_directory(path.parent, base=base) as (parent, _):
        return special_files.open_regular(path.name, flags | os.O_NOFOLLOW, PRIVATE_FILE, folder=parent)


@contextmanager
def open_directory(path: Path, *, base: Path | None = None, create: bool = False) -> Iterator[tuple[int, list[Path]]]:
    """Open a directory. Yields its descriptor, for ``dir_fd``, and the directories that changed because it was created.

    With ``create``, missing directories are made, with access for their owner only. Raises OSError.
    """
    at = base or path
    changed: list[Path] = []
    if base is None and create:
        at = _existing_path(path)
    held = os.open(at, _STEP & ~os.O_NOFOLLOW)
    try:
        for name in path.relative_to(at).parts:
            inner, made = _step(held, name, at / name, create=create)
            left, held = held, inner  # before it is closed: an interrupt must not close it twice
            os.close(left)
            if made:
                changed.append(at)
            at = at / name
        yield held, changed
    finally:
        os.close(held)


def listable(path: Path, *, base: Path | None = None) -> int:
    """Open the directory in a way that permits listing and syncing, and return the descriptor."""
    with open_directory(path, base=base) as (held, _):
        return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)


def sync(held: int) -> None:
    """Sync the entries of an open directory to disk."""
    descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _existing_path(path: Path) -> Path:
    """Return the path, or its nearest parent directory that exists."""
    while not os.path.lexists(path):
        path = path.parent
    return path


def _step(held: int, name: str, path: Path, *, create: bool) -> tuple[int, bool]:
    """Return a descriptor of the directory with this name, and True if it was created."""
    try:
        return _open_child(held, name, path), False
    except FileNotFoundError:
        if not create:
            raise
    made = False
    try:
        os.mkdir(name, PRIVATE_DIRECTORY, dir_fd=held)
        made = True
    except FileExistsError:  # created by another process meanwhile
        pass
    return _open_child(held, name, path), made


def _open_child(held: int, name: str, path: Path) -> int:
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
    """Return this library's error for a failed file operation. Raise it ``from`` the original error."""
    if error.errno == errno.ELOOP:
        return UnsafePath(str(path), "must not lead through a symbolic link, or a loop of symbolic links")
    reason = special_files.reason_of(error, path)
    return BackendUnavailable(f"{path}: {reason}", outcome=outcome, path=str(path), errno=error.errno)


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise an OSError from the block as an error of this library."""
    try:
        yield
    except OSError as error:
        raise failure(error, path) from error


# From Python 3.14 on, `Path` methods return False if access is denied, so an existing file would be passed over.

#: The errors that mean that a name does not exist, or that a link has no target.
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP)


def is_directory(path: Path) -> bool:
    """True if the path leads to a directory. Raises OSError if access is denied."""
    return stat.S_ISDIR(_mode(path))


def is_file(path: Path) -> bool:
    """True if the path leads to a regular file. Raises OSError if access is denied."""
    return stat.S_ISREG(_mode(path))


def is_link(path: Path) -> bool:
    """True if the path is a symbolic link. Raises OSError if access is denied."""
    return stat.S_ISLNK(_mode(path, follow=False))


def _mode(path: Path, *, follow: bool = True) -> int:
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except OSError as error:
        if error.errno not in _NOTHING:
            raise
    except ValueError:  # the path contains NUL
        pass
    return 0


def open_to_append(path: Path, *, create: bool, base: Path | None = None) -> tuple[int, list[Path]]:
    """Open a file for appending and reading. Returns its descriptor, and the directories that changed by creating it.

    Raises OSError; FileNotFoundError if the file is missing and ``create`` is false.
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
    """Return a descriptor of a regular file. Raises FileNotFoundError for any other kind, and OSError."""
    try:
        return opened_file(path, os.O_RDONLY, base=base)
    except OSError as error:
        if error.errno == errno.EINVAL:  # a directory, a FIFO, a device, a socket
            raise FileNotFoundError(errno.ENOENT, error.strerror, str(path)) from error
        raise


def make_directory(path: Path, *, base: Path | None = None) -> None:
    """Create missing directories of the path, with access for their owner only, and sync them to disk.

    Raises OSError.
    """
    with open_directory(path, base=base, create=True) as (_, changed):
        for directory in changed:
            sync_directory(directory)


def sync_directory(path: Path) -> None:
    """Sync a directory's entries to disk. Raises OSError."""
    descriptor = listable(path)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
