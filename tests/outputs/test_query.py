from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, Field
from support.each import with_each
from support.memory import assert_peak_bytes_below
from support.outputs.shapes import a_run

from lastlight_state import Settings, StateStore
from lastlight_state.backends import waiting
from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.errors import BackendUnavailable, InvalidValue, MisuseError, ReadOnlyTransaction
from lastlight_state.ids import new_id
from lastlight_state.testing import Database, FrozenClock


class Found(BaseModel):
    update: str = Field(description="a word that SQL knows")
    at: int = 0


def test_an_analyst_reads_tables_by_their_plain_names(store: StateStore, run_id: str) -> None:
    """outputs A-1: key columns first, joined by run."""
    store.outputs.results.put(store.outputs.define("codeReview", Found), run_id, "n", {"update": "x", "at": 3})
    found = store.outputs.query.rows(
        'SELECT c.*, r.workflow_name FROM code_review c JOIN workflow_runs r ON r.id = c.run_id WHERE "update" = :word',
        {"word": "x"},
    )
    assert found.columns[:3] == ("run_id", "node_id", "iteration")
    assert found.columns[-3:] == ("update", "at", "workflow_name")
    assert found.rows[0][-3:] == ("x", 3, "audit")
    assert not found.truncated


def test_plain_names_mean_the_schema_of_the_store(postgres_database: Database) -> None:
    """outputs A-4: beside tables of the same names in another one."""
    other = postgres_database.open()
    a_run(other)
    with StateStore.open(postgres_database.url, schema="Apart %", migrate=True) as store:
        assert store.outputs.query.rows("SELECT id FROM workflow_runs").rows == ()
        run_id = a_run(store)
        assert store.outputs.query.rows("SELECT id FROM workflow_runs").rows == ((run_id,),)
        assert "workflow_runs" in str(store.outputs.query.explain("SELECT id FROM workflow_runs").rows)
        with store.view() as view:
            path = view.connection.exec_driver_sql("SHOW search_path").scalar()
            view.outputs.query.rows("SELECT 1")
            assert view.connection.exec_driver_sql("SHOW search_path").scalar() == path


def test_times_are_utc_at_rest(database: Database, frozen_clock: FrozenClock) -> None:
    """outputs A-1: ISO text on SQLite."""
    store = database.open(migrate=True)
    frozen_clock.advance(timedelta(milliseconds=7))
    store.outputs.results.put(store.outputs.define("notes", list[int]), a_run(store), "n", [1])
    [(at,)] = store.outputs.query.rows("SELECT row_created_at FROM notes").rows
    expected: Any = frozen_clock.now()
    assert at == (expected if database.name == "postgresql" else expected.isoformat(timespec="milliseconds")[:23] + "Z")


@with_each(
    "sql",
    [
        "SELECT 'drop table notes; -- :nobody' AS \"delete\", 100 % 7",
        "VALUES (1), (2)",
        "WITH q AS (SELECT 1 AS insert_me) SELECT * FROM q",
        "SELECT key FROM output_tables /* update :x */",
        "SELECT 1;",
    ],
)
def test_words_of_a_harmless_query_do_not_matter(store: StateStore, sql: str) -> None:
    """outputs A-2."""
    assert store.outputs.query.rows(sql).columns


@with_each(
    "sql",
    [
        "DELETE FROM notes",
        "INSERT INTO notes (run_id, node_id) VALUES ('x', 'y')",
        "WITH q AS (SELECT 1) REPLACE INTO notes (run_id) SELECT 'x'",
        "WITH gone AS (DELETE FROM notes RETURNING 1) SELECT * FROM gone",
        "DROP TABLE notes",
        "CREATE TABLE evil (x INTEGER)",
        "ATTACH 'evil.db' AS evil",
        "PRAGMA query_only = OFF",
        "PRAGMA wal_checkpoint",
        "COMMIT",
        "SET TRANSACTION READ WRITE",
        "COPY notes TO '/tmp/evil'",
        "SELECT set_config('transaction_read_only', 'off', true)",
    ],
)
def test_the_database_refuses_whatever_writes(database: Database, sql: str) -> None:
    """outputs A-2: nothing is written."""
    store = database.open(migrate=True)
    made = store.outputs.define("notes", list[int])
    store.outputs.results.put(made, a_run(store), "n", [1])
    stored = store.outputs.results.count(made)
    with pytest.raises((ReadOnlyTransaction, InvalidValue)):
        store.outputs.query.rows(sql)
    assert store.outputs.results.count(made) == stored >= 1
    assert not list(database.state_dir.glob("evil.db"))


