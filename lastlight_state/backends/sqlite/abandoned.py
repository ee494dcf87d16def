"""Reading a file whose writer died inside a transaction, without writing the file or its journal.

SQLite finds the dead writer's journal and must roll it back before anybody reads. A connection that may only read
cannot. So a private copy of the file and its journal is rolled back and checked, and read until the file changes again.
Its owner's next write recovers the file itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from lastlight_state.backends.sqlite import held, private_copies
from lastlight_state.backends.sqlite.private_copies import PrivateCopy

_Connect: TypeAlias = Callable[[Path], sqlite3.Connection]
_Hold: TypeAlias = "Callable[[], sqlite3.Connection | None]"


class Abandoned:
    """Connects to one file for reading: to the file itself, or to a copy if its writer died.

    ``copied`` is called after a copy was made.
    """

    def __init__(self, path: Path, copied: Callable[[], object]) -> None:
        self._path = path
        self._copied = copied
        self._copy: PrivateCopy | None = None

    def connected(self, hold: _Hold, connect: _Connect) -> sqlite3.Connection:
        """A connection that can be read. Raises `BackendBusy`, and `BackendUnavailable` for a damaged file.

        ``hold`` connects to the file, or gives None if its writer died; where that is not possible ``connect`` does.
        """
        copy = self._copy
        if copy is not None and copy.mark == private_copies.mark_of(self._path):
            return connect(copy.path)
        found = self._connected(hold, connect)
        if found is not None:
            return found
        self._copy = copy = private_copies.taken(self._path, checked=True)
        self._copied()
        return connect(copy.path)

    def _connected(self, hold: _Hold, connect: _Connect) -> sqlite3.Connection | None:
        if held.IS_POSSIBLE:
            with suppress(held.NotPossible):
                return hold()
        try:
            return _probed(connect(self._path))
        except sqlite3.Error as error:
            if not self._needs_recovery(error):
                raise
        return None

    def _needs_recovery(self, error: sqlite3.Error) -> bool:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            return any(mark is not None for mark in private_copies.mark_of(self._path)[1:])
        return False


def _probed(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, after it has read the file once."""
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection
