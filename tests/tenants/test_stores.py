"""Stores of many tenants over one pool of connections."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from sqlalchemy import create_engine, select
from support.each import with_each
from support.sealing import Xor
from support.tenants import make_tenants

from lastlight_state import AsyncTenants, Settings, Tenants
from lastlight_state.backends.base import Mode
from lastlight_state.db.rows.compiled import MOST_KEPT
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.rows.statements import Statement
from lastlight_state.errors import (
    BackendUnavailable,
    InvalidValue,
    NotMigrated,
    NotSupported,
    ReadOnlyTransaction,
    StoreClosed,
)
from lastlight_state.models import WorkflowRunModel
from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import RunOptions, Trigger
from lastlight_state.workflows.shared import run_rows

TRIGGER = Trigger(type="cli", id="t")
NAMES = [f"tenant-{number:02}" for number in range(20)]
POOL = 5
_SESSIONS = """
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'lastlight-state'
"""


class Undone(Exception):
    """What ends a block that is to be undone."""


@pytest.fixture(scope="module")
def many(lastlight_postgres_server: ThrowawayPostgres) -> Iterator[str]:
    """The URL of a database with many tenants."""
    with lastlight_postgres_server.database() as url:
        make_tenants(url, NAMES)
        yield url


@pytest.fixture
def tenants(many: str, tmp_path: Path) -> Iterator[Tenants]:
    with Tenants.open(many, state_dir=tmp_path, settings=Settings(pool_size=POOL)) as opened:
        yield opened


def create(on: Any, run_id: str) -> None:
    on.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id=run_id))


def create_and_fail(run_id: str, on: Any) -> None:
    create(on, run_id)
    raise Undone


def ids_of(store: Any, word: str) -> set[str]:
    """The runs of a store whose ids begin with this word."""
    return {run.id for run in store.workflows.runs.list(limit=500).items if run.id.startswith(word)}


def use_codecs(tenants: Tenants, count: int) -> list[Xor]:
    """Write and read a sealed value with each of these many codecs."""
    codecs = [Xor(number) for number in range(count)]
    for number, codec in enumerate(codecs):
        with tenants.store(NAMES[number % len(NAMES)], codec=codec) as store:
            store.states.put("key", {"number": number})
            assert store.states.get("key").value == {"number": number}
    return codecs


class Killer:
    """Ends connections of the library, one at a time, until the block is left; counts the most that there were."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill)
        self.most = self.killed = 0

    def _kill(self) -> None:
        with connect(self._url) as driver:
            while not self._over.wait(0.02):
                found = [pid for (pid,) in driver.execute(_SESSIONS).fetchall()]
                self.most = max(self.most, len(found))
                if found and self.killed < 40:
                    driver.execute("SELECT pg_terminate_backend(%s::int)", (random.choice(found),))
                    self.killed += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def test_twenty_tenants_share_five_connections_and_no_row(many: str, tenants: Tenants) -> None:
    """tenants TN-1, TN-2: threads, rollbacks, and connections that are killed in the middle."""
    stores = {name: tenants.store(name) for name in NAMES}
    kept: dict[str, set[str]] = {name: set() for name in NAMES}

    def work(number: int) -> None:
        name = NAMES[number % len(NAMES)]
        kept_id, undone_id = f"a-{name}-{number}", f"undone-{name}-{number}"
        try:
            create(stores[name], kept_id)
            kept[name].add(kept_id)
            stores[name].run(partial(create_and_fail, undone_id))
        except (BackendUnavailable, Undone):
            pass

    with Killer(many) as killer, ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(200)))
    assert killer.killed
    assert killer.most <= POOL
    for name, store in stores.items():
        found = ids_of(store, "a-")
        assert kept[name] <= found  # a commit whose answer was lost may be there as well
        assert all(run_id.startswith(f"a-{name}-") for run_id in found)
        assert not ids_of(store, "undone-")


def test_tasks_of_twenty_tenants_share_threads_and_connections(many: str, tmp_path: Path) -> None:
    """tenants TN-1, TN-2, TN-4."""
    asyncio.run(_use_all_from_tasks(many, tmp_path))


