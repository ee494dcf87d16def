"""What the database refuses, asked through plain driver connections that set no pragma and know nothing of us."""

from __future__ import annotations

from typing import Any

import pytest
from support.each import with_each
from support.refusal import refused

from lastlight_state.testing.databases import Database

AT = "'2026-02-03T12:34:56.789Z'"
TABLES = ("workflow_runs", "executions", "workflow_approvals", "run_transitions", "run_nodes", "run_loops")


@pytest.fixture
def raw(database: Database) -> Any:
    """A plain connection to a database with one running run, and one row of each other table that belongs to it."""
    connection = database.raw()
    add_run(connection, "run")
    connection.execute(
        "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at)"
        f" VALUES ('run', 'api', 't', 'a:b', {AT})"
    )
    connection.execute(
        "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, created_at)"
        f" VALUES ('run', 'run', 'g', 'may I?', {AT})"
    )
    connection.execute(
        "INSERT INTO run_transitions (run_id, seq, to_status, reason, source, at)"
        f" VALUES ('run', 1, 'running', 'run.created', 'engine', {AT})"
    )
    connection.execute(
        f"INSERT INTO run_nodes (run_id, node_id, state, updated_at) VALUES ('run', 'n', 'running', {AT})"
    )
    connection.execute(f"INSERT INTO run_loops (run_id, loop_id, updated_at) VALUES ('run', 'l', {AT})")
    return connection


def add_run(connection: Any, key: str, **columns: str) -> None:
    given = {"id": f"'{key}'", "workflow_name": "'w'", "trigger_id": "'t'", "current_phase": "'p'"}
    given |= {"started_at": AT, "updated_at": AT, "context": "'{\"a\": 1}'", **columns}
    connection.execute(f"INSERT INTO workflow_runs ({', '.join(given)}) VALUES ({', '.join(given.values())})")


def change(connection: Any, assignments: str, key: str = "run") -> None:
    connection.execute(f"UPDATE workflow_runs SET {assignments} WHERE id = '{key}'")


def value(connection: Any, column: str, key: str = "run") -> Any:
    return connection.execute(f"SELECT {column} FROM workflow_runs WHERE id = '{key}'").fetchone()[0]


@pytest.mark.parametrize(
    "assignments",
    [
        "status = 'running'",
        "restart_count = restart_count + 1",
        "status = 'running', restart_count = restart_count + 1",
    ],
)
def test_a_run_at_its_limit_is_not_restarted(raw: Any, assignments: str) -> None:
    """workflows G-1, G-2."""
    add_run(raw, "worn", status="'failed'", restart_count="3", max_restarts="3")
    with refused():
        change(raw, assignments, "worn")
    assert (value(raw, "status", "worn"), value(raw, "restart_count", "worn")) == ("failed", 3)


@pytest.mark.parametrize(
    "assignments",
    [
        "restart_count = restart_count + 2",
        "restart_count = restart_count + 1, max_restarts = 9",
        "restart_count = 4",
    ],
)
def test_the_restart_count_rises_by_one_under_the_limit_that_stood(raw: Any, assignments: str) -> None:
    """workflows G-1."""
    with refused():
        change(raw, assignments)
    change(raw, "restart_count = restart_count + 1")
    assert value(raw, "restart_count") == 1


def test_the_limit_may_change_by_itself(raw: Any) -> None:
    """workflows G-1, W-31: also below the present count."""
    change(raw, "restart_count = 1")
    change(raw, "max_restarts = 0")
    with refused():
        change(raw, "restart_count = 2")
    change(raw, "max_restarts = 2")
    change(raw, "restart_count = 2")


@pytest.mark.parametrize("limit", ["-1", "101"])
def test_the_limit_has_limits(raw: Any, limit: str) -> None:
    """workflows G-8: those of the argument, of an insert and of an update."""
    with refused():
        change(raw, f"max_restarts = {limit}")
    with refused():
        add_run(raw, "eager", max_restarts=limit)
    change(raw, "max_restarts = 100")


def test_the_restart_count_falls_only_by_a_release(raw: Any) -> None:
    """workflows G-1, W-46: by 1, from running to running."""
    change(raw, "restart_count = 1")
    change(raw, "restart_count = 2")
    for assignments in ("restart_count = 0", "restart_count = 1, status = 'paused'"):
        with refused():
            change(raw, assignments)
    change(raw, "restart_count = 1")
    change(raw, "status = 'paused'")
    with refused():
        change(raw, "restart_count = 0")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_an_ended_run_goes_on_only_by_a_counted_restart(raw: Any, status: str) -> None:
    """workflows G-2."""
    change(raw, f"status = '{status}'")
    for assignments in (
        "status = 'running'",
        "status = 'queued'",
        "status = 'paused', restart_count = restart_count + 1",
        "status = 'succeeded', restart_count = restart_count + 1",
    ):
        with refused():
            change(raw, assignments)
    change(raw, f"status = '{status}'")
    change(raw, "status = 'queued', restart_count = restart_count + 1")


@pytest.mark.parametrize("to", ["running", "failed", "cancelled", "queued"])
def test_a_succeeded_run_stays_so(raw: Any, to: str) -> None:
    """workflows G-2."""
    change(raw, "status = 'succeeded'")
    with refused():
        change(raw, f"status = '{to}', restart_count = restart_count + 1")
    change(raw, "status = 'succeeded', current_phase = 'end'")