@pytest.mark.parametrize("sql", ["WITH q AS (SELECT 1) REPLACE INTO notes (run_id) SELECT 'x'", "ATTACH 'e.db' AS e"])
def test_sqlite_says_that_a_query_may_only_read(sqlite_database: Database, sql: str) -> None:
    """outputs A-2."""
    store = sqlite_database.open()
    store.outputs.define("notes", list[int])
    with pytest.raises(ReadOnlyTransaction):
        store.outputs.query.rows(sql)


@with_each(
    "sql", ["", "  ", "-- nothing", "SELECT 1; SELECT 2", "SELECT 1; COMMIT; DROP TABLE notes", "SELECT x FROM nowhere"]
)
def test_one_statement_that_can_be_read_is_expected(store: StateStore, sql: str) -> None:
    """outputs A-2."""
    with pytest.raises(InvalidValue) as refused:
        store.outputs.query.rows(sql)
    assert refused.value.details["where"] == "sql"


def test_the_plan_of_a_statement_is_told_and_nothing_is_run(database: Database) -> None:
    """outputs A-2, maintenance OP-12."""
    explain = database.open(migrate=True).outputs.query.explain
    told = explain("SELECT * FROM workflow_runs WHERE id = :run -- and so on", {"run": "r"})
    assert "workflow_runs" in str(told.rows)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    assert explain(endless).rows


@with_each(
    "sql",
    [
        "ANALYZE DELETE FROM notes",
        "(ANALYZE) SELECT 1",
        "DELETE FROM notes",
        "SELECT 1; DROP TABLE notes",
        "WITH gone AS (DELETE FROM notes RETURNING 1) SELECT * FROM gone",
        "SELECT x FROM nowhere",
        "",
    ],
)
def test_the_plan_of_what_a_query_refuses_is_refused(store: StateStore, sql: str) -> None:
    """outputs A-2."""
    store.outputs.define("notes", list[int])
    with pytest.raises((ReadOnlyTransaction, InvalidValue)):
        store.outputs.query.explain(sql)
    assert store.outputs.query.rows("SELECT count(*) FROM notes").rows == ((0,),)


def test_a_parameter_that_is_missing_is_said(store: StateStore) -> None:
    """outputs A-2."""
    with pytest.raises(InvalidValue):
        store.outputs.query.rows("SELECT :missing AS x")


def test_of_a_million_rows_only_those_of_the_limit_are_held(store: StateStore) -> None:
    """maintenance OP-12: and more are said to be there."""
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) SELECT i FROM n"

    def read() -> None:
        found = store.outputs.query.rows(many, limit=10)
        assert (found.rows[-1], len(found.rows), found.truncated) == ((10,), 10, True)

    assert_peak_bytes_below(2 * 1024 * 1024, read)


def test_rows_and_seconds_are_limited(store: StateStore) -> None:
    """outputs A-2: the row after the last says that there are more."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i FROM n"
    endless = numbers.format("i + 1").replace("SELECT i FROM", "SELECT max(i) FROM")
    found = store.outputs.query.rows(numbers.format(501))
    assert (len(found.rows), found.truncated) == (500, True)
    assert not store.outputs.query.rows(numbers.format(500)).truncated
    with pytest.raises(BackendUnavailable):
        store.outputs.query.rows(endless, timeout=0.2)
    assert store.outputs.query.rows("SELECT 1").rows == ((1,),)


@with_each("timeout", [0, -1, 3_601, True, "5", None, float("nan")])
def test_the_seconds_of_a_query_are_more_than_none_and_at_most_an_hour(store: StateStore, timeout: Any) -> None:
    """outputs A-2."""
    with pytest.raises(InvalidValue, match="timeout"):
        store.outputs.query.rows("SELECT 1", timeout=timeout)
    assert store.outputs.query.rows("SELECT 1", timeout=3_600).rows == ((1,),)


def test_what_a_query_sets_is_not_kept(postgres_database: Database) -> None:
    """outputs A-2: the pool's next user has its own settings."""
    store = postgres_database.open()
    before = store.outputs.query.rows("SELECT current_setting('work_mem')").rows
    store.outputs.query.rows("SELECT set_config('work_mem', '64kB', false)")
    assert store.outputs.query.rows("SELECT current_setting('work_mem')").rows == before


