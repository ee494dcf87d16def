"""Files that are not whole yet: they have a name of their own, and their writer holds a lock on them.

A writer that was killed leaves them. Whoever makes the same file again knows by the lock that nobody writes them any
more, and removes them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lastlight_state.errors import AlreadyExists, BackendBusy
from lastlight_state.jsonl import places


def of(path: Path) -> Path:
    """Return the name of a file while it is not whole."""
    return path.with_name(f".{path.name}.half")


def hold(descriptor: int) -> None:
    """Hold the lock of a file until it is closed, where the file system has locks."""
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def complete(names: Sequence[Path], folder: int) -> None:
    """Give whole files their names, the first one last: where it is there, all are. Raises `AlreadyExists`."""
    given: list[Path] = []
    for name in reversed(names):
        try:
            os.link(of(name).name, name.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            for one in given:
                os.unlink(one.name, dir_fd=folder)
            if isinstance(error, FileExistsError):
                raise AlreadyExists("file", str(name)) from error
            raise
        given.append(name)
    places.sync(folder)


def forget(names: Sequence[Path], folder: int) -> None:
    """Remove what a killed writer left of these files. Raises `BackendBusy` while one writes them."""
    is_whole = _is_same(of(names[0]).name, names[0].name, folder)
    for name in names:
        half = of(name).name
        with _dead(half, folder) as is_there:
            if not is_there:
                continue
            if not is_whole and _is_same(half, name.name, folder):
                os.unlink(name.name, dir_fd=folder)
            os.unlink(half, dir_fd=folder)


def forget_replaced(path: Path, suffix: str, rejects: str, folder: int) -> None:
    """Remove what killed replacements of a file left: clean copies, rejects, and second names of what is still there.

    ``suffix`` is that of a second name: up to its first hyphen all have the same.
    """
    begin, end = f".{path.name}{suffix.partition('-')[0]}-", ".tmp"
    for name in _names(path.parent):
        if not (name.startswith(begin) and name.endswith(end)):
            continue
        with suppress(BackendBusy), _dead(name, folder) as is_there:  # one that is being written is let be
            if is_there:
                _remove_replacement(name, name[1 : -len(end)], rejects, path, folder)


def _remove_replacement(clean: str, second: str, rejects: str, path: Path, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(second + rejects, dir_fd=folder)
    if _is_same(second, path.name, folder):
        os.unlink(second, dir_fd=folder)
    os.unlink(clean, dir_fd=folder)


def _names(folder: Path) -> list[str]:
    descriptor = places.listable(folder, base=places.ROOT)
    try:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 - of a descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _dead(name: str, folder: int) -> Iterator[bool]:
    """Whether a file is there, which nobody writes: its lock is held until the end."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BackendBusy(f"{name} is being written by another call") from error
        yield _is_named(descriptor, name, folder)  # and not removed, or made anew, before the lock
    finally:
        os.close(descriptor)


def _is_named(descriptor: int, name: str, folder: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _is_same(first: str, second: str, folder: int) -> bool:
    try:
        one, other = (os.stat(name, dir_fd=folder, follow_symlinks=False) for name in (first, second))
    except FileNotFoundError:
        return False
    return os.path.samestat(one, other)
