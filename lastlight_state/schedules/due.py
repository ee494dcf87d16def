"""What becomes of a due cron: fired, noted as missed, or merely planned anew. Decided before any lock is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from lastlight_state.errors import CorruptData
from lastlight_state.schedules import plans
from lastlight_state.schedules.plans import Plan

LATE = "late, and not caught up with"
TOO_OLD = "older than the backfill window, with all instants up to its begin"
_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Decision:
    """The fire that a due instant gets, if any, and the plan after it."""

    status: Literal["running", "missed"] | None
    plan: Plan
    note: str | None = None


def decide(row: Mapping[str, Any], now: datetime, backfill_window: timedelta) -> Decision:
    """Decide about the row of a due cron, with its override's columns.

    One that is off, or was planned with another pattern or zone than holds now, does not fire at the instant that was
    computed for it. One that cannot be planned any more fires this last time.
    """
    held = plans.held_by(row)
    if row["retired_at"] is not None or not held.enabled:
        return Decision(None, plans.OFF)
    if row["planned_with"] not in (None, held.plan):
        plan = plans.planned(held, now)
        return Decision(None if plan.error is None else "running", plan)
    instant: datetime = row["next_run_at"]
    if row["catch_up"] == "all":
        if now - instant <= backfill_window:
            return Decision("running", plans.planned(held, instant))
        return Decision("missed", plans.planned(held, now - backfill_window - _TICK), TOO_OLD)
    if row["catch_up"] == "none" and not _on_time(now - instant, row):
        return Decision("missed", plans.planned(held, now), LATE)
    return Decision("running", plans.planned(held, now))


def _on_time(late: timedelta, row: Mapping[str, Any]) -> bool:
    """Compared as numbers: what stands there by hand may be more than a timedelta holds, or no number."""
    try:
        return bool(late.total_seconds() <= row["grace_seconds"])
    except TypeError as error:
        raise CorruptData("cron_schedules", row["name"], "grace_seconds") from error
