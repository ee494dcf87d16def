"""A service's own role on Postgres: it works with outputs and changes no table."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy.engine import make_url
from support.outputs.shapes import Analysis, Grown, a_run

from lastlight_state import StateStore, migrations
from lastlight_state.errors import NotMigrated, ReadOnlyTransaction
from lastlight_state.outputs import CacheKey
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect

HARM = (
    "ALTER TABLE analysis ADD COLUMN mine text",
    "DROP TABLE analysis",
    "CREATE TABLE mine (n int)",
    "TRUNCATE analysis",
    "DELETE FROM output_history",
    "DELETE FROM run_inputs",
    "UPDATE output_history SET value = '{}'",
)


@pytest.fixture
def owner(postgres_database: Database) -> StateStore:
    """A store of the tables' owner, with one output defined."""
    store = postgres_database.open(migrate=True)
    store.outputs.define("analysis", Analysis)
    return store


@pytest.fixture
def service_url(postgres_database: Database, owner: StateStore) -> Iterator[str]:
    """The same database as a role sees it that has the rights of a service and no others."""
    role, raw = f"service_{uuid4().hex[:8]}", postgres_database.raw()
    raw.execute(f"CREATE ROLE {role} LOGIN")
    raw.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # before version 15 everybody may create tables there
    for statement in migrations.grants(owner.backend, role):
        raw.execute(statement)
    yield make_url(postgres_database.url).set(username=role).render_as_string(hide_password=False)
    raw.execute(f"DROP OWNED BY {role}")
    raw.execute(f"DROP ROLE {role}")


def test_a_service_works_with_outputs_and_defines_what_is_there(service_url: str) -> None:
    """outputs M-7, case 12, case 55: every call but those that change tables."""
    with StateStore.open(service_url) as store:
        outputs, run_id = store.outputs, a_run(store)
        made = outputs.define("analysis", Analysis)
        outputs.inputs.ensure(run_id, {"a": 1})
        outputs.inputs.override(run_id, {"a": 2}, expected_revision=0, reason="wider")
        for summary in ("first", "second"):
            outputs.results.put(made, run_id, "n", {"summary": summary})
        outputs.cache.ensure(CacheKey("audit", "n", 1), made, {"summary": "kept"})
        assert outputs.snapshot.load(run_id).get(made, "n").data["summary"] == "second"
        assert outputs.query.rows("SELECT summary FROM analysis").rows == (("second",),)
        outputs.results.withdraw(made, run_id, "n", reason="reset")
        assert len(outputs.results.history(made, run_id, "n")) == 2
        assert outputs.cache.clear(workflow_name="audit") == 1


def test_what_is_missing_is_said_and_not_made(service_url: str, owner: StateStore) -> None:
    """outputs M-7, case 12: a column, and a table; the plan can be read."""
    with StateStore.open(service_url) as store:
        for key, model, missing in (("analysis", Grown, "column analysis.score"), ("other", Analysis, "table other")):
            with pytest.raises(NotMigrated) as refusal:
                store.outputs.define(key, model)
            assert refusal.value.missing == (missing,)
            assert store.outputs.catalog.plan(key, model).sql
    assert [one.key for one in owner.outputs.catalog.list()] == ["analysis"]


def test_a_service_changes_no_table_and_no_history(service_url: str, owner: StateStore) -> None:
    """outputs O-1, A-2, case 55: not by SQL of its own either."""
    made, run_id = owner.outputs.catalog.get("analysis"), a_run(owner)
    for summary in ("first", "second"):
        owner.outputs.results.put(made, run_id, "n", {"summary": summary})
    with connect(service_url) as driver:
        for statement in HARM:
            with pytest.raises(psycopg.Error):
                driver.execute(statement)
    with StateStore.open(service_url) as store, pytest.raises(ReadOnlyTransaction):
        store.outputs.query.rows("WITH gone AS (DELETE FROM analysis RETURNING 1) SELECT * FROM gone")
    assert owner.outputs.results.count(made) == len(owner.outputs.results.history(made, run_id, "n")) == 1
