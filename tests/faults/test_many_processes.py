"""backends B-80: many processes write to one database at once."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.faults import mixed_writers
from support.faults.mixed_writers import SHARED
from support.preloaded import run_program

from lastlight_state.testing import Database

PROGRAM = Path(mixed_writers.__file__)
PROCESSES = 16
SCALE = [pytest.param(3, id="3s"), pytest.param(30, id="30s", marks=pytest.mark.soak)]


def reports(database: Database, seconds: float) -> list[dict[str, Any]]:
    """What each of the processes says it was promised. None of them may have failed."""
    command = [sys.executable, "-W", "error", str(PROGRAM), database.url, str(PROCESSES), str(seconds)]
    finished = run_program(command, capture_output=True, text=True, check=False)
    assert finished.stderr == ""
    assert finished.returncode == 0
    return [json.loads(line) for line in finished.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", SCALE)
def test_processes_lose_nothing_double_nothing_and_are_never_told_that_it_is_busy(
    fresh_database: Database, seconds: float
) -> None:
    """backends B-80: 16 processes, mixed writes, one database."""
    told = reports(fresh_database, seconds)
    assert len(told) == PROCESSES
    assert all(report["runs"] for report in told)
    raw = fresh_database.raw()

    runs = Counter(dict(raw.execute("SELECT workflow_name, count(*) FROM workflow_runs GROUP BY 1").fetchall()))
    assert runs["own"] == sum(len(report["runs"]) for report in told)
    assert runs["pair"] == sum(len(report["pairs"]) for report in told)
    assert runs["undone"] == 0
    ids = {row[0] for row in raw.execute("SELECT id FROM workflow_runs").fetchall()}
    assert {one for report in told for one in report["runs"] + report["pairs"]} < ids

    with fresh_database.open() as store:
        shared = store.workflows.runs.get(SHARED)
    assert shared.scratch == {f"counter {report['number']}": report["counter"] for report in told}
    phases = Counter(phase.phase for phase in shared.phase_history)
    assert phases == {f"by {report['number']}": report["phases"] for report in told}

    messages = raw.execute("SELECT id, role, content FROM messaging_messages ORDER BY id").fetchall()
    said = sum(len(report["messages"]) for report in told)
    assert Counter(row[1] for row in messages) == {"user": said, "assistant": runs["pair"]}
    assert {row[2] for row in messages if row[1] == "assistant"} == {one for r in told for one in r["pairs"]}
    assert raw.execute("SELECT message_count FROM messaging_sessions").fetchone()[0] == len(messages)
    for report in told:
        own = [row[0] for row in messages if row[2].startswith(f"{report['number']}: ")]
        assert own == report["messages"]

    if fresh_database.name == "sqlite":
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
