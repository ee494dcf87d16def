"""Tables that an operator of a Postgres has divided into partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.filled_store import scene
from support.migrations.partitions import partition
from support.migrations.support import Place

from lastlight_state import StateStore
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.migrations import check
from lastlight_state.testing import Database

#: By columns that each unique key of the table holds.
DIVIDED = {"run_events": "run_id", "run_transitions": "run_id", "messages": "id"}


@pytest.mark.parametrize(("table", "column"), DIVIDED.items())
def test_a_partitioned_table_is_the_table(postgres_place: Place, table: str, column: str) -> None:
    """migrations MG-72: nothing of it is missed, and its parts do not count as tables."""
    backend = postgres_place.at()
    partition(postgres_place.raw(), table, column)
    assert check(backend).differences == ()


def test_a_guard_that_a_partitioned_table_lacks_is_named(postgres_place: Place) -> None:
    """migrations MG-72."""
    backend = postgres_place.at()
    partition(postgres_place.raw(), "run_transitions", "run_id")
    postgres_place.raw().execute("DROP TRIGGER run_transitions_no_update ON run_transitions")
    assert check(backend).differences == ("trigger run_transitions.run_transitions_no_update is missing",)


def test_a_store_works_on_partitioned_tables(postgres_database: Database, tmp_path: Path) -> None:
    """migrations MG-72: it is filled, read, measured, examined, copied and pruned."""
    for table, column in DIVIDED.items():
        partition(postgres_database.raw(), table, column)
    store, _ = scene(postgres_database)
    events = store.journal.events.list("home").items
    assert events
    maintenance = store.maintenance
    sizes = {table.name: table.bytes for table in maintenance.stats.collect().tables}
    assert all(sizes[table] for table in DIVIDED)
    assert [found for found in maintenance.doctor.examine().findings if found.subject in DIVIDED] == []
    target = tmp_path / "copied.db"
    maintenance.copy.run(target, migrate=True)
    with StateStore.open(target, state_dir=tmp_path) as copied:
        assert copied.journal.events.list("home").items == events
    postgres_database.clock.advance(seconds=400 * 86_400)
    assert maintenance.prune.run(PrunePolicy("fires", keep_days=1)).state == "done"
