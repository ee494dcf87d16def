"""Copies of line files that are written to meanwhile: whole lines, up to the last one that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LINES = ".jsonl"
_CHUNK = 1024 * 1024
#: Why a file is left out whose name no manifest can hold.
NOT_TEXT = "the name is not UTF-8"


def copy_all(root: Path, into: Path) -> Iterator[tuple[str, str]]:
    """Copy every file below the directory into a folder of a backup; links and temporary files are left out.

    A file that vanishes meanwhile, because somebody prunes it, is left out, too. Gives each file whose name is not
    UTF-8, which is left out, and the reason.
    """
    for path in _files(root):
        name = str(path.relative_to(root))
        if shown(name) != name:
            yield shown(name), NOT_TEXT
            continue
        target = into / name
        make_private(target.parent, below=into.parent.parent)
        with suppress(FileNotFoundError):
            _copy(path, target)


def shown(name: str) -> str:
    """The name as text; bytes that are not UTF-8 are spelled with backslashes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root, onerror=_refuse_unread):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and not name.endswith((".tmp", ".lock")):
                yield path


def _refuse_unread(error: OSError) -> None:
    """Raise for a folder whose files would be missing in silence; one that is gone has none."""
    if not isinstance(error, FileNotFoundError):
        raise error


def make_private(folder: Path, *, below: Path) -> None:
    """Make the folder, and those above it up to ``below``, for their owner alone."""
    if folder != below and not folder.is_dir():
        make_private(folder.parent, below=below)
        folder.mkdir(mode=0o700)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("xb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        shutil.copyfileobj(reading, writing, _CHUNK)
        writing.flush()
        if source.name.endswith(_LINES):
            writing.truncate(whole(target, writing.tell()))
        os.fsync(writing.fileno())


def whole(path: Path, size: int) -> int:
    """The number of bytes up to the last newline, of the first ``size``."""
    with path.open("rb") as file:
        end = size
        while end > 0:
            begin = max(0, end - _CHUNK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0
