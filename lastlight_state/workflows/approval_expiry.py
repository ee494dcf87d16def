"""Gates that nobody answered in time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.clock import iso_text
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import approval_statements as sql
from lastlight_state.workflows import gates, run_rows, words
from lastlight_state.workflows.gates import Said


def due_runs(unit: Unit, now: datetime, limit: int) -> list[str]:
    """The runs of the gates that are due, of at most ``limit`` gates, the longest overdue first; in ascending id."""
    return sorted({row["workflow_run_id"] for row in unit.rows(sql.DUE_RUNS, {"at": now, "limit": limit})})


def expire(unit: Unit, listeners: Listeners, run_id: str, now: datetime) -> list[str]:
    """Expire what is due in one run, and let the run fail or go on. The ids that changed."""
    row = run_rows.lock(unit, run_id)
    expired = sorted(
        unit.rows(sql.EXPIRE, {"run_id": run_id, "at": now}), key=lambda gate: (gate["expires_at"], gate["id"])
    )
    if expired and row["status"] in words.LIVE:
        _after(unit, listeners, row, expired, {"at": now, "source": "system", "actor": None})
    return [gate["id"] for gate in expired]


def _after(unit: Unit, listeners: Listeners, row: dict[str, Any], expired: list[dict[str, Any]], said: Said) -> None:
    failing = next((gate for gate in expired if gate["on_reject"] == "fail"), None)
    if failing is None:
        gates.go_on(unit, row, said)
        return
    error = f"Expired: {failing['gate']} was not answered by {iso_text(failing['expires_at'])}"
    gates.fail(unit, listeners, row, error, reason="gate.expired", said=said)
