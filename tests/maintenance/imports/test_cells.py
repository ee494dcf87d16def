"""Cells of any type, as a damaged or hand-made source has them: each fails its unit by its name, and no other one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.maintenance.workflow_databases import stored
from support.migrations.eras import ROWS

from lastlight_state.maintenance.imports.workflow_rows import TABLES
from lastlight_state.testing import Database

#: The key of a table, and the columns in which a number or bytes may stand: they have no place of their own.
KEYS = {"workflow_overrides": "name"}
FREE = {"extension_status", "message_count"}


def _untyped(path: Path, table: str, rows: list[dict[str, Any]]) -> None:
    """A database whose columns have no types, so that they keep what is put into them."""
    with closing(sqlite3.connect(path)) as raw, raw:
        for name in {"executions", table}:
            columns = dict.fromkeys([*TABLES[name].split(), *(rows[0] if name == table else ())])
            raw.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
        marks = ", ".join(f":{name}" for name in rows[0])
        raw.executemany(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES ({marks})", rows)


@with_each("odd", [7.5, b"\xff"], ids=("a number", "bytes"))
@with_each("table", ["executions", "workflow_runs", "workflow_overrides", "messaging_sessions"])
def test_a_cell_of_another_type_fails_its_row_by_name(
    sqlite_database: Database, tmp_path: Path, table: str, odd: Any
) -> None:
    """maintenance OP-35, OP-38, OP-82."""
    key, sound = KEYS.get(table, "id"), stored(ROWS[table][0])
    sound.pop("workflow_run_id", None)
    names = [name for name in sound if name not in (key, *FREE)]
    _untyped(tmp_path / "theirs.db", table, [sound, *({**sound, key: f"odd-{name}", name: odd} for name in names)])
    plan = sqlite_database.open().maintenance.imports.plan(tmp_path / "theirs.db")
    found = {one.unit: one.reason for one in plan.failures if one.code == "invalid_value"}
    if isinstance(odd, float):
        names = [name for name in names if name != "cost_usd"]
    assert {name for name in names if f".{name}: " in found.get(f"{table}/odd-{name}", "")} == set(names)
    assert plan.units == {"failed": len(names), "imported": plan.units["imported"]}


@pytest.mark.parametrize("told", ["soon", "", "0001-01-01T00:00:00+14:00", "1712101500123", 5])
def test_a_time_that_is_none_fails_its_row(sqlite_database: Database, tmp_path: Path, told: Any) -> None:
    """maintenance OP-38, OP-82."""
    row = {**stored(ROWS["executions"][1]), "workflow_run_id": None, "started_at": told}
    _untyped(tmp_path / "theirs.db", "executions", [row])
    [failed] = sqlite_database.open().maintenance.imports.plan(tmp_path / "theirs.db").failures
    assert "started_at: expected a day and a time of day as ISO 8601 text" in failed.reason


def test_a_row_without_what_it_must_have_fails_by_its_name(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-38, OP-82."""
    _untyped(tmp_path / "theirs.db", "workflow_runs", [{**stored(ROWS["workflow_runs"][0]), "workflow_name": None}])
    [failed] = sqlite_database.open().maintenance.imports.plan(tmp_path / "theirs.db").failures
    assert (failed.code, "workflow_name: must not be NULL" in failed.reason) == ("invalid_value", True)


def test_a_cell_without_a_value_fails_its_row(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-38, OP-86."""
    with closing(sqlite3.connect(tmp_path / "smithers.db")) as raw, raw:
        raw.execute("CREATE TABLE _smithers_runs (run_id, workflow_name, status, created_at_ms)")
        raw.execute("INSERT INTO _smithers_runs VALUES ('r1', NULL, 'running', 1)")
    [failed] = sqlite_database.open().maintenance.imports.plan(tmp_path / "smithers.db").failures
    assert "workflow_name: must not be NULL" in failed.reason
