"""Behind a PgBouncer that lends connections per transaction."""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from support.pooler import PGBOUNCER, pooled

from lastlight_state import Settings, StateStore
from lastlight_state.errors import InvalidValue
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import RunOptions, Trigger

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="no PgBouncer is installed")

BEHIND = Settings(pooler="transaction")
SERVER_CONNECTIONS = 10


def queued(store: StateStore) -> str:
    trigger = Trigger("t", type="cli")
    return store.workflows.runs.create("w", trigger=trigger, phase="p", options=RunOptions(status="queued")).id


def test_pgbouncer_is_named_unless_the_setting_is_given(postgres_database: Database) -> None:
    """backends B-95."""
    with pooled(postgres_database) as url:
        with pytest.raises(InvalidValue, match="pooler='transaction'"):
            StateStore.open(url)
        with StateStore.open(url, settings=BEHIND) as store:
            assert store.workflows.runs.get(queued(store)).status == "queued"


@pytest.mark.parametrize("clients", [100, pytest.param(500, marks=pytest.mark.soak)])
def test_many_idle_stores_share_few_connections_of_the_server(postgres_database: Database, clients: int) -> None:
    """backends B-130: stores that have worked and are open hold 10 connections, and each goes on."""
    settings = (f"max_client_conn = {clients + 10}", f"default_pool_size = {SERVER_CONNECTIONS}")
    with pooled(postgres_database, *settings) as url, ExitStack() as opened:
        stores = [opened.enter_context(StateStore.open(url, settings=BEHIND, migrate=False)) for _ in range(clients)]
        runs = [queued(store) for store in stores[:20]]
        for store in stores:
            assert store.workflows.runs.get(runs[0]).status == "queued"
        with closing(connect(postgres_database.url)) as raw:
            sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            [held] = raw.execute(sql).fetchone()  # type: ignore[misc]
        assert held <= SERVER_CONNECTIONS
        assert {stores[-1].workflows.queue.admit_next(owner="w", cap=20)[0].run_id} <= set(runs)


def test_workers_behind_it_take_each_run_once_and_pass_no_cap(postgres_database: Database) -> None:
    """backends B-131: no lock, lease or setting of a session is needed for that."""
    with pooled(postgres_database, "default_pool_size = 3") as url:
        taken: list[str] = []
        with StateStore.open(url, settings=BEHIND) as store:
            runs = {queued(store) for _ in range(40)}

        def work(owner: str) -> None:
            with StateStore.open(url, settings=BEHIND) as mine:
                while claims := mine.workflows.queue.admit_next(owner=owner, cap=2, lease=timedelta(minutes=1)):
                    running = mine.workflows.runs.list(statuses=["running"]).items
                    assert len(running) <= 2
                    taken.extend(claim.run_id for claim in claims)
                    mine.workflows.runs.finish(claims[0].run_id, "succeeded", claim=claims[0])

        threads: list[Any] = [Thread(target=work, args=(f"w{i}",)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == sorted(runs)
