"""What `question_opening` needs to know of a gate: while one is pending, no other of its request key is opened."""

from __future__ import annotations

from typing import Any

from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.workflows import approval_statements as sql
from lastlight_state.workflows.approval_records import Approval
from lastlight_state.workflows.question_opening import Opening


def opening(gate: dict[str, Any]) -> Opening[Approval]:
    """A gate about to be asked."""
    return Opening(
        sql.QUESTIONS, gate, gate["workflow_run_id"], gate["created_at"], refuse=lambda unit: _refuse_key(unit, gate)
    )


def _refuse_key(unit: Unit, gate: dict[str, Any]) -> None:
    pending = unit.find(Approval, sql.FIND_PENDING_KEY, gate)
    if pending is not None:
        raise AlreadyExists(
            "approval", pending.id, problem="is pending with the same request key in this run", approval=pending
        )
