"""Removal of a log with the folder beside it, under the lock of appends.

Both go together or not at all: every file is judged before the first one goes. A writer that waits for the lock finds
that its path names another file, and begins a new one, so that no line that it appends is lost. Links are not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from lastlight_state.jsonl import files, lock, places

#: Says whether a file may go, by its path below the project directory and a descriptor to read it from.
MayGo: TypeAlias = Callable[[str, int], bool]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def judged(log: Path, may_go: MayGo) -> dict[str, int] | None:
    """The files that `remove` would remove now, with their bytes. None if one of them must stay. Waits for nobody.

    A log that is not there has no files, but its folder may. Raises `BackendUnavailable`, `UnsafePath`.
    """
    with _directory(log) as held:
        return {} if held is None else _judged(held, log, may_go)


def remove(log: Path, may_go: MayGo, *, lock_timeout: float = lock.LOCK_TIMEOUT) -> bool:
    """Remove the log and its folder, if all of their files may go. Returns whether they are gone.

    False also for a log that somebody replaces at this moment, and where the file system has no locks. Files that
    appear in the folder meanwhile stay. May be repeated after a kill. Raises `BackendBusy` when a writer holds the
    lock for too long, `BackendUnavailable`, `UnsafePath`.
    """
    with _directory(log) as held:
        if held is None:
            return True
        with _locked(log, held, lock_timeout) as is_ours:
            found = _judged(held, log, may_go) if is_ours else None
            if found is None:
                return False
            _remove_folder(held, _folder_of(log), found)
            with suppress(FileNotFoundError):
                os.unlink(log.name, dir_fd=held)
            places.sync(held)
            return True


@contextmanager
def _directory(log: Path) -> Iterator[int | None]:
    """A descriptor of the log's directory; None if it is not there. Raises errors of this library in the block."""
    try:
        with ExitStack() as stack:
            held: int | None = None
            with suppress(FileNotFoundError):
                held = stack.enter_context(places.directory(log.parent, base=places.ROOT))[0]
            yield held
    except OSError as error:
        raise files.failure(error, log) from error


@contextmanager
def _locked(log: Path, held: int, timeout: float) -> Iterator[bool]:
    """Keep others from appending; whether the lock is that of the file which has the name now, if there is one."""
    try:
        descriptor = os.open(log.name, _READ, dir_fd=held)
    except FileNotFoundError:
        yield True
        return
    try:
        yield lock.acquire(descriptor, log, timeout) and _names(held, log.name, descriptor)
    finally:
        os.close(descriptor)


def _names(held: int, name: str, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(name, dir_fd=held, follow_symlinks=False), os.fstat(descriptor))
    return False


def _judged(held: int, log: Path, may_go: MayGo) -> dict[str, int] | None:
    found: dict[str, int] = {}
    for name, inside, at in _files(held, log):
        size = _size_if(name, inside, at, may_go)
        if size is None:
            return None
        found[name] = size
    return found


def _files(held: int, log: Path) -> Iterator[tuple[str, str, int]]:
    """Everything of a log that is no directory: its path, its name, and the directory that it is in."""
    folder = _folder_of(log)
    if _mode(held, log.name) is not None:
        yield log.name, log.name, held
    mode = _mode(held, folder)
    if mode is not None and not stat.S_ISDIR(mode):
        yield folder, folder, held
    elif mode is not None:
        for path, folders, names, at in os.fwalk(folder, onerror=_raise, dir_fd=held):
            links = (name for name in folders if stat.S_ISLNK(_mode(at, name) or 0))
            yield from ((f"{path}/{name}", name, at) for name in (*links, *names))


def _size_if(path: str, name: str, at: int, may_go: MayGo) -> int | None:
    """The bytes of a regular file that may go, None of what must stay."""
    if not stat.S_ISREG(_mode(at, name) or 0):
        return None
    descriptor = os.open(name, _READ, dir_fd=at)
    try:
        return os.fstat(descriptor).st_size if may_go(path, descriptor) else None
    finally:
        os.close(descriptor)


def _remove_folder(held: int, folder: str, found: dict[str, int]) -> None:
    """Remove these files and the directories that are empty then."""
    with suppress(FileNotFoundError):
        for path, folders, names, at in os.fwalk(folder, topdown=False, onerror=_raise, dir_fd=held):
            for name in names:
                if f"{path}/{name}" in found:
                    os.unlink(name, dir_fd=at)
            for name in folders:
                with suppress(OSError):  # something has appeared in it
                    os.rmdir(name, dir_fd=at)
    with suppress(OSError):
        os.rmdir(folder, dir_fd=held)


def _folder_of(log: Path) -> str:
    return log.with_suffix("").name


def _mode(at: int, name: str) -> int | None:
    """What stands under a name; None for nothing."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
    return None


def _raise(error: OSError) -> None:
    raise error
