"""``store.maintenance.stats``: counts and sizes of everything that is stored.

Only tables that exist are counted, so it also works on a database that is behind, and without one. Never writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.backends.facts import Measures, TableSize
from lastlight_state.db.repository import Repository
from lastlight_state.db.statements import Row
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance import line_files, table_counts
from lastlight_state.maintenance.records import MessageCounts, SchemaFacts, Stats, StatusCount, TableStats
from lastlight_state.migrations import SchemaState, read_state
from lastlight_state.migrations.metadata import METADATA

TABLES = tuple(sorted(METADATA.tables))

_NO_MEASURES = Measures(version="", size_bytes=0, tables={}, settings={})


class Statistics(Repository):
    """``store.maintenance.stats``"""

    def collect(self, *, exact: bool = True) -> Stats:
        """Count and measure the database, in one snapshot, and the line files.

        ``exact=False`` uses the planner's estimate of each table if the database has one. Without a database every
        figure is 0 and ``exists`` is False. The cost grows with all that is stored: numbers by status, role and age are
        counted in any case.
        """
        backend = self._backend
        state = read_state(backend)
        files = line_files.measured(self._settings.line_directories)
        found: Row = {"tables": (), "statuses": {}, "messages": table_counts.NO_MESSAGES}
        measures = _NO_MEASURES
        if backend.exists:
            measures, found = self._viewing(lambda unit: self._counted(unit, exact))
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

    def _counted(self, unit: Unit, exact: bool) -> tuple[Measures, Row]:
        measures = unit.backend.measures(unit.checkout, TABLES)
        present = frozenset(measures.tables)
        messages: MessageCounts = table_counts.messages(unit, present, self._now())
        statuses: Mapping[str, tuple[StatusCount, ...]] = table_counts.statuses(unit, present)
        return measures, {
            "tables": _tables(unit, measures.tables, exact),
            "statuses": statuses,
            "messages": messages,
        }


def _tables(unit: Unit, sizes: Mapping[str, TableSize], exact: bool) -> tuple[TableStats, ...]:
    to_count = [name for name, size in sizes.items() if exact or size.rows is None]
    counted = table_counts.rows(unit, to_count)
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
