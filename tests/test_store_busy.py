"""A store whose database is busy, or fails at COMMIT: what is repeated, how often, and what is not."""

import threading
import time
from typing import Any

import pytest
from support.busy import Naps, busy, impatient

from lastlight_state import Settings, StateStore
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.testing import Database
from lastlight_state.workflows import PhaseEntry, Trigger

TRIGGER = Trigger(type="cli", id="t")


def create(on: Any, name: str = "w") -> str:
    made: str = on.workflows.runs.create(name, trigger=TRIGGER, phase="p").id
    return made


def ensure(on: Any, key: str) -> None:
    on.workflows.runs.ensure(key, "w", trigger=TRIGGER, phase="p")


def names(on: Any) -> list[str]:
    return sorted(run.workflow_name for run in on.workflows.runs.list())


def test_a_call_is_repeated_while_the_database_is_busy_and_each_repetition_counts(database: Database) -> None:
    """backends B-50."""
    store = impatient(database)
    naps = Naps(store)
    with busy(database) as holder:
        naps.after[3] = lambda: holder.execute("ROLLBACK")
        run = create(store)
    assert store.workflows.runs.get(run).workflow_name == "w"
    assert (len(naps), store.metrics.retries) == (3, 3)


def test_past_the_budget_a_call_is_busy_and_nothing_is_held(database: Database) -> None:
    """backends B-50, journal T-6: six retries."""
    store = impatient(database)
    naps = Naps(store)
    with busy(database) as holder:
        with pytest.raises(BackendBusy):
            create(store)
        assert (len(naps), store.metrics.retries) == (6, 6)
        holder.execute("ROLLBACK")
        create(store)
    assert names(store) == ["w"]


def test_run_repeats_the_whole_of_its_work_within_one_budget(database: Database) -> None:
    """backends B-52: beginning and working share the six retries."""
    store = impatient(database)
    naps = Naps(store)
    hooks: list[int] = []

    def work(tx: Any) -> str:
        tx.after_commit(lambda: hooks.append(1))
        return create(tx)

    with busy(database) as holder:
        with pytest.raises(BackendBusy):
            store.run(work)
        assert (len(naps), hooks) == (6, [])
        naps.clear()
        naps.after[5] = lambda: holder.execute("ROLLBACK")
        run = store.run(work)
    assert [one.id for one in store.workflows.runs.list()] == [run]
    assert (len(naps), hooks, store.metrics.retries) == (5, [1], 11)


def test_run_gives_back_what_its_work_returned(store: StateStore) -> None:
    """backends B-52."""
    assert store.run(create) == store.workflows.runs.list().items[0].id


def test_the_beginning_of_a_block_is_repeated_and_its_body_is_not(sqlite_database: Database) -> None:
    """backends B-52: a ``with`` block's body cannot be repeated. (SQLite, where beginning may wait)"""
    store = impatient(sqlite_database)
    naps = Naps(store)
    bodies = 0
    with busy(sqlite_database) as holder:
        naps.after[2] = lambda: holder.execute("ROLLBACK")
        with store.transaction() as tx:
            bodies += 1
            create(tx)
    assert (len(naps), bodies, names(store)) == (2, 1, ["w"])


# ---- Waits as they are set -------------------------------------------------------------------------------------------

#: Seconds. A call waits for longer than this when nothing is set, whatever the machine; with these settings for one.
UNSET_WAIT = 25
IMPATIENT = Settings(busy_timeout=0.3, lock_timeout=0.3, retry_seconds=0.5, queue_timeout=0.4, pool_timeout=0.4)


@pytest.mark.parametrize("way", [create, lambda store: store.run(create)], ids=["call", "run"])
def test_a_busy_database_is_given_up_in_the_time_that_is_set(database: Database, way: Any) -> None:
    """backends B-53: twice ``busy_timeout`` and ``retry_seconds`` at most."""
    store = database.open(settings=IMPATIENT)
    with busy(database) as holder:
        begun = time.monotonic()
        with pytest.raises(BackendBusy):
            way(store)
        assert time.monotonic() - begun < UNSET_WAIT
        holder.execute("ROLLBACK")
    create(store)


