"""Databases of other programs on a Postgres server."""

from __future__ import annotations

from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.maintenance import shapes

from lastlight_state.errors import BackendUnavailable, Conflict, InvalidValue
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Failure

AT = "2026-08-01T10:00:00.000Z"
_RUN = (
    "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at, context)"
    " VALUES (%s, 'build', 't', 'p', %s, %s, %s)"
)


@pytest.fixture
def server(postgres_url: str) -> str:
    """The URL of a database with the tables of the first original system, and one run."""
    [version] = shapes.versions("lastlight-postgres")
    with connect(postgres_url) as raw:
        raw.execute(shapes.statements(shapes.tables("lastlight-postgres", version)))
        raw.execute(_RUN, ["r1", AT, AT, '{"a": 1.5, "big": 12345678901234567890}'])
    return postgres_url


def test_a_run_on_a_server_is_imported_and_followed(store: Any, server: str) -> None:
    """maintenance M-96: read only, as often as it is called, and what was changed here stays and is named."""
    imports = store.maintenance.imports
    assert imports.detect(server) == "lastlight-db"
    assert imports.run(server).units == {"imported": 1}
    assert store.workflows.runs.get("r1").context == {"a": 1.5, "big": 12345678901234567890}
    with connect(server) as raw:
        raw.execute("UPDATE workflow_runs SET current_phase = 'q', updated_at = '2026-08-01T11:00:00.000Z'")
    assert imports.run(server).units == {"grown": 1}
    assert store.workflows.runs.get("r1").current_phase == "q"
    store.workflows.runs.finish("r1", "failed", failure=Failure("here"))
    with connect(server) as raw:
        raw.execute("UPDATE workflow_runs SET status = 'succeeded', finished_at = updated_at")
    done = imports.run(server)
    assert (done.noticed, [one.unit for one in done.conflicts]) == ({"row_kept": 1}, ["workflow_runs/r1"])
    assert store.workflows.runs.get("r1").status == "failed"


def test_a_password_in_the_url_of_a_source_shows_nowhere(store: Any, server: str) -> None:
    """maintenance M-96: neither in a receipt nor in an error."""
    secret = server.replace("postgres@", "postgres:hush@")
    done = store.maintenance.imports.run(secret)
    assert "hush" not in repr(store.receipts.get(done.receipt.id).model_dump())
    with connect(server) as raw:
        raw.execute("DROP TABLE workflow_runs, executions, messaging_sessions CASCADE")
    with pytest.raises(Conflict) as refused:
        store.maintenance.imports.run(secret)
    assert (refused.value.code, "hush" in str(refused.value)) == ("unknown_source", False)


def test_views_on_a_server_are_no_tables(store: Any, server: str) -> None:
    """maintenance M-96."""
    with connect(server) as raw:
        raw.execute("ALTER TABLE workflow_runs RENAME TO hidden")
        raw.execute("CREATE VIEW workflow_runs AS SELECT * FROM hidden")
    assert store.maintenance.imports.run(server).units == {}


def test_a_database_of_this_library_is_no_source(store: Any, shared_postgres: Database) -> None:
    """maintenance M-96."""
    with pytest.raises(Conflict, match="no known source"):
        store.maintenance.imports.detect(shared_postgres.url)


def test_what_is_no_source_on_a_server_is_refused_by_name(store: Any, server: str) -> None:
    """maintenance M-96."""
    imports = store.maintenance.imports
    with pytest.raises(InvalidValue, match="lionagi-db is read from files"):
        imports.plan(server, kind="lionagi-db")
    with pytest.raises(InvalidValue, match="mysql"):
        imports.detect("mysql://host/database")
    with pytest.raises(BackendUnavailable):
        imports.detect("postgresql://nobody@127.0.0.1:1/nothing")


def test_the_command_imports_from_a_url(sqlite_database: Database, server: str) -> None:
    """maintenance M-96, OP-70."""
    said = lastlight_state("import", server, "--url", sqlite_database.url, "--json")
    assert (said.code, said.data["kind"], said.data["units"]) == (0, "lastlight-db", {"imported": 1})


def test_check_and_migrate_name_the_import_for_a_database_that_is_not_taken_over(server: str) -> None:
    """maintenance M-123: in one sentence, and not by all the columns that differ."""
    for verb in ("check", "migrate"):
        said = lastlight_state(verb, "--url", server)
        text = said.out + said.err
        assert (said.code != 0, "lastlight-state import URL" in text, "started_at" in text) == (True, True, False)
