from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.engine import Connection
from support.each import with_each
from support.guards import deriving, postgres_functions, reacting, statements_of
from support.migrations.snapshot import differences, lost
from support.migrations.support import Place, catalogue, with_connection, without_version

from lastlight_state.backends.base import Backend
from lastlight_state.backends.facts import Catalogue
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.migrations import migrate
from lastlight_state.migrations.metadata import DERIVED_ROWS, GUARDS, METADATA, REACTIONS, options


class Undo(Exception):
    """Ends a transaction without keeping it."""


def declared(backend: Backend) -> Catalogue:
    """What the models and guards make in an empty database, which stays empty."""
    found: list[Catalogue] = []
    with suppress(Undo), backend.migration(1) as connection:
        METADATA.create_all(connection)
        for statement in postgres_functions() if backend.name == "postgresql" else ():
            connection.exec_driver_sql(statement)
        for guard in GUARDS:
            for statement in statements_of(guard, backend.name):
                connection.exec_driver_sql(statement)
        for reaction in REACTIONS:
            for statement in reacting(reaction, backend.name):
                connection.exec_driver_sql(statement)
        for derived in DERIVED_ROWS:
            for statement in deriving(derived, backend.name):
                connection.exec_driver_sql(statement)
        found.append(backend.catalogue(connection))
        raise Undo
    return found[0]


def test_the_migrated_schema_is_the_declared_one(place: Place) -> None:
    """migrations MG-14: tables, columns, types, defaults, indexes, predicates, directions, triggers, comments."""
    backend = place.backend()
    expected = declared(backend)
    migrate(backend)
    assert differences(catalogue(backend), expected) == []


def test_autogenerate_finds_nothing_to_do(place: Place) -> None:
    """migrations MG-14: Alembic's own comparison."""
    backend = place.at()

    def compared(connection: Connection) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*expression-based index")  # the test above compares them
            return compare_metadata(MigrationContext.configure(connection, opts=options(connection.dialect)), METADATA)

    assert with_connection(backend, compared) == []


DUE = "CREATE INDEX ix_approvals_due ON workflow_approvals (expires_at)"
STARTED = "CREATE INDEX idx_workflow_runs_started_at ON workflow_runs (started_at)"
RUNNING = "CREATE INDEX uq_maintenance_receipts_running ON maintenance_receipts (kind, scope) WHERE state = 'running'"
DRIFT = {
    "a predicate": ("DROP INDEX ix_approvals_due", DUE),
    "a direction": ("DROP INDEX idx_workflow_runs_started_at", STARTED),
    "uniqueness": ("DROP INDEX uq_maintenance_receipts_running", RUNNING),
    "an extra column": ("ALTER TABLE executions ADD COLUMN extra TEXT",),
    "an extra table": ("CREATE TABLE extra (id TEXT)",),
    "an extra view": ("CREATE VIEW extra AS SELECT id FROM executions",),
}


@with_each("kind", DRIFT)
def test_a_catalogue_shows(place: Place, kind: str) -> None:
    """migrations MG-14: what Alembic's comparison misses."""
    backend = place.at()
    before = catalogue(backend)
    with_connection(backend, lambda connection: [connection.execute(text(sql)) for sql in DRIFT[kind]])
    assert differences(catalogue(backend), before)


def test_a_catalogue_shows_a_lost_trigger(place: Place) -> None:
    """migrations MG-14."""
    backend = place.at()
    before = catalogue(backend)
    on = " ON workflow_runs" if place.name == "postgresql" else ""
    with_connection(backend, lambda c: c.execute(text(f"DROP TRIGGER workflow_runs_context_is_immutable{on}")))
    (line,) = differences(catalogue(backend), before)
    assert line.startswith('trigger workflow_runs workflow_runs_context_is_immutable: expected "CREATE TRIGGER ')


def test_a_catalogue_shows_a_trigger_switched_off(postgres_place: Place) -> None:
    """migrations MG-14, Postgres: a disabled trigger still exists, and one that fires on replicas too is the same."""
    backend = postgres_place.at()
    before = catalogue(backend)
    with_connection(backend, lambda c: c.execute(text("ALTER TABLE scores ENABLE ALWAYS TRIGGER scores_no_delete")))
    assert differences(catalogue(backend), before) == []
    with_connection(backend, lambda c: c.execute(text("ALTER TABLE executions DISABLE TRIGGER executions_no_delete")))
    (line,) = differences(catalogue(backend), before)
    assert line.endswith(' DISABLED"')


def test_a_catalogue_shows_a_changed_comment(postgres_place: Place) -> None:
    """migrations MG-5, Postgres."""
    backend = postgres_place.at()
    before = catalogue(backend)
    with_connection(backend, lambda c: c.execute(text("COMMENT ON TABLE executions IS 'mine'")))
    (line,) = differences(catalogue(backend), before)
    assert line.endswith("found 'mine'")


def test_the_schema_name_is_no_part_of_a_catalogue(postgres_place: Place) -> None:
    """migrations MG-29: two schemas of one database hold the same tables."""
    one = postgres_place.at()
    other = postgres_place.backend(schema='Odd "name"')
    migrate(other)
    assert differences(catalogue(one), catalogue(other)) == []


def test_columns_added_behind_are_no_loss() -> None:
    before = {("order", "runs", ""): "id, name", ("column", "runs", "id"): "TEXT"}
    after = {**before, ("order", "runs", ""): "id, name, owner", ("column", "runs", "owner"): "TEXT"}
    assert lost(before, after) == []
    assert lost(after, before) == [
        "column runs owner: was 'TEXT', is None",
        "order runs: was 'id, name, owner', is 'id, name'",
    ]


def test_the_version_table_is_no_part_of_the_schema(place: Place) -> None:
    backend = place.at("0001")
    with backend.migration(1) as connection:
        whole = backend.catalogue(connection)
    assert {entry[1] for entry in whole.keys() - without_version(whole).keys()} == {VERSION_TABLE}
