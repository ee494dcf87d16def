"""The plan of a cron: when it is due next, and from which zone and pattern that was computed.

A stored plan no longer matches after the pattern, the time zone or the zone's data change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state import codec, cron
from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import prepared
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, LostRace
from lastlight_state.schedules.crons import statements as sql
from lastlight_state.schedules.effective import Effective, EffectiveColumns, OverriddenColumns, Own, effective
from lastlight_state.schedules.models import CRON, CRON_COLUMNS, SCHEDULES, THIS_SCHEDULE, UNPLANNED, WITH_OVERRIDE
from lastlight_state.schedules.records import Cron, CronRow

# The schedule's row is locked before anything is decided about the cron, its override or its fires.
#
# *Lock, then look*: one statement locks the row, and the next reads it. On Postgres, a single statement that locks the
# row and joins the override would, after waiting for the lock, return the new row with the old override.

#: A named lock, held while a schedule is added, or while a name without a schedule is overridden.
NEW_NAMES = "cron names"

GET = prepared(sa.select(*CRON_COLUMNS).select_from(WITH_OVERRIDE).where(THIS_SCHEDULE), CronRow)
LOCK = prepared(sa.select(SCHEDULES.c.name).where(THIS_SCHEDULE).with_for_update(key_share=True))


def find_locked(unit: Unit, name: str) -> CronRow | None:
    """Lock a schedule's row; return it with its override's columns, or None for a name without a schedule."""
    locked = unit.row(LOCK, {"name": name})
    return None if locked is None else unit.row(GET, locked)


def find_or_reserve(unit: Unit, name: str) -> CronRow | None:
    """Return the row like `find_locked`.

    If it returns None, no other unit adds a schedule or overrides a missing one until this unit ends.
    """
    row = find_locked(unit, name)
    if row is None:
        unit.named_lock(NEW_NAMES)
        row = find_locked(unit, name)
    return row


def lock(unit: Unit, name: str) -> CronRow:
    """Lock a schedule's row; return it with its override's columns. Raises `NotFound`."""
    row = find_locked(unit, name)
    if row is None:
        raise valid.not_found(CRON, name)
    return row


def get(unit: Unit, name: str) -> Cron:
    """Return the cron with all its columns. Raises `NotFound`."""
    found = unit.find(Cron.of, GET, {"name": name})
    if found is None:
        raise valid.not_found(CRON, name)
    return found


_MOST = limits_of(SCHEDULES)

#: The error type of a cron that has no next instant.
NOT_PLANNED = "not_planned"
_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class CronPlan:
    """A cron's next instant and what it was computed from, or the error that tells why it has no next instant.

    ``planned_with`` is None if nothing was computed: a caller set the instant, or the cron is switched off.
    """

    next_run_at: datetime | None
    planned_with: str | None = None
    error: str | None = None


class PlanColumns(TypedDict):
    """What a row says of its plan."""

    next_run_at: datetime | None
    planned_with: str | None
    retired_at: datetime | None


class StoredPlan(TypedDict):
    """A plan as parameters of a statement."""

    next_run_at: datetime | None
    planned_with: str | None
    sets_error: bool
    error: str | None


class TrackedRun(TypedDict):
    """A run of a service's own loop, and what follows it."""

    name: str
    last_run_at: datetime | None
    next_run_at: datetime | None
    error: str | None


OFF = CronPlan(None)


def effective_of(row: EffectiveColumns) -> Effective:
    """Return a cron's values in effect, from a row with its override's columns."""
    return effective(Own.of(row), row)


def planned(held: Effective, after: datetime) -> CronPlan:
    """Return the plan for the first instant after ``after``. Without such an instant, the plan carries an error.

    Raises only `MisuseError`, if the extra ``cron`` is not installed.
    """
    try:
        instant = cron.next_after(held.pattern, held.timezone, after)
    except InvalidValue as error:
        return _impossible(held, str(error))
    if instant is None:
        return _impossible(held, f"{held.pattern!r}: no instant after {iso_text(after)}")
    return CronPlan(instant, held.plan)


def from_now(row: PlanColumns, held: Effective, now: datetime) -> CronPlan:
    """Return the plan that the row should have: the stored one if it still matches, else a new one from now."""
    if row["retired_at"] is not None or not held.enabled:
        return OFF
    return CronPlan(row["next_run_at"], row["planned_with"]) if matches(row, held, now) else planned(held, now)


def matches(row: PlanColumns, held: Effective, now: datetime) -> bool:
    """Return whether a row's stored instant is an instant of the effective pattern.

    An instant that a caller set always matches, and so does a due instant of this pattern. A due instant that was
    planned with another pattern matches if it is also an instant of this one.
    """
    instant, planned_with = row["next_run_at"], row["planned_with"]
    if instant is None:
        return False
    if planned_with is None:
        return True
    if planned_with != held.plan:
        return is_due_under_both(instant, planned_with, held, now)
    return bool(instant <= now) or planned(held, instant - _TICK).next_run_at == instant


