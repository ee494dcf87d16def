"""``store.maintenance.vacuum``: frees the space of deleted rows."""

from __future__ import annotations

from lastlight_state import progress
from lastlight_state.db import reconcile, valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.upkeep.records import Vacuumed
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.outputs.models import REGISTRY

_OUTPUTS = statement_of(REGISTRY.select().with_only_columns(REGISTRY.c.table_name))


class Vacuum(Repository):
    """Frees the space of deleted rows: ``store.maintenance.vacuum``."""

    def run(self, *, analyze: bool = True, full: bool = False) -> Vacuumed:
        """Vacuum the tables of this library, output tables included, outside any transaction.

        SQLite rebuilds the whole file while nobody else writes, and needs twice its size in free space. Raises
        `Conflict` ``no_space`` with both numbers if there is less. Postgres vacuums without stopping anyone and, with
        ``analyze``, renews the planner's statistics. With ``full``, Postgres rewrites the tables, and locks each
        meanwhile. Raises `BackendBusy` if others hold the locks.
        """
        valid.flag("analyze", analyze)
        valid.flag("full", full)
        before = self._viewing(_size)
        tables = self._viewing(_tables)
        progress.tell("giving back space", 0)
        self._apart(lambda unit: unit.backend.vacuum(unit, tables, analyze=analyze, full=full))
        return Vacuumed(bytes_before=before, bytes_after=self._viewing(_size))


def _size(unit: Unit) -> int:
    return unit.backend.measures(unit, ()).size_bytes


def _tables(unit: Unit) -> list[str]:
    outputs = [row["table_name"] for row in unit.rows(_OUTPUTS)]
    return reconcile.existing_tables(unit, [*METADATA.tables, *outputs])
