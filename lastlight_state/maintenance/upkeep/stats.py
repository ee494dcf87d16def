"""``store.maintenance.stats``: counts and sizes of everything that is stored.

Only existing tables are counted. So statistics also work on a database with an old schema, and without a database.
Never writes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.facts import Measures, TableSize
from lastlight_state.clock import of_file
from lastlight_state.conversations.tables import BRANCHES, SESSIONS as TALKS
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.statements import Row, Statement, bind, constant, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.journal.models import SANDBOXES, SCORES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.upkeep.records import (
    LineFiles,
    MessageCounts,
    SchemaFacts,
    Stats,
    StatusCount,
    TableStats,
)
from lastlight_state.messaging.models import MESSAGES, SESSIONS
from lastlight_state.migrations import SchemaState, read_state
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.outputs.models import HISTORY, REGISTRY
from lastlight_state.schedules.models import FIRES
from lastlight_state.workflows.tables import APPROVALS, REQUESTS, RUNS

# Counts rows by table and by status, and chat messages by role and age. Only columns that were created with their table
# are read, because databases with an old schema are counted, too.

AGES = {"<=1": timedelta(days=1), "<=7": timedelta(days=7), "<=30": timedelta(days=30)}
OLDER = "older"
NO_MESSAGES = MessageCounts(by_role={}, by_age=dict.fromkeys((*AGES, OLDER), 0), oldest=None)

_ROWS = sa.func.count().label("rows")


def _distribution(table: sa.Table, status: Any) -> Statement[StatusCount]:
    shown = status.label("status")
    return statement_of(sa.select(shown, _ROWS).select_from(table).group_by(status).order_by(status), StatusCount)


def _either(column: sa.Column[Any], without: str, filled: str) -> sa.ColumnElement[str]:
    """Return an expression whose value is the word ``without`` if the column is NULL, else the word ``filled``."""
    return sa.case((column.is_(None), constant(without)), else_=constant(filled))


_STATUSES = {
    "workflow_runs": _distribution(RUNS, RUNS.c.status),
    "workflow_approvals": _distribution(APPROVALS, APPROVALS.c.status),
    "human_requests": _distribution(REQUESTS, REQUESTS.c.status),
    "cron_fires": _distribution(FIRES, FIRES.c.status),
    "messaging_sessions": _distribution(
        SESSIONS, sa.case((SESSIONS.c.active == sa.true(), constant("active")), else_=constant("inactive"))
    ),
    "sessions": _distribution(TALKS, TALKS.c.status),
    "branches": _distribution(BRANCHES, BRANCHES.c.status),
    "run_signals": _distribution(SIGNALS, _either(SIGNALS.c.consumed_at, "pending", "taken")),
    "tool_calls": _distribution(TOOL_CALLS, TOOL_CALLS.c.status),
    "sandboxes": _distribution(SANDBOXES, SANDBOXES.c.status),
    "scores": _distribution(SCORES, _either(SCORES.c.superseded_at, "current", "superseded")),
    "output_tables": _distribution(REGISTRY, REGISTRY.c.kind),
    "output_history": _distribution(HISTORY, HISTORY.c.cause),
}

_BY_ROLE: Statement[tuple[str, int]] = statement_of(sa.select(MESSAGES.c.role, _ROWS).group_by(MESSAGES.c.role), tuple)
_BY_AGE = statement_of(
    sa.select(
        sa.func.count().label("all"),
        sa.func.min(MESSAGES.c.timestamp).label("oldest"),
        *(
            sa.func.count(sa.case((MESSAGES.c.timestamp >= bind(f"since_{i}", MESSAGES.c.timestamp), 1))).label(
                f"since_{i}"
            )
            for i in range(len(AGES))
        ),
    ).select_from(MESSAGES)
)


def rows(unit: Unit, names: Sequence[str]) -> dict[str, int]:
    """Return the number of rows of each of these tables, read by one statement."""
    if not names:
        return {}
    counts = [sa.select(constant(name).label("name"), _ROWS).select_from(METADATA.tables[name]) for name in names]
    found = unit.rows(statement_of(sa.union_all(*counts)))
    return {row["name"]: row["rows"] for row in found}


def status_counts(unit: Unit, present: Collection[str]) -> dict[str, tuple[StatusCount, ...]]:
    """Return the number of rows by status, for each table that has a status."""
    return {table: tuple(unit.rows(statement)) for table, statement in _STATUSES.items() if table in present}


def message_counts(unit: Unit, present: Collection[str], now: datetime) -> MessageCounts:
    """Return the numbers of chat messages by role and by age before ``now``."""
    if MESSAGES.name not in present:
        return NO_MESSAGES
    by_role = dict(unit.rows(_BY_ROLE))
    cutoffs = {f"since_{i}": now - age for i, age in enumerate(AGES.values())}
    found = unit.row(_BY_AGE, cutoffs) or {}
    by_age, younger = {}, 0
    for i, name in enumerate(AGES):
        by_age[name] = found[f"since_{i}"] - younger
        younger = found[f"since_{i}"]
    by_age[OLDER] = found["all"] - younger
    return MessageCounts(by_role=by_role, by_age=by_age, oldest=found["oldest"])


# Counts line files, with their size and newest change. Reads no contents.


def measure_line_files(roots: Sequence[Path]) -> LineFiles:
    """Count and measure the line files below these directories. Unreadable and vanished files are left out."""
    files, size, newest = 0, 0, 0
    for folder, _, names in chain.from_iterable(map(os.walk, roots)):
        for name in names:
            if not name.endswith(".jsonl"):
                continue
            with suppress(OSError):
                found = Path(folder, name).lstat()
                files, size, newest = files + 1, size + found.st_size, max(newest, found.st_mtime_ns)
    return LineFiles(files=files, bytes=size, newest=of_file(newest) if files else None)


TABLES = tuple(sorted(METADATA.tables))

_NO_MEASURES = Measures(version="", size_bytes=0, tables={}, settings={})


class Statistics(Repository):
    """Counts and measures everything that is stored: ``store.maintenance.stats``."""

    def collect(self, *, exact: bool = True) -> Stats:
        """Count and measure the database, in one snapshot, and the line files.

        ``exact=False`` uses the planner's estimate of each table if the database has one. Without a database every
        figure is 0 and ``exists`` is False. The cost grows with all that is stored, because rows are always counted by
        status, role and age.
        """
        backend = self._backend
        state = read_state(backend)
        files = measure_line_files(self._settings.line_directories)
        found: Row = {"tables": (), "statuses": {}, "messages": NO_MESSAGES}
        measures = _NO_MEASURES
        if backend.exists:
            measures, found = self._viewing(lambda unit: self._read_counts(unit, exact))
        return Stats.of(
            {
                "exists": backend.exists,
                "backend": backend.name,
                "location": backend.location,
                "schema_name": backend.schema,
                "schema_state": _schema_facts(state),
                "line_files": files,
                **_whole(measures),
                **found,
            }
        )

    def _read_counts(self, unit: Unit, exact: bool) -> tuple[Measures, Row]:
        measures = unit.backend.measures(unit, TABLES)
        present = frozenset(measures.tables)
        messages: MessageCounts = message_counts(unit, present, self._now())
        statuses: Mapping[str, tuple[StatusCount, ...]] = status_counts(unit, present)
        return measures, {
            "tables": _tables(unit, measures.tables, exact),
            "statuses": statuses,
            "messages": messages,
        }


def _tables(unit: Unit, sizes: Mapping[str, TableSize], exact: bool) -> tuple[TableStats, ...]:
    to_count = [name for name, size in sizes.items() if exact or size.rows is None]
    counted = rows(unit, to_count)
    return tuple(_table(name, sizes[name], counted.get(name)) for name in sorted(sizes))


def _table(name: str, size: TableSize, counted: int | None) -> TableStats:
    rows = size.rows if counted is None else counted
    return TableStats(name=name, rows=rows or 0, bytes=size.bytes, estimated=counted is None)


def _schema_facts(state: SchemaState) -> SchemaFacts:
    return SchemaFacts(state=state.state, revision=state.revision, newest=state.head)


def _whole(measures: Measures) -> Row:
    return {
        "version": measures.version or None,
        "size_bytes": measures.size_bytes,
        "wal_bytes": measures.wal_bytes,
        "free_pages": measures.free_pages,
        "free_bytes": measures.free_bytes,
        "settings": measures.settings,
    }