def test_a_query_leaves_the_connection_without_its_limits(sqlite_database: Database) -> None:
    """outputs A-2: neither its clock, nor what it may do, nor how large a value or pattern may be."""
    store = sqlite_database.open()
    store.outputs.query.rows("SELECT 1", timeout=1e-9)
    with Checkout(Mode.READ, store.backend) as checkout:
        ask = checkout.driver.execute
        assert ask(
            "SELECT max(value) FROM json_each('[' || replace(hex(zeroblob(99999)), '00', '1,') || '2]')"
        ).fetchone() == (2,)
        assert ask("PRAGMA cache_size").fetchone()
        assert ask(f"SELECT 'a' LIKE '{'%a' * 60}'").fetchone() == (0,)


@with_each("pragma", ["user_version", "journal_mode", "encoding", "page_size"])
def test_what_a_query_may_look_at_it_may_not_set(sqlite_database: Database, pragma: str) -> None:
    """outputs A-2."""
    query = sqlite_database.open().outputs.query
    [(found,)] = query.rows(f"PRAGMA {pragma}").rows
    with pytest.raises(ReadOnlyTransaction):
        query.rows(f"PRAGMA {pragma} = {found}")


def test_what_the_database_does_not_permit_is_no_mistake_in_the_query(postgres_database: Database) -> None:
    """outputs A-2: here by a view whose owner may read nothing."""
    query, connection = postgres_database.open().outputs.query, postgres_database.raw()
    role = f"powerless_{new_id().replace('-', '')}"
    connection.execute(f"CREATE ROLE {role}")
    try:
        connection.execute("CREATE VIEW hidden AS SELECT id FROM workflow_runs")
        connection.execute(f"ALTER VIEW hidden OWNER TO {role}")
        with pytest.raises(BackendUnavailable) as refused:
            query.rows("SELECT id FROM hidden")
        assert refused.value.details["reason"] == "permission"
    finally:
        connection.execute("DROP VIEW IF EXISTS hidden")
        connection.execute(f"DROP ROLE {role}")


def test_a_query_keeps_no_lock_and_loses_no_more_than_its_connection(postgres_database: Database) -> None:
    """outputs A-2: a lock of the session outlives rollbacks; a query may end its own connection."""
    query = postgres_database.open().outputs.query
    query.rows("SELECT pg_advisory_lock(42)")
    held = "SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database WHERE locktype = 'advisory'"
    assert query.rows(held + " AND datname = current_database()").rows == ((0,),)
    with pytest.raises(BackendUnavailable):
        query.rows("SELECT pg_terminate_backend(pg_backend_pid())")
    assert query.rows("SELECT 1").rows == ((1,),)


@with_each(
    ("sql", "values"),
    [("SELECT :x AS x", {"x": "\ud800"}), ("SELECT :x AS x", {"x": object()}), ("SELECT $1", {})],
    ids=["surrogate", "no value of a database", "a parameter of the protocol"],
)
def test_parameters_that_no_database_takes_are_refused(store: StateStore, sql: str, values: Any) -> None:
    """outputs A-2."""
    with pytest.raises(InvalidValue):
        store.outputs.query.rows(sql, values)


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT :x AS x", {"x": 2**70}),
        ("SELECT zeroblob(1000000000) AS x", {}),
        (f"SELECT 'a' LIKE '{'%a' * 60}' AS x", {}),
    ],
    ids=["a great integer", "a great value", "a great pattern"],
)
def test_what_sqlite_could_not_interrupt_is_refused(sqlite_database: Database, sql: str, values: Any) -> None:
    """outputs A-2: it watches the clock between steps, and these are one step."""
    store = sqlite_database.open()
    with pytest.raises(InvalidValue):
        store.outputs.query.rows(sql, values)
    run_id, notes = a_run(store), store.outputs.define("notes", list[str])
    assert store.outputs.results.put(notes, run_id, "n", ["%a" * 60]).data


