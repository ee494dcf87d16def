"""Servers that hang, or are cut off: nothing comes from them any more, and the connection stays open."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Timer

import psycopg
import pytest

from lastlight_state import Settings, StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.postgres import pool
from lastlight_state.errors import BackendUnavailable, InvalidValue
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Trigger

SHORT = Settings(statement_timeout=0.2, pool_size=1)


@pytest.fixture(autouse=True)
def little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "GRACE_SECONDS", 0.3)


@contextmanager
def stopped(database: Database, name: str) -> Iterator[None]:
    """Stop the server's processes of the connections with this name."""
    with closing(connect(database.url)) as raw:
        sql = "SELECT pid FROM pg_stat_activity WHERE application_name = %s"
        pids = [int(pid) for (pid,) in raw.execute(sql, (name,)).fetchall()]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_server_that_hangs_is_left_for_another_connection(postgres_database: Database) -> None:
    """cluster CL-1: what reads, and what finds what it wrote, is made again there."""
    url = postgres_database.url + "&application_name=hangs"
    with StateStore.open(url, settings=SHORT) as store:
        run = store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p")
        with stopped(postgres_database, "hangs"):
            began = time.monotonic()
            assert store.workflows.runs.get(run.id) == run
            assert time.monotonic() - began < 10
        with stopped(postgres_database, "hangs"):
            store.workflows.overrides.put("w", enabled=True)


@pytest.mark.plain_postgres("counts statements, and a chain is two there")
def test_a_write_that_a_silent_server_got_has_an_unknown_outcome(postgres_database: Database) -> None:
    """cluster CL-1: for nobody knows whether it was carried out."""
    url = postgres_database.url + "&application_name=hangs"
    with StateStore.open(url, settings=SHORT) as store:
        store.workflows.runs.list()
        with stopped(postgres_database, "hangs"), pytest.raises(BackendUnavailable, match="silent for") as raised:
            store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p")
        assert raised.value.outcome == "unknown"
        assert len(store.workflows.runs.list()) <= 1


def test_a_coroutine_leaves_a_server_that_hangs(postgres_database: Database) -> None:
    """cluster CL-1."""

    async def work() -> None:
        url = postgres_database.url + "&application_name=hangs"
        async with await AsyncStateStore.open(url, settings=SHORT) as store:
            run = await store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p")
            with stopped(postgres_database, "hangs"):
                assert await store.workflows.runs.get(run.id) == run

    asyncio.run(work())


def test_a_question_may_take_as_long_as_it_says(postgres_database: Database) -> None:
    """cluster CL-1: a server that works is not one that hangs."""
    with StateStore.open(postgres_database.url, settings=SHORT) as store:
        store.workflows.runs.list()
        with store.view() as view:
            unit = view._scope.unit
            store.backend.ask(unit, "SELECT pg_sleep(0.8)", {}, limit=1, timeout=5)
        with pytest.raises(BackendUnavailable, match="timeout"), store.view() as view:
            view._scope.unit.control("SELECT pg_sleep(0.8)")


def test_after_a_question_the_usual_limit_holds(postgres_database: Database) -> None:
    """cluster CL-1: a short question makes no later statement of its view one that hangs."""
    with StateStore.open(postgres_database.url) as store, store.view() as view:
        unit = view._scope.unit
        store.backend.ask(unit, "SELECT 1", {}, limit=1, timeout=0.1)
        unit.control("SELECT pg_sleep(0.8)")


def test_a_migration_and_a_vacuum_take_as_long_as_they_take(postgres_database: Database) -> None:
    """cluster CL-1: the store's limit of a statement is not theirs, and is in force again afterwards."""
    with StateStore.open(postgres_database.url, settings=SHORT) as store:
        with store.backend.migration(5) as connection:
            connection.exec_driver_sql("SELECT pg_sleep(0.8)")
        with closing(connect(postgres_database.url)) as raw:
            raw.execute("BEGIN; LOCK TABLE workflow_runs IN ACCESS EXCLUSIVE MODE")
            ending = Timer(0.8, raw.execute, ("ROLLBACK",))
            ending.start()
            began = time.monotonic()
            with Checkout(Mode.ONE, store.backend) as checkout:
                store.backend.vacuum(checkout, ["workflow_runs"], analyze=False, full=True)
            assert time.monotonic() - began > 0.6
            ending.join()
        with pytest.raises(BackendUnavailable, match="timeout"), store.view() as view:
            view._scope.unit.control("SELECT pg_sleep(0.8)")


@pytest.mark.parametrize(("before", "after"), [("off", "on"), ("remote_apply", "remote_apply")])
def test_a_full_commit_waits_for_the_disk_whatever_the_role_does(
    postgres_database: Database, before: str, after: str
) -> None:
    """cluster CL-2: and weakens no setting that waits for more."""
    url = f"{postgres_database.url}&options=-csynchronous_commit%3D{before}"
    for durability, found in (("normal", before), ("full", after)):
        with StateStore.open(url, durability=durability) as store, store.view() as view:
            row = view.connection.exec_driver_sql("SHOW synchronous_commit").one()
            assert row == (found,)


def test_full_durability_is_refused_behind_a_pooler(postgres_database: Database) -> None:
    """cluster CL-2: which would not keep it."""
    with pytest.raises(InvalidValue, match="set synchronous_commit for the role"):
        StateStore.open(postgres_database.url, durability="full", settings=Settings(pooler="transaction"))


def test_a_connection_that_cannot_be_made_durable_is_closed(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cluster CL-2: and the error is told."""
    monkeypatch.setattr("lastlight_state.backends.postgres.connections._FULL", "SELECT no_such_column")
    url = postgres_database.url + "&application_name=durable"
    with pytest.raises(Exception, match="refused a statement"):
        StateStore.open(url, durability="full")
    with closing(psycopg.connect(postgres_database.url.replace("+psycopg", ""))) as raw:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'durable'"
        assert raw.execute(sql).fetchone() == (0,)
