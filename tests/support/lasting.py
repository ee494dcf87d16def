"""Whether what a call left below a folder would outlast a power failure: bytes and names that were brought to disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: A database brings its own files to disk.
_DATABASES = (".db", "-wal", "-shm", "-journal")
Place = tuple[int, int]


class Lasting:
    """Watches the files and directories below ``root`` from the moment it is made.

    ``early`` names what got its name before its bytes were on disk.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self._root = root
        self.early: list[str] = []
        self._sizes = {_place(path.stat()): path.stat().st_size for path in self._files()}
        self._names = {_place(path.stat()): _listed(path) for path in self._directories()}
        for name, before, behind in (
            ("fsync", _nothing, self._synced),
            ("fdatasync", _nothing, self._synced),
            ("link", self._named, _nothing),
            ("rename", self._named, _nothing),
        ):
            monkeypatch.setattr(os, name, _watched(getattr(os, name), before, behind))

    def lost(self) -> list[str]:
        """What a power failure now could take away or bring back: bytes, names, and removals of names.

        The name of an unfinished file that comes back, which begins with a dot, is in nobody's way.
        """
        files = (f"bytes of {self._told(path)}" for path in self._files() if not self._is_whole(path))
        return sorted([*files, *self._lost_names()])

    def _lost_names(self) -> Iterator[str]:
        for path in self._directories():
            now, on_disk = _listed(path), self._names.get(_place(path.stat()), set())
            yield from (f"name {self._told(path / name)}" for name in now - on_disk)
            yield from (f"removal of {self._told(path / name)}" for name in on_disk - now if name[0] != ".")

    def _told(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _files(self) -> list[Path]:
        return [path for path in self._root.rglob("*") if path.is_file() and not path.name.endswith(_DATABASES)]

    def _directories(self) -> list[Path]:
        return [self._root, *(path for path in self._root.rglob("*") if path.is_dir())]

    def _synced(self, descriptor: Any, **_: object) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self._names[_place(found)] = _listed(descriptor)
        else:
            self._sizes[_place(found)] = found.st_size

    def _named(self, source: Any, name: Any, *, src_dir_fd: int | None = None, **_: object) -> None:
        path = Path(source) if src_dir_fd is None else Path(f"/proc/self/fd/{src_dir_fd}").readlink() / source
        below = [path, *path.rglob("*")] if path.is_dir() else [path]
        if not all(self._is_whole(one) for one in below if not one.name.endswith(_DATABASES)):
            self.early.append(Path(name).name)

    def _is_whole(self, path: Path) -> bool:
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode):
            return not _listed(path) - self._names.get(_place(found), set())
        return self._sizes.get(_place(found)) == found.st_size


def _watched(real: Callable[..., Any], before: Callable[..., None], behind: Callable[..., None]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        before(*arguments, **options)
        done = real(*arguments, **options)
        behind(*arguments, **options)
        return done

    return call


def _nothing(*_: object, **__: object) -> None:
    """Watches nothing."""


def _place(found: os.stat_result) -> Place:
    return found.st_dev, found.st_ino


def _listed(directory: Any) -> set[str]:
    """The names in a directory, without those of databases."""
    return {name for name in os.listdir(directory) if not name.endswith(_DATABASES)}  # noqa: PTH208 - of a descriptor