def test_a_view_asks_of_its_moment_and_a_transaction_does_not(every_backend: StateStore) -> None:
    """outputs A-2, A-3."""
    made = every_backend.outputs.define("notes", list[int])
    run_id = a_run(every_backend)
    with every_backend.view() as view:
        assert view.outputs.query.rows("SELECT count(*) FROM notes").rows == ((0,),)
    with every_backend.transaction() as tx:
        tx.outputs.results.put(made, run_id, "n", [1])
        assert len(tx.connection.execute(made.table.select()).all()) == 1
        with pytest.raises(MisuseError):
            tx.outputs.query.rows("SELECT 1")


@pytest.mark.parametrize(
    ("timeout", "waited", "said"),
    [(7, 0, "7s"), (1.5, 0, "1500ms"), (1.234, 0, "1234ms"), (7, 0.005, "7s"), (7, 2.25, "4750ms"), (7, 9, "1ms")],
)
def test_the_server_gets_the_timeout_to_the_millisecond(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch, timeout: float, waited: float, said: str
) -> None:
    """outputs A-2, backends B-195: without what was waited. The connection has its own again afterwards."""
    store = postgres_database.open(settings=Settings(statement_timeout=11, pool_size=1))
    now, asked = [0.0], "SELECT current_setting('statement_timeout')"
    acquire = store.backend.acquire

    def acquire_late(*given: Any) -> Checkout:
        acquired = acquire(*given)
        now[0] += waited
        return acquired

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    monkeypatch.setattr(store.backend, "acquire", acquire_late)
    assert store.outputs.query.rows(asked, timeout=timeout).rows == ((said,),)
    monkeypatch.undo()
    with Checkout(Mode.READ, store.backend) as checkout:
        assert checkout.driver.execute(asked).fetchone() == ("11s",)


@pytest.mark.parametrize("value", ["'1e5000'::jsonb", "'infinity'::timestamptz"])
def test_a_value_that_the_driver_cannot_read_is_refused(postgres_database: Database, value: str) -> None:
    """outputs A-2: by an error of the library, and the next query is answered."""
    store = postgres_database.open()
    with pytest.raises(InvalidValue, match="value"):
        store.outputs.query.rows(f"SELECT {value}")
    assert store.outputs.query.rows(f"SELECT ({value})::text").rows != ()


def test_a_timeout_below_a_millisecond_is_not_none(postgres_database: Database) -> None:
    """outputs A-2: the server takes 0 for no timeout at all."""
    with pytest.raises(BackendUnavailable) as raised:
        postgres_database.open().outputs.query.rows("SELECT pg_sleep(30)", timeout=0.0004)
    assert raised.value.details["reason"] == "statement_timeout"


def test_a_query_of_a_damaged_file_is_not_told_to_be_wrong(sqlite_database: Database) -> None:
    """outputs A-2: the statement is sound, and the error says what is not."""
    raw = sqlite_database.raw()
    raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    [size] = raw.execute("PRAGMA page_size").fetchone()
    [root] = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'workflow_runs'").fetchone()
    raw.close()
    with Path(sqlite_database.url).open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(BackendUnavailable, match="not a sound SQLite database"):
        sqlite_database.open(migrate=False).outputs.query.rows("SELECT * FROM workflow_runs")


def test_what_a_query_was_refused_does_not_stay_refused(sqlite_database: Database) -> None:
    """outputs A-2: the connection that it used is used again, by whoever comes next."""
    store = sqlite_database.open()
    short, long = (f"SELECT 'a' LIKE '{'a' * length}'" for length in (100, 101))
    small, large = (f"SELECT length(zeroblob({2**26 + more}))" for more in (0, 1))
    with store.view() as view:
        for refused, permitted in ((long, short), (large, small)):
            with pytest.raises(InvalidValue):
                view.outputs.query.rows(refused)
            assert len(view.outputs.query.rows(permitted).rows) == 1
    with Checkout(Mode.READ, store.backend) as checkout:
        for sql in (long, large, "PRAGMA cache_size"):
            assert checkout.driver.execute(sql).fetchone()
