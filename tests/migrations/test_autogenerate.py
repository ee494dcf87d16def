from __future__ import annotations

import warnings
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Index, MetaData, Table, Text
from sqlalchemy.engine import Connection
from support.each import with_each
from support.migrations.support import Place, with_connection

from lastlight_state.migrations import include_object, migrate


def proposals(place: Place, metadata: MetaData, *made: str, **options: Any) -> list[Any]:
    """What a host application's autogenerate would do to a database that holds our tables, and those of ``made``."""
    backend = place.at()
    for statement in made:
        place.raw().execute(statement)

    def compared(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True, **options})
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*expression-based index")
            found: list[Any] = compare_metadata(context, metadata)
        return found

    result: list[Any] = with_connection(backend, compared)
    return result


def test_a_host_is_proposed_nothing_about_our_tables(place: Place) -> None:
    """migrations MG-52."""
    assert proposals(place, MetaData(), include_object=include_object) == []


def test_without_the_filter_it_would_drop_them(place: Place) -> None:
    """migrations MG-52: why there is one."""
    assert {"remove_table", "remove_index"} == {proposal[0] for proposal in proposals(place, MetaData())}


def test_a_host_is_still_proposed_what_is_its_own(place: Place) -> None:
    """migrations MG-52."""
    metadata = MetaData()
    Table("orders", metadata, Column("id", Text, primary_key=True), Column("owner", Text), Index("ix_orders", "owner"))
    found = [proposal[0] for proposal in proposals(place, metadata, include_object=include_object)]
    assert found == ["add_table", "add_index"]


def test_a_host_is_proposed_nothing_about_output_tables(place: Place) -> None:
    """migrations MG-52, outputs case 55: which stand in no model of the library."""
    table = (
        "CREATE TABLE analysis (run_id TEXT NOT NULL, node_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0, "
        "row_created_at TEXT NOT NULL, row_updated_at TEXT NOT NULL, summary TEXT, "
        "PRIMARY KEY (run_id, node_id, iteration))"
    )
    index = "CREATE INDEX ix_analysis_written ON analysis (row_created_at)"
    assert proposals(place, MetaData(), table, index, include_object=include_object) == []


@with_each(
    "columns",
    [
        "id TEXT PRIMARY KEY, row_created_at TEXT, row_updated_at TEXT",
        "run_id TEXT, node_id TEXT, iteration INTEGER, row_created_at TEXT, PRIMARY KEY (run_id, node_id, iteration)",
    ],
    ids=["another key", "without one of the times"],
)
def test_a_table_that_only_resembles_an_output_is_the_hosts(place: Place, columns: str) -> None:
    """migrations MG-52."""
    [found] = proposals(place, MetaData(), f"CREATE TABLE theirs ({columns})", include_object=include_object)
    assert (found[0], found[1].name) == ("remove_table", "theirs")


def test_a_table_of_the_hosts_may_have_one_of_our_names_elsewhere(postgres_place: Place) -> None:
    """migrations MG-52, Postgres: in another schema it is compared, added and removed as any other."""
    metadata = MetaData()
    Table("executions", metadata, Column("id", Text, primary_key=True), schema="billing")
    made = ("CREATE SCHEMA billing", "CREATE TABLE billing.scores (id text PRIMARY KEY)")
    found = proposals(postgres_place, metadata, *made, include_object=include_object, include_schemas=True)
    assert [(proposal[0], proposal[1].fullname) for proposal in found] == [
        ("add_table", "billing.executions"),
        ("remove_table", "billing.scores"),
    ]


def test_our_tables_are_known_in_a_schema_of_their_own(postgres_place: Place) -> None:
    """migrations MG-52, Postgres: by their comments; the host's table of an equal name is the host's."""
    migrate(postgres_place.backend(schema="agents"))
    metadata = MetaData()
    Table("executions", metadata, Column("id", Text, primary_key=True))
    with postgres_place.backend().migration(1) as connection:
        context = MigrationContext.configure(
            connection, opts={"include_object": include_object, "include_schemas": True}
        )
        found = compare_metadata(context, metadata)
    assert [(proposal[0], proposal[1].fullname) for proposal in found] == [("add_table", "executions")]
