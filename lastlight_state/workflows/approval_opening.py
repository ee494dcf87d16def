"""How a gate is opened: beside a run that goes on, or together with the run's pause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lastlight_state.clock import iso_text
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue
from lastlight_state.settings import Limits
from lastlight_state.workflows import approval_statements as sql
from lastlight_state.workflows import run_progress, run_rows, transitions
from lastlight_state.workflows.approval_records import Approval
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.run_progress import Step


def beside(unit: Unit, gate: dict[str, Any], claim: Claim | None) -> Approval:
    """Store a gate of a run that goes on."""
    row = run_rows.lock(unit, gate["workflow_run_id"])
    return _stored(unit, gate) or _insert(unit, row, gate, ("running", "paused"), claim)


def pausing(unit: Unit, gate: dict[str, Any], step: Step, limits: Limits, claim: Claim | None) -> Approval:
    """Store a gate and pause its run, which nobody holds from then on."""
    row = run_progress.lock(unit, step)
    stored = _stored(unit, gate)
    if stored is not None:
        return stored
    approval = _insert(unit, row, gate, ("running",), claim)
    run_progress.add(unit, row, step, limits)
    transitions.move(
        unit,
        transitions.PAUSE,
        row,
        "paused",
        reason="run.paused.gate",
        at=step.at,
        source="engine",
        presented_epoch=claim.epoch if claim else None,
        pause_reason="gate",
        wake_at=None,
        waiting_for=None,
        correlation_id=None,
    )
    return approval


def _stored(unit: Unit, gate: dict[str, Any]) -> Approval | None:
    """The gate of this id, if it is there and the same. Looked for first: the pause that stored it ended the claim."""
    stored = unit.find(Approval, sql.GET, {"approval_id": gate["id"]})
    if stored is None:
        return None
    if any(getattr(stored, name) != gate[name] for name in sql.SAME):
        raise AlreadyExists("approval", stored.id, problem="already exists with another content")
    return stored


def _insert(
    unit: Unit, row: dict[str, Any], gate: dict[str, Any], allowed: Sequence[str], claim: Claim | None
) -> Approval:
    run_rows.fence(row, claim)
    run_rows.expect(row, allowed)
    if gate["expires_at"] is not None and gate["expires_at"] <= gate["created_at"]:
        raise InvalidValue("gate.expires_at", f"{iso_text(gate['expires_at'])} is not ahead")
    pending = unit.find(Approval, sql.FIND_PENDING_KEY, gate)
    if pending is not None:
        raise AlreadyExists(
            "approval", pending.id, problem="is pending with the same request key in this run", approval=pending
        )
    return unit.all(Approval, sql.INSERT, gate)[0]
