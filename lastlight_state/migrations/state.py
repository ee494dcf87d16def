"""Reads the revision of a database, and decides whether this library can work on it. Never writes.

For a current database this takes one round trip, because every open does it. The same round trip reads which columns,
guards, indexes and keys exist, so that an open detects a damaged schema.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from lastlight_state.backends.base import Backend
from lastlight_state.backends.sql.expressions import quote_name
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import outlines, scripts
from lastlight_state.migrations.records import SchemaState

#: The tables of revision 0001. One of them without a version shows that another program made it.
SEED_TABLES = (
    "workflow_runs",
    "executions",
    "workflow_approvals",
    "workflow_overrides",
    "cron_overrides",
    "messaging_sessions",
    "messaging_messages",
)

#: Advice for a database that was made before the first release.
UNRELEASED = (
    "a development version of lastlight-state made this database before the first release, and no later version works "
    "on it; make the database again; to keep its runs and sessions, export them with the version that made it "
    "(`lastlight-state export`) and load them into the new one (`lastlight-state import`)"
)
#: Advice for a Postgres database of the original program, as it makes them since August 2026.
IMPORTED = (
    "this is a database of the original program, whose newer versions keep times as text on Postgres: it is not taken "
    "over; open another database or schema, and run there: lastlight-state import URL"
)

_COPYING = "SELECT 1 FROM {receipts} WHERE kind = 'copy' AND state IN ('running', 'interrupted')"


def read_state(backend: Backend) -> SchemaState:
    """Return the state of a database's schema. The database need not exist, and nothing is created."""
    version = qualified_name(backend, VERSION_TABLE)
    copying = _COPYING.format(receipts=qualified_name(backend, "maintenance_receipts"))
    outline = f"SELECT {outlines.outline_expression(backend.name, version)}"
    rows = backend.peek(f"SELECT version_num, EXISTS ({copying}) FROM {version}", outline)
    if rows is None:  # older than the receipts' tables, or no database
        rows = backend.peek(f"SELECT version_num, 0 FROM {version}", outline) or backend.peek(outline) or [(None,)]
    *versions, (seen,) = rows
    backend.meet(outlines.extensions(seen))
    return _judge(backend, versions, seen)


def word_for(revision: str) -> Literal["behind", "current", "ahead"]:
    """Return a word for whether a revision is older than, newer than or equal to the newest that this library knows."""
    head = scripts.head()
    if revision == head:
        return "current"
    return "behind" if revision < head else "ahead"


def unreleased_error(revision: str | None) -> SchemaMismatch:
    """Return the error for a database at a revision that was never released."""
    return SchemaMismatch(f"the version table holds {revision!r}: {UNRELEASED}", code="unreleased")


def qualified_name(backend: Backend, table: str) -> str:
    """Return the table's full name in SQL, including the schema with which the backend was opened."""
    return f"{quote_name(backend.schema)}.{quote_name(table)}" if backend.schema else quote_name(table)


def _judge(backend: Backend, rows: list[tuple[Any, ...]], outline: str | None) -> SchemaState:
    head = scripts.head()
    if not rows:
        return SchemaState("unversioned" if _has_tables(backend) else "empty", None, head)
    revision, copying = str(rows[0][0]), bool(rows[0][1])
    if len(rows) == 1 and scripts.was_never_released(revision):
        return SchemaState("unreleased", revision, head)
    if len(rows) > 1 or not re.fullmatch(r"[0-9]{4}(_[a-z0-9_]+)?", revision):
        return SchemaState("foreign", ", ".join(str(row[0]) for row in rows), head)
    word = word_for(revision)
    if word == "ahead":
        return _ahead(backend, revision, copying)
    absent = outlines.absent_entries(backend.name, outline) if word == "current" else ()
    return SchemaState(word, revision, head, None, copying, absent)


def _ahead(backend: Backend, revision: str, copying: bool) -> SchemaState:
    """Return the state of a newer schema. An older library may work on it unless the schema forbids it."""
    found = backend.peek(f"SELECT value FROM {qualified_name(backend, 'lastlight_meta')} WHERE key = 'min_reader'")
    min_reader = str(found[0][0]) if found else None
    known = min_reader is None or min_reader <= scripts.head()
    return SchemaState("ahead" if known else "incompatible", revision, scripts.head(), min_reader, copying)


def _has_tables(backend: Backend) -> bool:
    return any(
        backend.peek(f"SELECT 1 FROM {qualified_name(backend, table)} LIMIT 0") is not None for table in SEED_TABLES
    )
