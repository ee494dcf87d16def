"""backends B-82: connections that the server ends, servers that restart, and answers that never arrive. (Postgres)"""

import time

import pytest
from support.answers import dropped_answers
from support.faults.promises import Promises, names, under_load, write
from support.restarting import FAST, IMMEDIATE, restartable_server

from lastlight_state import Settings, StateStore
from lastlight_state.errors import BackendUnavailable
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")
KILL = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5
"""
#: How often connections are ended at least.
SCALE = [pytest.param(20, id="20"), pytest.param(400, id="400", marks=pytest.mark.soak)]


@pytest.mark.parametrize("least", SCALE)
def test_connections_killed_under_load_lose_nothing_and_double_nothing(postgres_database: Database, least: int) -> None:
    """backends B-82: both are retried or surface as `BackendUnavailable`."""
    killer = postgres_database.raw()
    kills = 0

    def kill() -> None:
        nonlocal kills
        kills += len(killer.execute(KILL).fetchall())
        time.sleep(0.02)

    store = postgres_database.open()
    promises = under_load(store, lambda promises: kills > least and len(promises.kept) > 2 * least, kill)
    promises.hold(names(store))
    write(store, after := Promises(), "after")
    assert len(after.kept) == 3


@pytest.mark.parametrize("restarts", [pytest.param(4, id="4"), pytest.param(40, id="40", marks=pytest.mark.soak)])
def test_a_server_restarted_under_load_loses_nothing_and_doubles_nothing(restarts: int) -> None:
    """backends B-82: survived by the pool, and no committed write is lost or doubled."""
    with restartable_server() as server, StateStore.open(server.url, migrate=True) as store:
        ways = [FAST, IMMEDIATE] * restarts

        def restart() -> None:
            time.sleep(0.3)
            server.restart(ways.pop())

        promises = under_load(store, lambda promises: len(ways) <= restarts and len(promises.kept) > 20, restart)
        promises.hold(names(store))
        write(store, after := Promises(), "after")
        assert len(after.kept) == 3


def test_while_the_server_is_away_calls_are_unavailable_and_afterwards_they_are_not() -> None:
    """backends B-82."""
    with restartable_server() as server, StateStore.open(server.url, migrate=True) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        server.stop()
        for call in (lambda: store.workflows.runs.get(run.id), lambda: store.transaction().__enter__()):
            with pytest.raises(BackendUnavailable) as raised:
                call()
            assert raised.value.outcome == "none"
        server.start()
        assert store.workflows.runs.get(run.id) == run


def test_a_commit_whose_answer_was_lost_is_not_repeated_unless_it_is_repeatable(postgres_database: Database) -> None:
    """backends B-51: a COMMIT of unknown outcome."""
    with dropped_answers(postgres_database.url) as (url, drop):
        store = postgres_database.open()
        with StateStore.open(url, settings=Settings(pool_size=1)) as far:
            drop("COMMIT\0")
            with pytest.raises(BackendUnavailable) as raised:
                far.run(lambda tx: tx.workflows.runs.create("transaction", trigger=TRIGGER, phase="p"))
            assert raised.value.outcome == "unknown"
            assert names(store) == ["transaction"]

            drop("COMMIT\0")
            ensured = far.workflows.runs.ensure("key", "by key", trigger=TRIGGER, phase="p")
            assert not ensured.created
            assert sorted(names(store)) == ["by key", "transaction"]

            drop("INSERT")
            with pytest.raises(BackendUnavailable) as raised:
                far.workflows.runs.create("statement", trigger=TRIGGER, phase="p")
            assert raised.value.outcome == "unknown"
            assert sorted(names(store)) == ["by key", "statement", "transaction"]
            assert far.metrics.retries == 1


def test_a_read_whose_answer_was_lost_is_simply_repeated(postgres_database: Database) -> None:
    """backends B-51."""
    with dropped_answers(postgres_database.url) as (url, drop), StateStore.open(url) as far:
        run = far.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        drop("SELECT")
        assert far.workflows.runs.get(run.id) == run
        assert far.metrics.retries == 1
