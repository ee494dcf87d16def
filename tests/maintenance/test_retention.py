"""Every table says which prune removes its rows, or why they stay."""

from __future__ import annotations

from support.each import with_each

from lastlight_state.db.schema.declarations import facts_of
from lastlight_state.maintenance.prune.checks import ALL
from lastlight_state.maintenance.prune.files import FILES
from lastlight_state.maintenance.prune.kinds import KINDS
from lastlight_state.maintenance.prune.sweeps import SWEEPS
from lastlight_state.migrations.metadata import METADATA


def removed_as(kind: str) -> set[str]:
    if kind in SWEEPS:
        return set(SWEEPS[kind].tables)
    if kind in FILES:
        return set()
    found = KINDS[kind]
    shared = found.shared.tables if found.shared else ()
    return {found.table_name, *shared, *(child.table.name for child in found.children)}


@with_each("kind", ALL)
def test_a_prune_removes_rows_of_the_tables_that_say_so(kind: str) -> None:
    """maintenance OP-6, OP-26."""
    assert removed_as(kind) == {name for name, table in METADATA.tables.items() if kind in facts_of(table).pruned_as}


def test_every_table_that_belongs_to_a_run_goes_with_it() -> None:
    """maintenance OP-26, case 15: a conversation only names the run that it was part of; a lease goes before it."""
    of_runs = {
        table.name
        for table in METADATA.tables.values()
        if {"run_id", "workflow_run_id"} & {column.name for column in table.columns}
    }
    assert of_runs - {"sessions", "run_leases"} <= removed_as("runs")