async def _use_all_from_tasks(many: str, tmp_path: Path) -> None:
    before = threading.active_count()
    async with await AsyncTenants.open(many, state_dir=tmp_path, settings=Settings(pool_size=POOL)) as tenants:
        stores = {name: await tenants.store(name) for name in NAMES}

        async def work(name: str, number: int) -> None:
            await stores[name].workflows.runs.create(
                "w", trigger=TRIGGER, phase="p", options=RunOptions(id=f"b-{name}-{number}")
            )

        await asyncio.gather(*(work(name, number) for number in range(4) for name in NAMES))
        assert threading.active_count() - before <= 2 * POOL
        await stores[NAMES[0]].close()
        with pytest.raises(StoreClosed):
            await stores[NAMES[0]].workflows.runs.list()
        for name in NAMES[1:]:
            found = await stores[name].workflows.runs.list(limit=500)
            assert {run.id for run in found.items if run.id.startswith("b-")} == {f"b-{name}-{n}" for n in range(4)}
    with pytest.raises(StoreClosed):
        await stores[NAMES[1]].workflows.runs.list()


def test_closing_a_store_leaves_the_connections_to_the_others(many: str, tenants: Tenants) -> None:
    """tenants TN-1."""
    with connect(many) as driver:
        with tenants.store(NAMES[0]) as first:
            create(first, "c-1")
            before = driver.execute(_SESSIONS).fetchall()
        with tenants.store(NAMES[1]) as second:
            assert not ids_of(second, "c-")
        assert driver.execute(_SESSIONS).fetchall() == before
        assert len(before) == 1
        left = tenants.store(NAMES[2])
        tenants.close()
        with pytest.raises(StoreClosed):
            left.workflows.runs.list()
        with pytest.raises(StoreClosed):
            tenants.list()
        for _ in range(500):
            if not driver.execute(_SESSIONS).fetchall():
                break
        else:
            pytest.fail("connections are left")


def test_a_further_tenant_compiles_no_statement(tenants: Tenants) -> None:
    """tenants TN-3."""

    def sizes_after(name: str) -> tuple[int, int]:
        with tenants.store(name) as store:
            create(store, f"d-{name}")
            assert store.workflows.runs.get(f"d-{name}").id == f"d-{name}"
            ids_of(store, "d-")
        return len(run_rows.GET.compiled), SHAPES.size

    assert sizes_after(NAMES[0]) == sizes_after(NAMES[1])


def test_a_codec_that_is_given_again_compiles_no_statement(tenants: Tenants) -> None:
    """tenants TN-3."""
    codec = Xor(7)

    def size_after_opening() -> int:
        with tenants.store(NAMES[0], codec=codec) as store:
            store.workflows.runs.list(limit=1)
        return SHAPES.size

    assert size_after_opening() == size_after_opening()


@pytest.mark.slow
def test_statements_are_kept_for_few_codecs(tenants: Tenants) -> None:
    """tenants TN-7: the memory of many tenants' stores does not grow with their codecs."""
    left = [weakref.ref(codec) for codec in use_codecs(tenants, 3 * MOST_KEPT)]
    assert all(len(each.compiled) <= MOST_KEPT for each in gc.get_objects() if isinstance(each, Statement))
    gc.collect()
    assert sum(codec() is not None for codec in left) <= MOST_KEPT


def test_a_plain_name_that_a_tenant_lacks_is_no_table_of_others(many: str, tenants: Tenants) -> None:
    """tenants TN-2: not in ``public`` either, where the connection would look next."""
    with connect(many) as connection:
        connection.execute("CREATE TABLE public.notes AS SELECT 'secret' AS text")
    with tenants.store(NAMES[0]) as store, pytest.raises(InvalidValue, match="notes"):
        store.outputs.query.rows("SELECT text FROM notes")


def test_a_setting_that_migrates_makes_no_tenant(many: str, tmp_path: Path) -> None:
    """tenants TN-10: a name with a typing error is no tenant."""
    with Tenants.open(many, state_dir=tmp_path, settings=Settings(migrate=True)) as tenants:
        with pytest.raises(NotMigrated):
            tenants.store("tenant-typo")
        assert [tenant.name for tenant in tenants.list()] == NAMES


