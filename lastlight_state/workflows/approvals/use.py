"""How an approved action is used: once, by one execution, and unchanged since it was approved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lastlight_state.db import valid
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, StaleVersion
from lastlight_state.workflows import words
from lastlight_state.workflows.approvals import statements as sql
from lastlight_state.workflows.approvals.records import Approval
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.kernel import fence, rows


@dataclass(frozen=True)
class Use:
    """An execution that is about to do the action of a gate."""

    approval_id: str
    action_digest: str | None
    execution_id: str
    at: datetime


def consume(unit: Unit, use: Use, claim: Claim | None) -> Approval:
    """Mark the gate as used by this execution. Repeat-safe for the same execution."""
    row, approval = sql.QUESTIONS.locked(unit, use.approval_id)
    fence.check(row, claim)
    rows.expect(row, words.LIVE)
    if approval.status != "approved":
        raise Conflict(
            f"approval {approval.id!r} is {approval.status}",
            code=f"approval_{approval.status}",
            found=approval.status,
            allowed=("approved",),
        )
    if approval.action_digest != use.action_digest:
        raise StaleVersion("approval", approval.id, expected=use.action_digest, found=approval.action_digest)
    if approval.consumed_by is not None:
        return _used(approval, use)
    _check_execution(unit, use, row["id"])
    return unit.all(
        Approval.of, sql.CONSUME, {"approval_id": approval.id, "execution_id": use.execution_id, "at": use.at}
    )[0]


def _used(approval: Approval, use: Use) -> Approval:
    if approval.consumed_by == use.execution_id:
        return approval
    raise Conflict(
        f"approval {approval.id!r} was consumed by execution {approval.consumed_by!r}",
        code="approval_consumed",
        by=approval.consumed_by,
    )


def _check_execution(unit: Unit, use: Use, run_id: str) -> None:
    execution = unit.row(sql.RUN_OF_EXECUTION, {"execution_id": use.execution_id})
    if execution is None:
        raise valid.not_found("execution", use.execution_id)
    if execution["workflow_run_id"] != run_id:
        raise InvalidValue("execution_id", "must be an execution of this run")
