"""The one way from running to paused, whatever the run is to wait for. Its claim ends: nobody holds a paused run."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from lastlight_state.db.unit import Unit
from lastlight_state.workflows import transitions
from lastlight_state.workflows.arguments import Claim, Wait
from lastlight_state.workflows.records import WorkflowRun

Why = Literal["gate", "timer", "signal", "operator"]
NOTHING = Wait()


def pause(
    unit: Unit, row: dict[str, Any], why: Why, *, at: datetime, claim: Claim | None, wait: Wait = NOTHING
) -> WorkflowRun:
    """Pause a locked, running run that the caller has fenced; besides its gates it waits for ``wait``."""
    return transitions.move(
        unit,
        transitions.PAUSE,
        row,
        "paused",
        reason=f"run.paused.{why}",
        at=at,
        source="engine",
        presented_epoch=claim.epoch if claim else None,
        pause_reason=why,
        wake_at=wait.until,
        waiting_for=wait.signal,
        correlation_id=wait.correlation_id,
    )