def test_opening_a_store_is_one_round_trip(many: str) -> None:
    """tenants TN-3."""
    sent: list[str] = []

    class RecordingCursor(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            sent.append(query)
            return super().execute(query, *args, **options)

    with Tenants.open(many, settings=Settings(pool_size=1)) as tenants:
        checkout = tenants.backend.acquire(Mode.READ)
        checkout.driver.cursor_factory = RecordingCursor
        tenants.backend.release(checkout)
        with tenants.store(NAMES[8]):
            assert len(sent) == 1


def test_a_joined_transaction_writes_to_the_tenant_of_its_store(many: str, tenants: Tenants) -> None:
    """tenants TN-2: whatever the search path of the caller's connection is."""
    engine = create_engine(many.replace("postgresql://", "postgresql+psycopg://"))
    with tenants.store(NAMES[3]) as store, tenants.store(NAMES[4]) as other, engine.connect() as connection:
        with connection.begin(), store.transaction(connection=connection) as tx:
            create(tx, "e-1")
            assert tx.workflows.runs.get("e-1").id == "e-1"
        assert ids_of(store, "e-") == {"e-1"}
        assert not ids_of(other, "e-")
    engine.dispose()


def test_the_connection_of_a_transaction_means_the_tables_of_the_tenant(tenants: Tenants) -> None:
    """tenants TN-2: also for statements of the caller's own over the models."""
    with tenants.store(NAMES[5]) as store, tenants.store(NAMES[6]) as other:
        create(store, "f-1")
        for each, expected in ((store, ["f-1"]), (other, [])):
            with each.transaction() as tx:
                found = tx.connection.execute(
                    select(WorkflowRunModel.id).where(WorkflowRunModel.id.like("f-%"))
                ).scalars()
                assert list(found) == expected
            sql = "SELECT id FROM workflow_runs WHERE id LIKE 'f-%'"
            assert [row[0] for row in each.outputs.query.rows(sql).rows] == expected


def test_the_replica_of_a_tenants_store_reads_the_same_tenant_by_the_same_connections(tenants: Tenants) -> None:
    """tenants TN-2."""
    with tenants.store(NAMES[7]) as store:
        create(store, "g-1")
        assert store.replica.backend._pool is store.backend._pool  # type: ignore[attr-defined]
        assert ids_of(store.replica, "g-") == {"g-1"}
        with pytest.raises(ReadOnlyTransaction):
            create(store.replica, "g-2")


def test_a_tenants_files_are_in_a_folder_of_its_own(tenants: Tenants, tmp_path: Path) -> None:
    """tenants TN-5."""
    with tenants.store(NAMES[0]) as first, tenants.store(NAMES[1]) as second:
        assert first.settings.state_dir == tmp_path / "_tenants" / NAMES[0]
        assert second.settings.mailboxes.is_relative_to(tmp_path / "_tenants" / NAMES[1])
    settings = Settings(agent_log_dir=tmp_path / "logs")
    with Tenants.open(tenants.settings.url, settings=settings) as others, others.store(NAMES[0]) as store:
        assert store.settings.agent_sessions == tmp_path / "logs" / "_tenants" / NAMES[0]


@with_each("name", ["", "Upper", "-x", "a.b", "a/b", "..", 'a"b', "a%b", "pg_x", "public", "citus", "x" * 64, 7])
def test_what_is_no_name_of_a_tenant_is_refused(tenants: Tenants, name: Any) -> None:
    """tenants TN-6."""
    for act in (tenants.store, tenants.create, tenants.erase, lambda name: tenants.export(name, "x")):
        with pytest.raises(InvalidValue, match="name"):
            act(name)


def test_a_name_may_begin_as_a_schema_of_the_server(tenants: Tenants) -> None:
    """tenants TN-6."""
    with pytest.raises(NotMigrated):
        tenants.store("publicity")


def test_what_has_no_schemas_has_no_tenants(many: str, tmp_path: Path) -> None:
    """tenants TN-6."""
    with pytest.raises(NotSupported, match="a database of its own"):
        Tenants.open(tmp_path / "x.db")
    with pytest.raises(InvalidValue, match="replica"):
        Tenants.open(many, settings=Settings(replica=many))


def test_a_tenant_that_is_not_there_is_not_opened(tenants: Tenants) -> None:
    """tenants TN-6: and nothing is made."""
    with pytest.raises(NotMigrated):
        tenants.store("nobody")
    assert "nobody" not in [tenant.name for tenant in tenants.list()]
