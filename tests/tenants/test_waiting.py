"""Migrations of tenants that wait, and the connections that they leave to other callers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from support.tenants import make_tenants

from lastlight_state import Settings, StateStore, Tenants
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.migrations import apply
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import RunOptions, Trigger

TRIGGER = Trigger(type="cli", id="t")


def create(store: StateStore, run_id: str) -> None:
    store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id=run_id))


def execute(url: str, *statements: str) -> None:
    with connect(url) as driver:
        for statement in statements:
            driver.execute(statement)


def test_a_migration_that_waits_holds_no_connection(url: str, tmp_path: Path) -> None:
    """tenants TN-18: other calls of the process go on."""
    make_tenants(url, ["held", "free"])
    execute(url, "DROP INDEX held.ix_workflow_runs_waiting")
    with (
        Tenants.open(url, settings=Settings(pool_size=1, pool_timeout=5.0, state_dir=tmp_path)) as tenants,
        tenants.store("free") as store,
        closing(open_backend(url, Options(schema="held"))) as backend,
        ThreadPoolExecutor(1) as threads,
    ):
        with backend.migration(1.0):
            report = threads.submit(tenants.migrate, ["held"], lock_timeout=60.0)
            for number in range(20):
                create(store, f"r-{number}")
            assert not report.done()
        assert report.result().migrated == ("held",)


def test_many_migrations_leave_a_connection_to_others(url: str, tmp_path: Path) -> None:
    """tenants TN-18: they wait for one another with a connection each, because Alembic serves one thread at a time."""
    make_tenants(url, ["a", "b", "c", "d"])
    execute(url, *(f"DROP INDEX {name}.ix_workflow_runs_waiting" for name in ("a", "b", "c")))
    with (
        Tenants.open(url, settings=Settings(pool_size=3, pool_timeout=5.0, state_dir=tmp_path)) as tenants,
        tenants.store("d") as store,
        ThreadPoolExecutor(1) as threads,
    ):
        with apply.environment_kept():
            report = threads.submit(tenants.migrate, workers=8)
            for number in range(20):
                create(store, f"r-{number}")
            assert not report.done()
        assert report.result().migrated == ("a", "b", "c")
