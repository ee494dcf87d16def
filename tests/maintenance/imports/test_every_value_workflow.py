"""Each value of a database of the first original system arrives somewhere, or the report names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import shapes
from support.maintenance.every_value import Cells, cells_of, filled, inserting, rows_of, unseen

from lastlight_state.clock import iso_text
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.maintenance import ImportReport
from lastlight_state.testing import Database
from lastlight_state.testing.postgres import connect

BEGIN = 1_780_000_000.25
_TIMES = [f"2026-08-01T10:00:{second:02}.125Z" for second in range(60)]
#: Words, times and references; everything else is a value of its own.
GIVEN: dict[str, dict[str, Any]] = {
    "workflow_runs": {
        "id": "run",
        "phase_history": '[{"phase": "first", "timestamp": "2026-08-01T10:00:30.125Z"}]',
        "status": "failed",
        "context": '{"told": "context"}',
        "scratch": '{"told": "scratch"}',
        "started_at": _TIMES[1],
        "updated_at": _TIMES[3],
        "finished_at": _TIMES[2],
        "repo": "repo-of-run",
        "owner": "owner-of-run",
    },
    "executions": {
        "workflow_run_id": "run",
        "started_at": _TIMES[4],
        "finished_at": _TIMES[5],
        "success": 1,
        "cost_usd": 1.25,
        "session_id": "ses-of-execution",
        "repo": "repo-of-execution",
        "owner": "owner-of-execution",
        "extension_status": '{"told": "extension"}',
        "skills_status": '["told"]',
    },
    "workflow_approvals": {
        "workflow_run_id": "run",
        "status": "approved",
        "kind": "approve",
        "responded_at": _TIMES[6],
        "created_at": _TIMES[7],
    },
    "cron_overrides": {"enabled": 1, "schedule": "0 4 * * *", "updated_at": _TIMES[8]},
    "workflow_overrides": {"enabled": 1, "updated_at": _TIMES[9]},
    "cron_runs": {"source": "manual", "started_at": _TIMES[10], "finished_at": _TIMES[11], "status": "ok"},
    "messaging_sessions": {
        "id": "chat",
        "created_at": _TIMES[12],
        "last_activity_at": _TIMES[14],
        "active": 1,
        "message_count": 1,
        "agent_session_id": "ses-of-chat",
    },
    "messaging_messages": {"session_id": "chat", "role": "user", "timestamp": _TIMES[13]},
}


def _source(product: str, tmp_path: Path, url: str) -> tuple[Path | str, Cells]:
    """A database of the newest version on a product, and its cells."""
    program = "lastlight" if product == "sqlite" else "lastlight-postgres"
    [*_, newest] = shapes.versions(program)
    shape = shapes.tables(program, newest)
    shape = {name: [*columns, ["later", "TEXT", False, None, 0]] for name, columns in shape.items()}
    if product == "sqlite":
        path = shapes.made(tmp_path / "theirs" / "lastlight.db", shape)
        return path, filled(path, GIVEN, begin=BEGIN)
    types = {table: {name: kind for name, kind, *_ in columns} for table, columns in shape.items()}
    rows = rows_of(types, GIVEN, begin=BEGIN)
    for table, columns in types.items():
        rows[table] |= {name: bool(rows[table][name]) for name, kind in columns.items() if kind == "boolean"}
    with connect(url) as raw:
        raw.execute(shapes.statements(shape))
        for table, row in rows.items():
            raw.execute(inserting(table, row), list(row.values()))
    return url, cells_of(rows)


def _told(store: Any) -> Iterator[Any]:
    """All that the store says."""
    flows, schedules, chats = store.workflows, store.schedules, store.messaging
    run = flows.runs.get("run")
    yield run
    yield [iso_text(phase.at) for phase in run.phase_history]
    for summary in flows.executions.list().items:
        yield flows.executions.get(summary.id)
        yield flows.executions.find_output(summary.id)
    for summary in flows.approvals.list().items:
        yield flows.approvals.get(summary.id)
    yield flows.overrides.list()
    yield schedules.overrides.list()
    for summary in schedules.fires.list().items:
        yield schedules.fires.get(summary.id)
    yield chats.sessions.get("chat")
    yield chats.messages.history("chat")


@pytest.mark.parametrize("product", ["sqlite", "postgresql"])
def test_every_value_of_a_database_arrives_or_is_named(
    database: Database, tmp_path: Path, postgres_url: str, product: str
) -> None:
    """maintenance OP-82, M-95, M-96: of every column of every table that the newest version makes, on both products."""
    source, cells = _source(product, tmp_path, postgres_url)
    store = database.open()
    imports = store.maintenance.imports
    plan, done = imports.plan(source), imports.run(source)
    assert [one.reason for one in done.failures] == []
    assert (done.kind, done.units, done.failures) == ("lastlight-db", {"imported": 5}, ())
    assert (plan.rows, plan.noticed) == (done.rows, done.noticed)
    times = {value: parse_time(value) for value in cells.values() if value in _TIMES}
    found = {place: round(times[value].timestamp(), 3) if value in times else value for place, value in cells.items()}
    assert unseen(found, _told(store), done.noticed) == []
    assert imports.run(source).units == {"unchanged": 5}
    _check_what_is_named(done)


def _check_what_is_named(done: ImportReport) -> None:
    elsewhere = {"feedback_anchors", "feedback_signals", "github_team_members", "github_team_repos", "github_teams"}
    rows = {f"{name}_left" for name in {*elsewhere, "github_visibility_sync", "users"}}
    assert done.noticed.keys() == {"later_left", *rows}
