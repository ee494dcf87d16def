"""Claims of due crons: the plan moves on and the fire is stored, both or neither, before anything runs.

Each cron is a unit of its own. It takes the schedule's row first, then looks: at its plan, at the fire that the instant
may have, at the fires that run. The unique index over instants stands behind all of it.

What becomes of a due cron: fired, noted as missed, or merely planned anew. Decided before any lock is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.ids import new_id
from lastlight_state.schedules import claiming
from lastlight_state.schedules.arguments import FireClaim
from lastlight_state.schedules.crons import claim_statements as sql, plans
from lastlight_state.schedules.crons.plans import Plan
from lastlight_state.schedules.crons.statements import PLAN

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


T = TypeVar("T")

#: How a work runs: one of the ways of a repository.
Run = Callable[[Callable[[Unit], T]], T]

_BEGIN: tuple[datetime, str] = (datetime(1, 1, 1, tzinfo=UTC), "")


@dataclass(frozen=True)
class Claimer:
    """Who claims, when, and on what terms."""

    owner: str
    now: datetime
    lease: timedelta
    backfill_window: timedelta

    def claimed(self, reading: Run[Any], writing: Run[Any], limit: int) -> list[FireClaim]:
        """At most ``limit`` claims, the earliest instant first. Reads only, as long as nothing is due."""
        return claiming.claimed(self._due(reading, limit), lambda row: self._claim(writing, row), limit)

    def _due(self, reading: Run[Any], limit: int) -> Iterator[dict[str, Any]]:
        """What is due, each cron once, read in portions: a row that gives no claim keeps none behind it waiting."""
        last, seen = _BEGIN, set[str]()
        while True:
            asked = {"now": self.now, "after": last[0], "after_name": last[1], "limit": limit}
            found = reading(lambda unit, asked=asked: unit.rows(sql.DUE, asked))  # type: ignore[misc]
            yield from (row for row in found if row["name"] not in seen)
            seen.update(row["name"] for row in found)
            if len(found) < limit or (found[-1]["next_run_at"], found[-1]["name"]) == last:
                return  # on SQLite, an instant that is spelt in another way than ours may come after itself
            last = found[-1]["next_run_at"], found[-1]["name"]

    def _claim(self, writing: Run[Any], row: dict[str, Any]) -> FireClaim | None:
        """The claim of one cron; None where it does not fire, or somebody else was first.

        After instants too old to be made up for, the cron may still be due at one that is not.
        """
        decision = decide(row, self.now, self.backfill_window)
        claim: FireClaim | None = self._settled(writing, row, decision)
        plan = decision.plan
        if decision.status == "missed" and plan.next_run_at is not None and plan.next_run_at <= self.now:
            row = {**row, "next_run_at": plan.next_run_at, "planned_with": plan.planned_with}
            return self._settled(writing, row, decide(row, self.now, self.backfill_window))
        return claim

    def _settled(self, writing: Run[Any], row: Mapping[str, Any], decision: Decision) -> FireClaim | None:
        plan = decision.plan
        values = {
            "name": row["name"],
            "read": row["next_run_at"],
            "now": self.now,
            "fire_id": new_id(),
            "status": decision.status,
            "owner": self.owner,
            "lease_until": self.now + self.lease,
            "note": decision.note,
            "next_run_at": plan.next_run_at,
            "planned_with": plan.planned_with,
            "sets_error": plan.error is not None,
            "error": plan.error,
        }
        claim: FireClaim | None = writing(lambda unit: _settle(unit, row, values))
        return claim


def _settle(unit: Unit, row: Mapping[str, Any], values: dict[str, Any]) -> FireClaim | None:
    """Store the fire, if there is to be one, and move the plan on, unless the row is not what was decided about."""
    if unit.row(sql.LOCK_DUE, values) != row:
        return None
    fire = unit.row(sql.FIRE, values) if values["status"] is not None else None
    runs = fire is not None and fire.pop("status") == "running"
    unit.change(sql.FIRED if runs else PLAN, values)
    return FireClaim.of(fire) if fire is not None and runs else None
