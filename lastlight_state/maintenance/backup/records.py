"""Records of backups."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lastlight_state.db.records import Record

#: The folders of a backup that hold line files, those of agents and those of runs, and the one with mailboxes.
LINES = ("logs/agent-sessions", "logs/sessions")
MAILBOXES = "mailboxes"


class BackedFile(Record):
    """A file of a backup: its path inside the backup, its bytes, and their SHA-256 as 64 hex digits."""

    path: str
    size_bytes: int
    sha256: str


class Manifest(Record):
    """What a backup holds: kept in it as ``manifest.json``, and written last.

    ``source`` is the location of the database without its password, ``revision`` its schema, None for a file that
    has no version. ``database`` is the path of the database's copy inside the backup. ``left_out`` names what is no
    part of it, each with the reason: of mailboxes what is damaged or cannot be opened, among line files what is no
    regular file, and of both what lies too deep and files whose name is not UTF-8, with its other bytes spelled with
    backslashes; of Postgres also ``table.column`` of those that other programs added to tables of this library.
    """

    format: int = 1
    created_at: datetime
    library_version: str
    source: str
    revision: str | None
    database: str
    files: tuple[BackedFile, ...]
    left_out: Mapping[str, str] = {}

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)
