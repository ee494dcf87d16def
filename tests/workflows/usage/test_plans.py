"""How rollups are read: from the usage indexes alone on SQLite, by ordered ranges on Postgres."""

from __future__ import annotations

import itertools
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.workflows.filled import fill
from support.workflows.plans import Plan, columns_of_rows, plan_of
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.db.rows.statements import Statement
from lastlight_state.testing import Database
from lastlight_state.workflows.usage import statements as sql

Rows = pytest.mark.parametrize("rows", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])

SINCE = "USING COVERING INDEX ix_executions_usage (started_at>?"
COVERED = "USING COVERING INDEX ix_executions_usage"
OF_RUNS = f"{COVERED} (started_at=? AND id=?"
IN_TIME, IN_RUNS = "ix_executions_started", "idx_executions_workflow_run"


class Plans:
    """The plans of statements on a filled database."""

    def __init__(self, database: Database, store: StateStore, rows: int) -> None:
        self.database, self.store = database, store
        last = datetime.fromtimestamp(1_700_000_000 + rows * 60, UTC)
        self.given: dict[str, Any] = {
            "run_id": "r-3", "trigger_id": "t-3", "repo_owner": "acme", "repo_name": "x1", "qualified": "acme/x1",
            "suffix": "%/x1", "since": last - timedelta(hours=1), "until": last, "model": "m", "most": 10,
            **sql.skills_of("w3"),
        }  # fmt: skip

    def of(self, statement: Statement[Any], **given: Any) -> Plan:
        return plan_of(self.database, self.store, statement, self.given | given, in_order=True)


def check(plans: Plans) -> None:
    sqlite = plans.database.name == "sqlite"
    skills, skills_given = sql.NEWEST_OF_SKILLS.of(["w1:1", "w1:2"])
    plans.given |= skills_given
    every_filter = frozenset(sql.FILTERS) - {"bare_repo"}
    checked: list[tuple[Statement[Any], str, str]] = [
        (sql.FOR_RUN, OF_RUNS, IN_RUNS),
        *((each, SINCE, IN_TIME) for each in sql.BY.values()),
        (sql.SINCE, SINCE, IN_TIME),
        (sql.OUTCOMES_SINCE, SINCE, IN_TIME),
        *((each, SINCE, IN_TIME) for each in (sql.SKILLS_SINCE, sql.TRIGGER_TYPES_SINCE)),
        (sql.buckets(10, frozenset()), SINCE, IN_TIME),
        (sql.buckets(13, every_filter), SINCE, "Index"),
        (sql.NEWEST, COVERED, IN_TIME),
        (sql.NEWEST_OF_WORKFLOW, COVERED, "Index"),
        (skills, "USING INDEX idx_executions_skill", "Index"),  # of a frequent skill Postgres walks the newest
        (sql.SKILLS_OF_WORKFLOW, "USING COVERING INDEX idx_executions_skill", "Index Only Scan using idx_exec"),
        (sql.RUNNING_NOW, "ix_executions_signs", "ix_executions_in_flight"),
        (sql.THREADS.statement({}, paged=False), "idx_executions_skill", "ix_executions_chat"),
        (sql.TURNS.of(["t-1", "t-2"])[0], "ix_executions_chat", "Index"),
    ]
    for statement, on_sqlite, on_postgres in checked:
        given = {"trigger_0": "t-1", "trigger_1": "t-2"}
        plan = plans.of(statement, **given)
        assert (on_sqlite if sqlite else on_postgres) in plan.text, (statement.element, plan)
        assert not plan.scans_the_table, (statement.element, plan)


@Rows
def test_rollups_read_indexes_alone(database: Database, every_backend: StateStore, raw: Raw, rows: int) -> None:
    """workflows W-61, W-62, W-63: with statistics, and on SQLite without any."""
    plans = Plans(database, every_backend, rows)
    if database.name == "sqlite":
        check(plans)
    fill(raw, rows)
    check(plans)


def test_no_rollup_takes_a_text_or_a_column_behind_one(sqlite_database: Database) -> None:
    """workflows W-61: the newest turn of a thread is found by what stands in front of a text."""
    store = sqlite_database.open()
    plans = Plans(sqlite_database, store, 0)
    given = plans.given
    narrow: tuple[Statement[Any], ...] = (*sql.BY.values(), sql.SINCE, sql.NEWEST)
    for statement in narrow:
        assert columns_of_rows(sqlite_database, store, statement, given) == set()
    assert columns_of_rows(sqlite_database, store, sql.FOR_RUN, given) == {"id", "started_at"}
    threads = columns_of_rows(sqlite_database, store, sql.THREADS.statement({}, paged=False), given)
    assert threads == {"id", "trigger_id"}


@pytest.mark.plain_postgres("reads a plan, and Citus has steps of its own")
def test_a_window_is_a_range_of_the_index_before_its_ends_are_known(postgres_database: Database) -> None:
    """workflows W-172: with one end alone, Postgres takes a third of the table for the window, and reads it whole."""
    store, raw = postgres_database.open(), Raw(postgres_database)
    fill(raw, 20_000)
    driver = postgres_database.raw()
    driver.execute("SET plan_cache_mode = force_generic_plan")
    driver.execute("SET cpu_index_tuple_cost = 0.05")  # as dear as an index is on a larger table
    for name in ("SINCE", "OUTCOMES_SINCE", "SKILLS_SINCE"):
        numbers = itertools.count(1)
        asked = getattr(sql, name).on(store.backend).sql
        parts = re.split(r"%(?:\(\w+\))?s", asked.replace("%%", "%"))
        text = "".join(f"${next(numbers)}{part}" if at else part for at, part in enumerate(parts))
        driver.execute(f"PREPARE {name} AS {text}")
        given = ", ".join(["NULL"] * (next(numbers) - 1))
        plan = driver.execute(f"EXPLAIN EXECUTE {name} ({given})").fetchall()
        assert any("ix_executions_started" in line for (line,) in plan), plan
