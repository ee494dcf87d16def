"""Copies of line files that are written to meanwhile: whole lines, up to the last one that is there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO

from lastlight_state.jsonl import places
from lastlight_state.run_log.packed import SUFFIX as PACKED_SUFFIX

_LINES = ".jsonl"
_CHUNK = 1024 * 1024
#: Why a file is left out whose name no manifest can hold.
NOT_TEXT = "the name is not UTF-8"
#: Why a file or folder is left out that is below more than `MOST_FOLDERS`, or whose path is longer than `MOST_BYTES`.
TOO_DEEP = "lies too deep, or its path is too long"
MOST_FOLDERS, MOST_BYTES = 64, 2000

_NOT_REGULAR = "is not a regular file"
#: What opening says of a FIFO or device, of a link that was put there, and of a socket.
_NO_FILE = frozenset({errno.EINVAL, errno.ELOOP, errno.ENXIO})


def copy_all(root: Path, into: Path) -> Iterator[tuple[str, str]]:
    """Copy every file below the directory into a folder of a backup; links and temporary files are left out.

    A file that vanishes meanwhile, because somebody prunes it, is left out, too; one that is packed or moved meanwhile
    is copied under its new name. Gives what else is left out, and the reason: what is no regular file, has a name that
    is not UTF-8, or lies too deep.
    """
    known: set[str] = set()
    told: dict[str, str] = {}
    for listing in count():  # twice at least: what moves while its folder is listed may be in no listing
        found, too_deep = _listed(root)
        fresh = [name for name in found if known.isdisjoint((name, _unpacked(name)))]
        gone = {name for name in fresh if not _arrived(root, name, into, told)}
        told.update(dict.fromkeys(too_deep, TOO_DEEP))
        known |= set(fresh) - gone
        if listing and not gone:
            break
    yield from told.items()


def _arrived(root: Path, name: str, into: Path, told: dict[str, str]) -> bool:
    """Copy the file, or tell why not; False if it is gone."""
    if shown(name) != name:
        told[shown(name)] = NOT_TEXT
        return True
    try:
        reading = places.opened_file(root / name, os.O_RDONLY, base=root)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        told[name] = _NOT_REGULAR
        return True
    with os.fdopen(reading, "rb") as source:
        target = into / name
        make_private(target.parent)
        _copy(source, target)
    return True


def _unpacked(name: str) -> str:
    """The name that a packed log had before."""
    return name.removesuffix(PACKED_SUFFIX)


def shown(name: str) -> str:
    """The name as text; bytes that are not UTF-8 are spelled with backslashes."""
    return os.fsencode(name).decode(errors="backslashreplace")


def too_deep(path: Path) -> bool:
    """Whether no backup takes this file or folder, so that each of its files can be put back anywhere."""
    return len(path.parts) > MOST_FOLDERS or len(os.fsencode(path)) > MOST_BYTES


def _listed(root: Path) -> tuple[list[str], list[str]]:
    """The files below the directory, and what lies too deep, as paths below it."""
    found: list[str] = []
    deep: list[str] = []
    for folder, folders, names in os.walk(root, onerror=_refuse_unread):
        inside = Path(folder).relative_to(root)
        for name in [name for name in folders if too_deep(inside / name)]:
            folders.remove(name)
            deep.append(str(inside / name))
        for name in names:
            if not Path(folder, name).is_symlink() and not name.endswith((".tmp", ".lock")):
                (deep if too_deep(inside / name) else found).append(str(inside / name))
    return found, [shown(name) for name in deep]


def _refuse_unread(error: OSError) -> None:
    """Raise for a folder whose files would be missing in silence; one that is gone has none."""
    if not isinstance(error, FileNotFoundError):
        raise error


def make_private(folder: Path) -> None:
    """Make the folder, and those above it that are not there, for their owner alone."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700)


def _copy(reading: BinaryIO, target: Path) -> None:
    with target.open("xb") as writing:
        os.fchmod(writing.fileno(), 0o600)
        shutil.copyfileobj(reading, writing, _CHUNK)
        writing.flush()
        if target.name.endswith(_LINES):
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
