"""Records of statistics, checkpoints and vacuums."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lastlight_state.db.rows.records import Record


class SchemaFacts(Record):
    """The state of the schema (see `lastlight_state.migrations.SchemaState`), its revision, and the newest revision."""

    state: str
    revision: str | None
    newest: str


class TableStats(Record):
    """The number of rows of a table, and its size with indexes if known.

    ``estimated``: the number is the planner's estimate.
    """

    name: str
    rows: int
    bytes: int | None
    estimated: bool


class StatusCount(Record):
    """The number of rows with a status. None stands for NULL."""

    status: str | None
    rows: int


class MessageCounts(Record):
    """Chat messages by role, by age in days (``<=1``, ``<=7``, ``<=30``, ``older``), and the time of the oldest."""

    by_role: Mapping[str, int]
    by_age: Mapping[str, int]
    oldest: datetime | None


class LineFiles(Record):
    """The agent's event logs: how many files, their bytes, and when one was last written."""

    files: int
    bytes: int
    newest: datetime | None


class Stats(Record):
    """Counts and sizes of everything, from one snapshot.

    ``exists`` is False if there is no database; then its figures are 0 and empty. ``tables`` lists this library's
    existing tables, and ``statuses`` the number of rows by status for each. ``settings`` are the database's settings
    for durability and waiting.
    """

    exists: bool
    backend: str
    version: str | None
    location: str
    schema_name: str | None
    schema_state: SchemaFacts
    size_bytes: int
    wal_bytes: int | None
    free_pages: int | None
    free_bytes: int | None
    tables: tuple[TableStats, ...]
    statuses: Mapping[str, tuple[StatusCount, ...]]
    messages: MessageCounts
    line_files: LineFiles
    settings: Mapping[str, str | int | bool]


class Checkpoint(Record):
    """The result of a checkpoint. ``busy`` is True if a reader was in the way, so that pages are left in the log.

    ``applicable`` is False for a database without its own write-ahead log files.
    """

    applicable: bool
    busy: bool
    log_pages: int
    checkpointed_pages: int
    wal_bytes_before: int
    wal_bytes_after: int


class Vacuumed(Record):
    """The size of the database before and after a vacuum."""

    bytes_before: int
    bytes_after: int