def is_due_under_both(instant: datetime, planned_with: str, held: Effective, now: datetime) -> bool:
    """Return whether a due instant of another pattern is also an instant of the effective pattern."""
    if instant > now or planned_with in ("", UNPLANNED):
        return False
    return planned(held, instant - _TICK).next_run_at == instant


def store(unit: Unit, row: CronRow, plan: CronPlan) -> bool:
    """Store the plan of a locked row if it differs from the stored plan; return whether it differs."""
    values = stored_as(row, plan)
    same = (row["next_run_at"], row["planned_with"]) == (plan.next_run_at, plan.planned_with)
    if same and not values["sets_error"]:
        return False
    unit.change(sql.PLAN, {"name": row["name"], **values})
    return True


def stored_as(row: CronRow, plan: CronPlan) -> StoredPlan:
    """Return a plan as statement parameters.

    A plan with an instant clears a stored "not planned" error; the error of a fire stays.
    """
    error = row["error"]
    not_planned = isinstance(error, dict) and error.get("type") == NOT_PLANNED
    sets = codec.decode(plan.error) != error if plan.error else not_planned and plan.next_run_at is not None
    return {
        "next_run_at": plan.next_run_at,
        "planned_with": plan.planned_with,
        "sets_error": sets,
        "error": plan.error,
    }


def after_override(unit: Unit, row: CronRow | None, columns: OverriddenColumns, now: datetime) -> None:
    """Plan a cron again after its override changed. ``row`` is its locked row before the change; None does nothing.

    The cron is planned from now, but an instant that is due under both patterns stays. The plan is stored in any case,
    because the override's trigger has marked the row if its plan does not fit.

    Without the extra ``cron`` no instant can be computed. Then a cron that is switched off loses its plan. Any other
    plan that no longer fits stays marked: `take_due` plans the cron again in a process that has the extra.
    """
    if row is None:
        return
    changed: CronRow = {**row, **columns}
    held = effective_of(changed)
    if not held.enabled or cron.available():
        unit.change(sql.PLAN, {"name": row["name"], **stored_as(row, _changed_plan(changed, held, now))})


def _changed_plan(row: CronRow, held: Effective, now: datetime) -> CronPlan:
    """Return the plan like `from_now`, but drop an instant that a caller set: the changed override replaces it."""
    before: PlanColumns = {
        "next_run_at": row["next_run_at"],
        "planned_with": row["planned_with"] or "",
        "retired_at": row["retired_at"],
    }
    return from_now(before, held, now)


def _impossible(held: Effective, problem: str) -> CronPlan:
    error = {"type": NOT_PLANNED, "message": problem}
    return CronPlan(None, held.plan, codec.encode("error", error, max_bytes=_MOST.error_json))


def track(unit: Unit, values: TrackedRun, expected: datetime | None) -> Cron:
    """Store the run and next instant of a service's own loop, if the stored next instant is the expected one.

    Raises `LostRace` for another stored instant, `Conflict` ``retired``, and `NotFound`.
    """
    row = lock(unit, values["name"])
    if row["retired_at"] is not None:
        raise Conflict(f"the cron {row['name']!r} is retired", code="retired", name=row["name"])
    if row["next_run_at"] != expected:
        raise LostRace(
            f"the cron {row['name']!r} is planned for {row['next_run_at']}, not for {expected}",
            name=row["name"],
            expected=expected,
            current=row["next_run_at"],
        )
    [stored] = unit.rows(sql.TRACK, values)
    return Cron.of({**row, **stored})


def replan(unit: Unit, row: CronRow | None, now: datetime) -> bool:
    """Store the plan that the locked row should have; return whether the stored plan was a different one."""
    return row is not None and store(unit, row, from_now(row, effective_of(row), now))


def mismatched(reading: Callable[[Callable[[Unit], Any]], Any], now: datetime) -> Iterator[str]:
    """Yield the sorted names of crons whose plan no longer matches. Reads crons in batches."""
    after = ""
    while True:
        found, in_all = reading(lambda unit, after=after: unit.sound(sql.IN_PLACE, {"after": after}))  # type: ignore[misc]
        for row in found:
            plan = from_now(row, effective_of(row), now)
            if (plan.next_run_at, plan.planned_with) != (row["next_run_at"], row["planned_with"]) or plan.error:
                yield row["name"]
        if in_all < sql.BATCH or not found:
            return
        after = found[-1]["name"]
