"""What a forked child does about its parent's connections to SQLite files.

A child inherits SQLite's own notes of which locks the process holds, but not the locks. A new connection of the child
to the same file would trust those notes, take no lock, and lose what it commits when the parent closes the file. So
before a child connects to such a file, it closes the connections that it inherited; they were idle, hence closing them
touches nothing of the parent's. One that was in use at the fork cannot be closed, and the file stays out of reach.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lastlight_state.errors import MisuseError

_File: TypeAlias = "tuple[int, int]"


@dataclass
class _Inherited:
    idle: list[sqlite3.Connection]
    in_use: list[object]


_inherited: dict[_File, list[_Inherited]] = {}


def inherit(path: Path, *, idle: Iterable[sqlite3.Connection], in_use: Iterable[object]) -> None:
    """In a child: note the parent's connections to a file, and keep them from being closed by chance."""
    found = _identity(path)
    if found is not None:
        _inherited.setdefault(found, []).append(_Inherited(list(idle), list(in_use)))


def let_go(path: Path) -> None:
    """Before a connection is opened: close what this process inherited of the file.

    Raises `MisuseError` when the parent was in the middle of a unit on it.
    """
    found = _identity(path) if _inherited else None
    if found is None:
        return
    everything = _inherited.get(found, [])
    if any(inherited.in_use for inherited in everything):  # before anything is closed: SQLite's own locks may be taken
        raise MisuseError("this process was forked while its parent was using the file: spawn it instead")
    for inherited in everything:
        while inherited.idle:
            inherited.idle.pop().close()


def _identity(path: Path) -> _File | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
