"""Citus is known by what its catalogs say. They are made by hand here: ``make citus`` runs the tests on a real one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import make_url
from support.cli.calls import lastlight_state
from support.messaging.chat import started

from lastlight_state import Settings, StateStore
from lastlight_state.errors import NotSupported
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import Trigger

pytestmark = pytest.mark.plain_postgres("makes the catalogs of Citus by hand")


def says(url: str, *, group: int, distributed: bool) -> None:
    """Let a database of plain Postgres say that it is a server of Citus."""
    with connect(url) as connection:
        connection.execute("SET allow_system_table_mods = on")
        connection.execute("SET search_path = pg_catalog")
        connection.execute("CREATE TABLE pg_catalog.pg_dist_local_group AS SELECT %s AS groupid", (group,))
        connection.execute(
            "CREATE TABLE pg_catalog.pg_dist_node AS SELECT 0 AS groupid, 'first.example' AS nodename, 6000 AS nodeport"
        )
        connection.execute(
            "CREATE TABLE pg_catalog.pg_dist_schema AS SELECT oid AS schemaid FROM pg_namespace "
            "WHERE nspname = 'public' AND %s",
            (distributed,),
        )
        connection.execute(
            "INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) "
            "SELECT 99999, 'citus', extowner, extnamespace, false, '13.2-1' FROM pg_extension LIMIT 1"
        )


def test_a_worker_is_refused_by_name_and_names_the_coordinator(postgres_database: Database) -> None:
    """backends B-198: whether it has our schema or not."""
    says(postgres_database.url, group=2, distributed=True)
    message = "is a worker of Citus 13.2-1, .* connect to the coordinator at first.example:6000"
    with pytest.raises(NotSupported, match=message):
        StateStore.open(postgres_database.url)
    with pytest.raises(NotSupported, match=message):
        StateStore.open(postgres_database.url, schema="elsewhere", migrate=True)
    with StateStore.open(settings=Settings(url=postgres_database.url, any_server=True)) as store:
        assert list(store.workflows.runs.list()) == []


def test_an_empty_database_of_a_worker_is_refused(postgres_url: str) -> None:
    """backends B-198: nothing is made there."""
    says(postgres_url, group=1, distributed=False)
    with pytest.raises(NotSupported, match="is a worker of Citus"):
        StateStore.open(postgres_url, migrate=True)
    with connect(postgres_url) as connection:
        assert connection.execute("SELECT to_regclass('workflow_runs')").fetchone() == (None,)


@pytest.mark.parametrize("distributed", [True, False])
def test_a_chain_is_two_statements_where_the_schema_is_distributed(
    postgres_database: Database, distributed: bool
) -> None:
    """backends B-198: passed on as a whole, one takes longer than two."""
    says(postgres_database.url, group=0, distributed=distributed)
    with postgres_database.open() as store:
        assert store.backend.writes_in_ctes is not distributed
        run = store.workflows.runs.create("w", trigger=Trigger("t"), phase="p")
        assert [store.journal.events.append(run.id, "e", {"n": number}).seq for number in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("platform_id", ["p", None])
def test_appends_to_a_chat_wait_for_one_another_where_the_schema_is_distributed(
    postgres_database: Database, platform_id: str | None
) -> None:
    """messaging M-32, M-33: Citus has many writers at a time, though a chain is two statements there."""
    says(postgres_database.url, group=0, distributed=True)
    with postgres_database.open() as store, ThreadPoolExecutor(1) as threads:
        chat = started(store).id

        def append() -> int:
            made = store.messaging.messages.append(chat, role="user", content="a", platform_message_id=platform_id)
            return made.message.id

        with store.transaction() as tx:
            made = tx.messaging.messages.append(chat, role="user", content="a", platform_message_id=platform_id)
            later = threads.submit(append)
            with pytest.raises(TimeoutError):
                later.result(timeout=0.5)
        expected = [made.message.id] if platform_id else [made.message.id, later.result()]
        assert later.result() == expected[-1]
        assert [message.id for message in store.messaging.messages.since(chat, after=0)] == expected


def test_check_says_what_the_server_is_and_how_it_is_set(postgres_database: Database) -> None:
    """backends B-198."""
    says(postgres_database.url, group=0, distributed=True)
    url = make_url(postgres_database.url).render_as_string(hide_password=False)
    told = lastlight_state("check", "--url", url)
    assert "the coordinator of Citus 13.2-1, schema distributed" in " ".join(told.out.split())


@pytest.mark.parametrize("distributed", [True, False])
def test_the_doctor_says_what_the_server_is_and_what_is_amiss(postgres_database: Database, distributed: bool) -> None:
    """backends B-198: nothing on a server that is not Citus."""
    with postgres_database.open() as store:
        assert not store.maintenance.doctor.examine(only=["DOC-19"]).findings
    says(postgres_database.url, group=0, distributed=distributed)
    with connect(postgres_database.url) as connection:
        for setting in ("schema_based_sharding", "unsafe_triggers"):
            name = make_url(postgres_database.url).database
            connection.execute(f"ALTER DATABASE {name} SET citus.enable_{setting} = 'on'")
    with postgres_database.open() as store:
        [finding] = store.maintenance.doctor.examine(only=["DOC-19"]).findings
    assert "the coordinator of Citus 13.2-1" in finding.message
    assert finding.severity == ("info" if distributed else "warning")
    assert ("the schema is not distributed" in finding.samples) is not distributed


def test_the_doctor_warns_of_settings_that_distribution_needs(postgres_database: Database) -> None:
    """backends B-198."""
    says(postgres_database.url, group=2, distributed=True)
    with StateStore.open(settings=Settings(url=postgres_database.url, any_server=True)) as store:
        [finding] = store.maintenance.doctor.examine(only=["DOC-19"]).findings
    assert finding.severity == "warning"
    assert len(finding.samples) == 3
