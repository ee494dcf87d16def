"""Names of tables that the database uses for something else: indexes, constraints, views, sequences, triggers."""

from __future__ import annotations

import pytest

from lastlight_state.errors import ReservedName
from lastlight_state.outputs import column_types
from lastlight_state.store import StateStore
from lastlight_state.testing import Database

NAMES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type <> 'trigger'",
    "postgresql": (
        "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace "
        "UNION SELECT conname FROM pg_constraint WHERE connamespace = current_schema()::regnamespace "
        "AND contype <> 'n'"  # of Postgres 18: ``<table>_<column>_not_null``, which stands in no table's way
    ),
}


def test_no_output_table_takes_a_name_that_the_schema_uses(database: Database) -> None:
    """outputs D-5: tables and indexes share their names, on both databases."""
    names = [name for (name,) in database.raw().execute(NAMES[database.name]).fetchall()]
    assert len(names) > 100
    assert [name for name in names if not column_types.is_reserved(name)] == []


@pytest.mark.parametrize("name", ["idx_workflow_runs_name_started", "pk_reviews", "uq_a", "ix_a", "fk_a", "ck_a"])
def test_an_output_table_named_like_an_index_is_refused_by_name(every_backend: StateStore, name: str) -> None:
    """outputs D-5: also like the indexes that other output tables will have."""
    with pytest.raises(ReservedName) as refused:
        every_backend.outputs.define("reviews", dict, table=name)
    every_backend.outputs.define("reviews", dict, table=refused.value.details["suggestion"])