def test_the_context_never_changes(raw: Any) -> None:
    """workflows G-3: an UPDATE to the equal value is no change."""
    for assignments in ("context = '{\"a\": 2}'", "context = NULL"):
        with refused():
            change(raw, assignments)
    change(raw, "context = '{\"a\": 1}'")
    change(raw, "context = context, scratch = '{}'")


def test_a_missing_context_stays_missing(raw: Any) -> None:
    """workflows G-3."""
    add_run(raw, "bare", context="NULL")
    with refused():
        change(raw, "context = '{}'", "bare")


@with_each("column", ["id", "workflow_name", "trigger_id", "run_key", "parent_run_id"])
def test_what_identifies_a_run_never_changes(raw: Any, column: str) -> None:
    """workflows G-3: also from NULL."""
    with refused():
        change(raw, f"{column} = 'other'")
    change(raw, f"{column} = {column}")


@pytest.mark.parametrize("column", ["claim_epoch", "transition_seq"])
def test_counters_never_fall(raw: Any, column: str) -> None:
    """workflows G-3."""
    change(raw, f"{column} = 5")
    with refused():
        change(raw, f"{column} = 4")
    change(raw, f"{column} = 5")


@with_each("table", TABLES)
def test_rows_are_not_deleted(raw: Any, table: str) -> None:
    """workflows G-4."""
    with refused():
        raw.execute(f"DELETE FROM {table}")


@with_each("table", TABLES)
def test_tables_are_not_truncated(database: Database, raw: Any, table: str) -> None:
    """workflows G-4: Postgres has a statement for it, SQLite takes DELETE without WHERE for it."""
    with refused():
        raw.execute(f"TRUNCATE {table} CASCADE" if database.name == "postgresql" else f"DELETE FROM {table}")


@with_each("table", TABLES)
def test_rows_are_not_replaced(database: Database, raw: Any, table: str) -> None:
    """workflows G-4: SQLite's REPLACE deletes, without a delete trigger on such a connection."""
    columns = ", ".join(row[0] for row in raw.execute(f"SELECT * FROM {table} WHERE 1 = 0").description)
    before = raw.execute(f"SELECT {columns} FROM {table}").fetchall()
    if database.name == "sqlite":
        with refused():
            raw.execute(f"INSERT OR REPLACE INTO {table} ({columns}) SELECT {columns} FROM {table}")
    else:
        with pytest.raises(Exception, match="duplicate key"):
            raw.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table}")
    assert raw.execute(f"SELECT {columns} FROM {table}").fetchall() == before


def test_an_insert_that_yields_to_another_key_is_no_replacement(raw: Any) -> None:
    """workflows G-4: an upsert by another key is fine."""
    add_run(raw, "first", run_key="'k'")
    raw.execute(
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, run_key, started_at, updated_at)"
        f" VALUES ('second', 'w', 't', 'p', 'k', {AT}, {AT})"
        " ON CONFLICT (workflow_name, run_key) WHERE run_key IS NOT NULL DO NOTHING"
    )
    assert raw.execute("SELECT id FROM workflow_runs WHERE run_key = 'k'").fetchall() == [("first",)]


@with_each("table", TABLES)
def test_a_permit_lets_rows_be_deleted(raw: Any, table: str) -> None:
    """workflows G-4, maintenance OP-8."""
    raw.execute("BEGIN")
    raw.execute("INSERT INTO maintenance_permits (receipt_id) VALUES ('r1')")
    for other in ("run_transitions", "run_nodes", "run_loops", table):
        raw.execute(f"DELETE FROM {other}")
    raw.execute("DELETE FROM maintenance_permits")
    raw.execute("COMMIT")
    assert raw.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_permit_ends_when_it_is_removed(raw: Any) -> None:
    """maintenance OP-8."""
    raw.execute("BEGIN")
    raw.execute("INSERT INTO maintenance_permits (receipt_id) VALUES ('r1')")
    raw.execute("DELETE FROM maintenance_permits")
    with refused():
        raw.execute("DELETE FROM executions")
    raw.execute("ROLLBACK")


def test_transitions_never_change_permit_or_not(raw: Any) -> None:
    """workflows G-4."""
    with refused():
        raw.execute("UPDATE run_transitions SET actor = 'me'")
    raw.execute("BEGIN")
    raw.execute("INSERT INTO maintenance_permits (receipt_id) VALUES ('reset')")
    with refused():
        raw.execute("UPDATE run_transitions SET reason = reason")
    raw.execute("ROLLBACK")


def test_a_question_has_one_answer(raw: Any) -> None:
    """workflows G-5."""
    raw.execute("UPDATE workflow_approvals SET status = 'approved', responded_by = 'ana'")
    for status in ("pending", "rejected", "expired"):
        with refused():
            raw.execute(f"UPDATE workflow_approvals SET status = '{status}'")
    raw.execute("UPDATE workflow_approvals SET status = 'approved', consumed_by = 'x'")


def test_rows_that_already_break_a_guard_stay_usable(raw: Any) -> None:
    """workflows G-7: guards act on changes only."""
    add_run(raw, "adopted", restart_count="5")
    change(raw, "current_phase = 'next', restart_count = 5", "adopted")
    assert value(raw, "current_phase", "adopted") == "next"