def test_the_label_is_told_where_the_lock_is_never_acquired(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-44: in the text of the error, in the log and in the metrics."""
    store = database.open(settings=IMPATIENT)
    with busy(database) as holder:
        with pytest.raises(BackendBusy, match="in the transaction 'nightly'"), store.transaction(label="nightly") as tx:
            create(tx)
        with pytest.raises(BackendBusy) as raised:
            store.run(create, label="sweep")
        holder.execute("ROLLBACK")
    assert str(raised.value).endswith("(in the transaction 'sweep')")
    assert store.metrics.of("nightly")["gave_up"] == 1
    assert store.metrics.of("sweep")["gave_up"] == 1
    assert store.metrics.of("sweep")["retries"] > 0
    assert store.metrics.of("other") == {}
    assert "nightly gave up after" in caplog.text
    assert "sweep gave up after" in caplog.text


def test_a_lock_on_postgres_is_waited_for_with_an_end() -> None:
    """backends B-53: nothing waits for ever unless it is asked to."""
    assert (Settings().lock_timeout, Settings().statement_timeout) == (10, 60)
    assert Settings(lock_timeout=None, statement_timeout=None).lock_timeout is None


def test_threads_behind_writers_of_a_locked_file_give_up_in_the_time_that_is_set(sqlite_database: Database) -> None:
    """backends B-53: each in its turn, or tired of waiting for it."""
    store = sqlite_database.open(settings=IMPATIENT)
    ends: list[tuple[float, type[BaseException]]] = []

    def write() -> None:
        try:
            create(store)
        except BackendBusy as error:
            ends.append((time.monotonic(), type(error)))

    with busy(sqlite_database) as holder:
        begun = time.monotonic()
        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        holder.execute("ROLLBACK")
    assert len(ends) == 4
    assert max(ended for ended, _ in ends) - begun < UNSET_WAIT
    create(store)


def test_a_statement_of_a_locked_file_waits_as_long_as_is_set(sqlite_database: Database) -> None:
    """backends B-50, journal T-6: in pieces, and it goes on as soon as the file is free."""
    store = sqlite_database.open(settings=Settings(busy_timeout=20.0))
    naps = Naps(store)
    with busy(sqlite_database) as holder:
        timer = threading.Timer(0.6, lambda: holder.execute("ROLLBACK"))
        timer.start()
        store.workflows.overrides.put("w", enabled=False, by="b", reason="r")
        timer.join()
    assert (naps, store.metrics.retries) == ([], 0)


# ---- COMMIT that fails -----------------------------------------------------------------------------------------------


def test_a_busy_commit_is_rolled_back_and_the_unit_repeated(sqlite_database: Database) -> None:
    """backends B-50. (SQLite: with a rollback journal, a reader keeps a COMMIT waiting.)"""
    store = impatient(sqlite_database, journal_mode="delete")
    naps = Naps(store)
    run = create(store)
    reader = sqlite_database.raw()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM workflow_runs").fetchone()
    naps.after[2] = lambda: reader.execute("ROLLBACK")
    store.workflows.runs.append_phase(run, PhaseEntry("build", True))
    assert (len(naps), store.metrics.retries) == (2, 2)
    assert store.workflows.runs.get(run).phase_count == 1


def test_a_function_whose_commit_was_busy_runs_twice_and_its_data_is_there_once(sqlite_database: Database) -> None:
    """backends B-52, journal T-7."""
    store = impatient(sqlite_database, journal_mode="delete")
    naps, ran = Naps(store), []
    create(store, "before")
    reader = sqlite_database.raw()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM workflow_runs").fetchone()
    naps.after[1] = lambda: reader.execute("ROLLBACK")
    store.run(lambda tx: ran.append(create(tx, "by run")))
    assert (len(ran), names(store), store.metrics.retries) == (2, ["before", "by run"], 1)


def test_a_busy_commit_of_a_block_undoes_it_and_leaves_the_connection_clean(sqlite_database: Database) -> None:
    """backends B-52: a ``with`` block's body cannot be repeated."""
    store = impatient(sqlite_database, journal_mode="delete")
    hooks: list[str] = []
    reader = sqlite_database.raw()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM workflow_runs").fetchone()

    def work() -> None:
        with store.transaction() as tx:
            tx.after_commit(lambda: hooks.append("never"))
            create(tx, "undone")

    with pytest.raises(BackendBusy):
        work()
    reader.execute("ROLLBACK")
    create(store, "next")
    assert (names(store), hooks) == (["next"], [])


AT_COMMIT = """
CREATE SEQUENCE attempts;
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF nextval('attempts') <= {times} THEN {fail}; END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON workflow_runs DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION at_commit();
"""
SERIALISATION = "RAISE EXCEPTION USING ERRCODE = 'serialization_failure'"
DEADLOCK = "RAISE EXCEPTION USING ERRCODE = 'deadlock_detected'"
DISCONNECT = "PERFORM pg_terminate_backend(pg_backend_pid())"


@pytest.mark.parametrize("failure", [SERIALISATION, DEADLOCK])
def test_a_commit_that_postgres_refuses_is_repeated_from_the_beginning(
    postgres_database: Database, failure: str
) -> None:
    """backends B-50: serialisation failure, deadlock."""
    postgres_database.raw().execute(AT_COMMIT.format(times=4, fail=failure))
    store = postgres_database.open()
    naps = Naps(store)
    create(store, "one statement")
    assert store.run(lambda tx: create(tx, "a transaction"))
    assert (len(naps), names(store)) == (4, ["a transaction", "one statement"])


def test_a_commit_of_unknown_outcome_is_repeated_only_when_the_writes_are_repeatable(
    postgres_database: Database,
) -> None:
    """backends B-51."""
    postgres_database.raw().execute(AT_COMMIT.format(times=1, fail=DISCONNECT))
    store = postgres_database.open()
    naps = Naps(store)
    with pytest.raises(BackendUnavailable) as raised:
        store.run(create)
    assert (raised.value.outcome, len(naps)) == ("unknown", 0)
    postgres_database.raw().execute("ALTER SEQUENCE attempts RESTART")
    store.run(lambda tx: ensure(tx, "key"), repeatable=True)
    assert (len(naps), len(names(store))) == (1, 1)
    postgres_database.raw().execute("ALTER SEQUENCE attempts RESTART")
    with pytest.raises(BackendUnavailable, match="closed the connection") as raised:
        create(store)
    assert (raised.value.outcome, len(naps)) == ("unknown", 1)
    postgres_database.raw().execute("ALTER SEQUENCE attempts RESTART")
    ensure(store, "another key")
    assert (len(naps), len(names(store))) == (2, 2)
