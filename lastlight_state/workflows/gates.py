"""What becomes of a run when one of its questions is closed (workflows W-85).

Everything here happens under the run's lock, taken before: the questions that are left are counted after it, so two
people who close the last two at the same instant cannot leave the run paused with nothing pending.
"""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db.listeners import Listeners
from lastlight_state.db.statements import constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import run_rows, transitions, words
from lastlight_state.workflows.approval_statements import APPROVALS
from lastlight_state.workflows.records import WorkflowRun

BLOCKING = prepared(
    sa.select(APPROVALS.c.id)
    .where(*transitions.PENDING_GATES, APPROVALS.c.blocks_run == sa.true())
    .order_by(APPROVALS.c.id)
    .limit(sa.literal_column("20"))
)
"""The questions that still hold a run: all that matters is whether there are any, and an error names some."""

HELD = sa.exists().where(
    APPROVALS.c.workflow_run_id == run_rows.RUNS.c.id,
    sa.func.coalesce(APPROVALS.c.status, constant("unknown")) == constant("pending"),
    APPROVALS.c.blocks_run == sa.true(),
)
"""The same as a condition of a statement over runs: whether any question still holds the run."""


class Said(TypedDict):
    """Who closed the question, and when."""

    at: Any
    source: words.Source
    actor: str | None


def go_on(unit: Unit, row: dict[str, Any], said: Said) -> WorkflowRun:
    """Offer a run to any worker if it was paused for gates and none that blocks it is left; else leave it as it is."""
    waits = row["status"] == "paused" and row["pause_reason"] in (None, "gate")
    if not waits or unit.row(BLOCKING, {"run_id": row["id"]}):
        return run_rows.get(unit, row["id"])
    return transitions.move(unit, transitions.RESUME, row, "running", reason="run.resumed.gate", **said)


def fail(unit: Unit, listeners: Listeners, row: dict[str, Any], error: str, *, reason: str, said: Said) -> WorkflowRun:
    """Fail a live run because of a gate, and close everything else that hangs on it."""
    return transitions.end(unit, listeners, row, "failed", error=_cut(error), reason=reason, **said)


def _cut(text: str) -> str:
    """The text, as much of it as an error may hold."""
    data = text.encode()
    return text if len(data) <= words.ERROR else data[: words.ERROR].decode(errors="ignore")
