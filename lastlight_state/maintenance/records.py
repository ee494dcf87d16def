"""What callers of maintenance get."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lastlight_state.db.records import Record


class SchemaFacts(Record):
    """Where the schema stands: the word of `lastlight_state.migrations.SchemaState`, its revision, and the newest."""

    state: str
    revision: str | None
    newest: str


class TableStats(Record):
    """Rows of a table, and its bytes with indexes where the database keeps them. ``estimated``: by the planner."""

    name: str
    rows: int
    bytes: int | None
    estimated: bool


class StatusCount(Record):
    """How many rows have a status; None is a status that is NULL."""

    status: str | None
    rows: int


class MessageCounts(Record):
    """Chat messages by role, by age in days (``<=1``, ``<=7``, ``<=30``, ``older``), and when the first was said."""

    by_role: Mapping[str, int]
    by_age: Mapping[str, int]
    oldest: datetime | None


class LineFiles(Record):
    """The agent's event logs: how many files, their bytes, and when one was last written."""

    files: int
    bytes: int
    newest: datetime | None


class Stats(Record):
    """Everything counted and measured at one moment.

    ``exists`` is False where there is no database; then everything of it is empty and 0. ``tables`` lists the tables of
    this library that are there, ``statuses`` the distribution by table. ``settings`` are those of the database that
    decide durability and waiting.
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


class TimelineEntry(Record):
    """One fact about a run: where it is recorded and under which key, when, who, and one line without payloads.

    ``source`` is ``transition``, ``approval`` or ``execution``; ``key`` is its number or id.
    """

    source: str
    key: str
    at: datetime
    actor: str | None
    text: str
