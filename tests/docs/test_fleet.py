"""The example `fleet`: workers are killed at random, and what it promises holds, as plain SQL sees it."""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.workflows.steps import Raw

from lastlight_state.testing import Database

#: What happens in the suite, and what in a soak: the arguments of the example's `Size`.
SMALL = {"runs": 4, "workers": 2, "kills": 3, "kill_every": 0.3, "phase_seconds": 0.1, "ticks": 1}
WHOLE: dict[str, Any] = {}


#: What would be there twice.
DOUBLED = (
    """SELECT workflow_run_id, skill FROM executions WHERE outcome = 'succeeded'
    GROUP BY workflow_run_id, skill HAVING count(*) > 1""",
    """SELECT workflow_run_id FROM workflow_approvals WHERE status = 'approved'
    GROUP BY workflow_run_id HAVING count(*) > 1""",
    "SELECT run_key FROM workflow_runs WHERE run_key IS NOT NULL GROUP BY run_key HAVING count(*) > 1",
    "SELECT cron_name, scheduled_for FROM cron_fires GROUP BY cron_name, scheduled_for HAVING count(*) > 1",
)
#: What would have been lost, or left behind.
LEFT = (
    "SELECT id FROM executions WHERE finished_at IS NULL",
    "SELECT id FROM workflow_approvals WHERE status = 'pending'",
    "SELECT id FROM cron_fires WHERE status = 'running'",
    """SELECT f.id FROM cron_fires f WHERE f.status = 'ok'
    AND NOT EXISTS (SELECT 1 FROM workflow_runs r WHERE r.run_key = f.id)""",
    """SELECT id FROM workflow_runs WHERE status = 'succeeded' AND 3 <> (SELECT count(DISTINCT e.skill)
    FROM executions e WHERE e.workflow_run_id = workflow_runs.id AND e.outcome = 'succeeded')""",
)


#: A soak may take as long as the example lets its fleet work, and a minute more.
SOAK = (pytest.mark.soak, pytest.mark.timeout(960))


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, pytest.param(WHOLE, marks=SOAK)], ids=["small", "whole"])
def test_a_fleet_whose_workers_are_killed_loses_and_doubles_nothing(
    fresh_database: Database, monkeypatch: pytest.MonkeyPatch, size: dict[str, Any]
) -> None:
    """workflows W-127."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    fleet = importlib.import_module("fleet")
    given = fleet.Size(**size)
    fleet.supervise(fresh_database.url, given, random.Random(7))
    raw = Raw(fresh_database)
    runs = raw("SELECT id, status, phase_history, issue_number, restart_count FROM workflow_runs")
    assert len(runs) >= given.runs + given.ticks
    for run_id, status, history, issue, restarts in runs:
        phases = [entry["phase"] for entry in (json.loads(history) if isinstance(history, str) else history)]
        assert status == "succeeded" or (status == "cancelled" and issue % 10 == 3)
        assert phases == list(fleet.PHASES)[: len(phases)]
        assert status == "cancelled" or len(phases) == len(fleet.PHASES)
        raw.check_history(run_id)
        [(taken_over,)] = raw(
            "SELECT count(*) FROM run_transitions WHERE run_id = ? AND reason = 'claim.taken_over'", run_id
        )
        assert restarts <= taken_over
    for statement in (*DOUBLED, *LEFT):
        assert raw(statement) == [], statement
