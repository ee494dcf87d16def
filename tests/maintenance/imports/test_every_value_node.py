"""Each value of a database of the second original system arrives somewhere, or the report names it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import node_databases, shapes
from support.maintenance.every_value import Cells, cells_of, filled, inserting, rows_of, unseen

from lastlight_state.db.schema.columns import parse_time
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect

BEGIN = 1_780_000_000
_NODE = {"run_id": "run", "node_id": "node", "iteration": 0}
_ATTEMPT = {**_NODE, "attempt": 1}
_FRAME = {
    "xml_json": '{"kind": "text", "text": "told frame"}',
    "mounted_task_ids_json": '["told mounted"]',
    "task_index_json": '["told index"]',
}
_OUTPUT = [
    ["run_id", "TEXT", True, None, 1],
    ["node_id", "TEXT", True, None, 2],
    ["iteration", "INTEGER", True, "0", 3],
    ["title", "TEXT", False, None, 0],
    ["depth", "INTEGER", False, None, 0],
]
#: Words and references; everything else is a value of its own.
GIVEN: dict[str, dict[str, Any]] = {
    "runs": {"run_id": "run", "status": "failed", "parent_run_id": None, "error_json": '{"message": "told"}'},
    "nodes": {**_NODE, "state": "finished", "last_attempt": 1},
    "attempts": {**_ATTEMPT, "state": "finished", "cached": 1},
    "frames": {"run_id": "run", "frame_no": 0, "encoding": "full", **_FRAME},
    "approvals": {**_NODE, "status": "approved", "auto_approved": 0},
    "human_requests": {**_NODE, "kind": "ask", "status": "answered"},
    "alerts": _NODE,
    "signals": {"run_id": "run", "seq": 0},
    "node_diffs": _NODE,
    "time_travel_audit": {"run_id": "run"},
    "sandboxes": {"run_id": "run", "status": "completed"},
    "tool_calls": {**_ATTEMPT, "seq": 1, "status": "success"},
    "events": {"run_id": "run", "seq": 0},
    "ralph": {"run_id": "run", "done": 1},
    "cron": {"pattern": "0 5 * * *", "enabled": 1},
    "snapshots": {"run_id": "run"},
    "branches": {"run_id": "run"},
    "vcs_tags": {"run_id": "run"},
    "vectors": {"dimensions": 1},
    "scorers": {**_ATTEMPT, "source": "live", "score": 0.5},
    "memory_messages": {"run_id": "run"},
    "tool_call_archive": {"run_id": "run"},
}
#: Times that are kept as they are.
_RAW_TIMES = ("runs.hijack_requested_at_ms", "runs.pause_requested_at_ms", "sandboxes.heartbeat_at_ms")
_PLAN = {"run_id": "run", "node_id": "node", "iteration": 0}


def _shape(version: str) -> dict[str, list[list[Any]]]:
    found = shapes.tables("smithers", version)
    return {**found, "plan": _OUTPUT, "input": [["run_id", "TEXT", True, None, 1], ["payload", "TEXT", False, None, 0]]}


def _rows(version: str) -> dict[str, dict[str, Any]]:
    given = {f"_smithers_{name}": row for name, row in GIVEN.items()}
    given |= {"plan": _PLAN, "input": {"run_id": "run", "payload": '{"told": "input"}'}}
    types = {table: {name: kind for name, kind, *_ in columns} for table, columns in _shape(version).items()}
    rows = rows_of(types, given, begin=BEGIN)
    for table, row in rows.items():
        for name in row:
            is_given = name in given.get(table, {})
            if name.endswith("_json") and not is_given:
                row[name] = json.dumps({"of": f"{table}.{name}"})
            elif name.endswith("_at_ms") and not is_given:
                row[name] = (BEGIN + row[name]) * 1_000 + 125
    return rows


def _stored(database: Database) -> Iterator[Any]:
    """All rows that the store has, JSON and times as values."""
    raw = database.raw()
    for table in METADATA.sorted_tables:
        if table.name not in ("import_ledger", "maintenance_receipts"):
            yield from _rows_of(raw, table.name)
    yield from _rows_of(raw, "plan")


def _rows_of(raw: Any, table: str) -> Iterator[Any]:
    for row in raw.execute(f"SELECT * FROM {table}").fetchall():
        yield [_value(one) for one in row]


def _value(cell: Any) -> Any:
    if isinstance(cell, str) and cell[:1] in ("{", "["):
        return json.loads(cell)
    try:
        return parse_time(cell) if isinstance(cell, str) else cell
    except ValueError:
        return cell


def _is_time(table: str, name: str) -> bool:
    is_raw = f"{table.removeprefix('_smithers_')}.{name}" in _RAW_TIMES
    return name == "timestamp_ms" or (name.endswith("_at_ms") and not is_raw)


def _wanted(cells: Cells) -> Cells:
    """The cells, with times in seconds. States have words of ours; a kind of question and some times keep theirs.

    What the program says of its own schema is left out.
    """
    return {
        (table.removeprefix("_smithers_"), name): value / 1_000 if _is_time(table, name) else value
        for (table, name), value in cells.items()
        if value is not None
        and table != "_smithers_schema_migrations"
        and name not in ("status", "state", "kind")
        and value not in (0, 1)
    }


@pytest.mark.parametrize("version", shapes.versions("smithers"))
def test_every_value_of_every_version_arrives_or_is_named(
    sqlite_database: Database, tmp_path: Path, version: str
) -> None:
    """maintenance OP-86, M-95: of every column of every table that a version makes."""
    path = shapes.made(tmp_path / "theirs" / "smithers.db", _shape(version))
    _check(sqlite_database, path, filled(path, _rows(version), begin=BEGIN))


def test_every_value_on_a_server_arrives_or_is_named(database: Database, postgres_url: str) -> None:
    """maintenance OP-86, M-95, M-96: of a Postgres schema with the tables of the newest version."""
    [*_, newest] = shapes.versions("smithers")
    types = {"BLOB": "BYTEA", "INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION"}
    made = {
        table: [[name, types.get(kind, kind), *rest] for name, kind, *rest in columns]
        for table, columns in _shape(newest).items()
    }
    rows = _rows(newest)
    with connect(postgres_url) as raw:
        raw.execute(shapes.statements(made))
        for table, row in rows.items():
            raw.execute(inserting(table, row), list(row.values()))
    _check(database, postgres_url, cells_of(rows))


def _check(database: Database, source: Path | str, cells: Cells) -> None:
    store = database.open(migrate=True)
    store.outputs.define("plan", dict)
    imports = store.maintenance.imports
    plan, done = imports.plan(source), imports.run(source)
    assert [one.reason for one in done.failures] == []
    assert (done.kind, plan.rows, plan.noticed) == ("smithers-db", done.rows, done.noticed)
    assert unseen(_wanted(cells), _stored(database), done.noticed) == []
    assert imports.run(source).units.keys() == {"unchanged"}


def test_rows_without_a_place_are_counted_whether_their_run_is_there_or_not(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """maintenance M-122: one of a run, one of no run, and one whose run is gone."""
    path = node_databases.made(tmp_path / "smithers.db")
    node_databases.put(path, "runs", run_id="r", status="finished", finished_at_ms=node_databases.BEGIN + 9_000)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("CREATE TABLE _smithers_later (run_id TEXT, said TEXT)")
        raw.execute("INSERT INTO _smithers_later VALUES ('r', 'a'), (NULL, 'b'), ('gone', 'c')")
    done = sqlite_database.open().maintenance.imports.run(path)
    assert (done.units, done.noticed["later_left"]) == ({"imported": 1}, 3)
