"""Rows that were imported follow their source until they have ended, were answered, or were changed here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.maintenance import workflow_databases as theirs
from support.maintenance.node_databases import BEGIN, made, put
from support.migrations.eras import AT, CHAT, ERAS, FAILED, OPEN

from lastlight_state.maintenance.imports import row_pieces
from lastlight_state.testing import Database

[NEWEST] = [era for era in ERAS if era.stem == theirs.NEWEST]
NODE: dict[str, Any] = {"run_id": "r1", "node_id": "n"}
SOON, LONG_AFTER = BEGIN + 1_500, BEGIN + 60_000
EARLY, LATE = "2020-01-01T00:00:00.000Z", "2027-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("table", "first", "then", "kept"),
    [
        pytest.param("nodes", {**NODE}, {"state": "failed"}, 0, id="a node of the same moment"),
        pytest.param("nodes", {**NODE}, {"updated_at_ms": BEGIN}, 1, id="a node of an earlier moment"),
        pytest.param("ralph", {"run_id": "r1", "ralph_id": "l"}, {"iteration": 1}, 0, id="a loop of the same moment"),
        pytest.param(
            "ralph",
            {"run_id": "r1", "ralph_id": "l", "iteration": 1},
            {"updated_at_ms": BEGIN},
            1,
            id="a loop of an earlier moment",
        ),
        pytest.param("attempts", {**NODE, "state": "in-progress"}, {"state": "failed"}, 0, id="an attempt in flight"),
        pytest.param("attempts", {**NODE}, {"state": "failed"}, 1, id="an attempt that succeeded at no known time"),
        pytest.param(
            "attempts",
            {**NODE, "state": "in-progress", "finished_at_ms": SOON},
            {"state": "failed"},
            1,
            id="an attempt that ended in an unknown way",
        ),
        pytest.param("approvals", {**NODE}, {"status": "denied"}, 0, id="an open gate"),
        pytest.param(
            "approvals", {**NODE, "status": "approved"}, {"status": "denied"}, 1, id="a gate that was answered"
        ),
        pytest.param(
            "human_requests",
            {**NODE, "request_id": "h"},
            {"status": "answered", "response_json": '"a"'},
            0,
            id="an open question",
        ),
        pytest.param(
            "human_requests",
            {**NODE, "request_id": "h", "status": "answered", "response_json": '"a"'},
            {"response_json": '"b"'},
            1,
            id="a question that was answered",
        ),
        pytest.param(
            "tool_calls", {**NODE, "seq": 1, "status": "running"}, {"status": "error"}, 0, id="a call in flight"
        ),
        pytest.param(
            "tool_calls",
            {**NODE, "seq": 1, "finished_at_ms": SOON},
            {"status": "error"},
            1,
            id="a call that has finished",
        ),
        pytest.param(
            "sandboxes",
            {"run_id": "r1", "sandbox_id": "b", "shipped_at_ms": SOON},
            {"status": "running"},
            0,
            id="a sandbox of the same moment",
        ),
        pytest.param(
            "sandboxes",
            {"run_id": "r1", "sandbox_id": "b", "shipped_at_ms": SOON},
            {"shipped_at_ms": BEGIN},
            1,
            id="a sandbox of an earlier moment",
        ),
        pytest.param(
            "sandboxes",
            {"run_id": "r1", "sandbox_id": "b", "status": "failed", "completed_at_ms": SOON},
            {"status": "finished"},
            1,
            id="a sandbox that has ended",
        ),
        pytest.param("input", {"run_id": "r1", "payload": "{}"}, {"payload": '{"a": 1}'}, 1, id="an input"),
    ],
)
def test_a_row_follows_its_source_while_it_is_open(
    sqlite_database: Database, tmp_path: Path, table: str, first: dict[str, Any], then: dict[str, Any], kept: int
) -> None:
    """maintenance OP-36, OP-86: what has ended or was answered stays, so does what is newer, and it is counted."""
    source, store = made(tmp_path / "smithers.db"), sqlite_database.open()
    put(source, "runs", run_id="r1")
    put(source, "events", run_id="r1", seq=0, timestamp_ms=LONG_AFTER)
    put(source, table, **first)
    store.maintenance.imports.run(source)
    before = _rows(sqlite_database, STORED[table])
    put(source, table, **first | then)
    done = store.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"grown": 1}, {"row_kept": 1} if kept else {})
    assert [one.kept.startswith(f"{STORED[table]} ") for one in done.conflicts] == [True] * kept
    assert (_rows(sqlite_database, STORED[table]) == before) == bool(kept)


STORED = {
    "nodes": "run_nodes",
    "ralph": "run_loops",
    "attempts": "executions",
    "approvals": "workflow_approvals",
    "human_requests": "human_requests",
    "tool_calls": "tool_calls",
    "sandboxes": "sandboxes",
    "input": "run_inputs",
}
APPROVED = {"status": "approved", "responded_by": "bo", "responded_at": AT}


@pytest.mark.parametrize(
    ("table", "key", "first", "then", "kept"),
    [
        pytest.param("workflow_overrides", "release", {}, {"updated_by": "cy"}, 1, id="an override of the same moment"),
        pytest.param("cron_overrides", "nightly", {}, {"enabled": 1, "updated_at": LATE}, 0, id="a newer override"),
        pytest.param("executions", "x-2", {"success": 1}, {"success": 0}, 1, id="an execution with a result"),
        pytest.param("executions", "x-2", {"finished_at": LATE}, {"success": 1}, 1, id="an execution with an end"),
        pytest.param("executions", "x-2", {}, {"success": 1}, 0, id="an execution in flight"),
        pytest.param("workflow_approvals", "gate-1", {}, APPROVED, 0, id="an open gate"),
        pytest.param("workflow_approvals", "gate-1", APPROVED, {"response": "no"}, 1, id="a gate that was answered"),
        pytest.param("workflow_runs", OPEN, {}, {"current_phase": "reviewer"}, 0, id="a run of the same moment"),
        pytest.param("workflow_runs", OPEN, {}, {"status": "paused"}, 0, id="a run that waits since the same moment"),
        pytest.param("workflow_runs", OPEN, {}, {"updated_at": AT}, 1, id="a run of an earlier moment"),
        pytest.param("workflow_runs", OPEN, {}, {"phase_history": "[]", "updated_at": LATE}, 1, id="a run that forgot"),
        pytest.param("workflow_runs", FAILED, {}, {"current_phase": "x", "updated_at": LATE}, 1, id="a run that ended"),
        pytest.param("messaging_sessions", CHAT, {}, {"agent_session_id": "s"}, 0, id="a chat of the same moment"),
        pytest.param("messaging_sessions", CHAT, {}, {"last_activity_at": EARLY}, 1, id="a chat of an earlier moment"),
        pytest.param(
            "messaging_sessions", CHAT, {"active": 0}, {"agent_session_id": "s"}, 1, id="a chat that was left"
        ),
    ],
)
def test_a_row_of_the_first_system_follows_its_source_while_it_is_open(
    sqlite_database: Database, tmp_path: Path, table: str, key: str, first: Any, then: Any, kept: int
) -> None:
    """maintenance OP-36, OP-82: what has ended or was answered stays, so does what is newer, and it is counted."""
    source, store = theirs.made(tmp_path / "theirs.db", NEWEST), sqlite_database.open()
    if first:
        theirs.change(source, table, key, **first)
    store.maintenance.imports.run(source)
    before = _rows(sqlite_database, table)
    theirs.change(source, table, key, **then)
    done = store.maintenance.imports.run(source)
    noticed = {"users_left": 1, **({"row_kept": 1} if kept else {})}
    assert (done.units, done.noticed) == ({"grown": 1, "unchanged": 4}, noticed)
    assert (_rows(sqlite_database, table) == before) == bool(kept)


def _rows(database: Database, table: str) -> list[Any]:
    return list(database.raw().execute(f"SELECT * FROM {table}").fetchall())


def test_a_row_that_goes_on_here_after_the_look_is_not_overwritten(
    postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-36, OP-86: on SQLite nobody else writes between them."""
    source, store = made(tmp_path / "smithers.db"), postgres_database.open()
    put(source, "runs", run_id="r1")
    put(source, "nodes", **NODE)
    store.maintenance.imports.run(source)
    put(source, "nodes", **NODE, state="failed")
    later = "UPDATE run_nodes SET state = 'skipped', updated_at = '2027-01-01T00:00:00Z'"
    happened = before(monkeypatch, row_pieces, "change", lambda: postgres_database.raw().execute(later))
    done = store.maintenance.imports.run(source)
    assert (happened, done.noticed["row_kept"]) == (["change"], 1)
    assert postgres_database.raw().execute("SELECT state FROM run_nodes").fetchall() == [("skipped",)]
