"""Executions: start and finish one of a run."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from benchmarks.runs import TRIGGER
from lastlight_state.ids import new_id
from lastlight_state.workflows import Usage

_START = (
    "INSERT INTO executions (id, trigger_type, trigger_id, skill, repo, issue_number, started_at, workflow_run_id, "
    "owner, triggered_by, trigger_actor_type, iteration, outcome, heartbeat_at, cached) "
    "SELECT ?, trigger_type, trigger_id, ?, repo, issue_number, ?, id, "
    "owner, triggered_by, trigger_actor_type, 0, 'running', ?, {false} FROM workflow_runs "
    "WHERE id = ? AND status = 'running' AND claim_owner IS NULL {lock} RETURNING id"
)
_FINISH = (
    "UPDATE executions SET finished_at = ?, success = {true}, outcome = 'succeeded', duration_ms = ?, turns = ?, "
    "input_tokens = ?, output_tokens = ?, cost_usd = ?, cost_micros = ?, session_id = ? "
    "WHERE id = ? AND finished_at IS NULL AND success IS NULL AND EXISTS "
    "(SELECT 1 FROM workflow_runs WHERE id = ? AND claim_owner IS NULL {lock}) RETURNING id"
)
USAGE = Usage(turns=7, input_tokens=812, output_tokens=96, cost_usd=Decimal("0.0125"))


def results(side: Side) -> Iterator[Result]:
    """Start, then finish what was started."""
    executions = side.store.workflows.executions
    run_id = side.store.workflows.runs.create("triage", trigger=TRIGGER, phase="start").id
    ours: list[str] = []
    theirs: list[str] = []
    words = (
        {"false": "0", "true": "1", "lock": ""}
        if side.name == "sqlite"
        else {"false": "false", "true": "true", "lock": "FOR NO KEY UPDATE"}
    )

    def start() -> None:
        ours.append(executions.start("triage:build", run_id=run_id).id)

    def started() -> tuple[object, ...]:
        theirs.append(new_id())
        now = side.now()
        return theirs[-1], "triage:build", now, now, run_id

    yield compare(
        "start execution",
        side.name,
        start,
        side.unit((_START.format(**words), started)),
        goal=goal("start execution", side.name),
    )
    yield compare(
        "finish execution",
        side.name,
        lambda: executions.finish(ours.pop(), "succeeded", usage=USAGE, session_id="s1"),
        side.unit(
            (_FINISH.format(**words), lambda: (side.now(), 1, 7, 812, 96, 0.0125, 12500, "s1", theirs.pop(), run_id)),
        ),
        goal=goal("finish execution", side.name),
        calls=200,
    )
