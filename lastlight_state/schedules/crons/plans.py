"""The plan of a cron: when it is due next, and the zone and pattern from which that was computed.

A stored plan no longer matches if the pattern, the time zone or the zone's data change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self, TypedDict

import sqlalchemy as sa

from lastlight_state import codec, cron
from lastlight_state.clock import iso_text
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Record, make_record, needed_columns
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, LostRace
from lastlight_state.schedules.crons import statements as sql
from lastlight_state.schedules.effective import Effective, OverrideColumns, Timing, effective
from lastlight_state.schedules.models import CRON, SCHEDULES, THIS_SCHEDULE, UNPLANNED, WITH_OVERRIDE
from lastlight_state.schedules.records import Cron, CronSummary

# The schedule's row is locked before anything is decided about the cron, its override or its fires.
#
# *Lock, then look*: one statement locks the row, and the next reads it. On Postgres, a single statement that locks the
# row and joins the override would, after waiting for the lock, return the new row with the old override.

#: A named lock, held while a schedule is added, or while a name without a schedule is overridden.
NEW_NAMES = "cron names"


class StoredCron(Record):
    """A cron, and the columns of its override."""

    cron: Cron
    override: OverrideColumns

    _computed = frozenset({"cron", "override"})
    _consumed = frozenset(needed_columns(Cron))

    @classmethod
    def of(cls, values: Any) -> Self:
        override = OverrideColumns(*(values[name] for name in OverrideColumns._fields))
        return make_record(cls, {"cron": Cron.of(values), "override": override})


_get = sa.select(*sql.CRON_COLUMNS).select_from(WITH_OVERRIDE).where(THIS_SCHEDULE)
GET, GET_STORED = statement_of(_get, Cron), statement_of(_get, StoredCron)
LOCK = statement_of(sa.select(SCHEDULES.c.name).where(THIS_SCHEDULE).with_for_update(key_share=True))


def find_locked(unit: Unit, name: str) -> StoredCron | None:
    """Return the cron of the locked row, or None for a name without a schedule."""
    locked = unit.row(LOCK, {"name": name})
    return None if locked is None else unit.row(GET_STORED, locked)


def find_or_reserve(unit: Unit, name: str) -> StoredCron | None:
    """Return the cron as `find_locked`.

    If it returns None, no other unit can add the schedule, or an override for it, until this unit ends.
    """
    stored = find_locked(unit, name)
    if stored is None:
        unit.named_lock(NEW_NAMES)
        stored = find_locked(unit, name)
    return stored


def lock(unit: Unit, name: str) -> StoredCron:
    """Return the cron of the locked row. Raises `NotFound`."""
    stored = find_locked(unit, name)
    if stored is None:
        raise valid.not_found(CRON, name)
    return stored


def get(unit: Unit, name: str) -> Cron:
    """Return the whole cron. Raises `NotFound`."""
    found = unit.row(GET, {"name": name})
    if found is None:
        raise valid.not_found(CRON, name)
    return found


_LIMITS = limits_of(SCHEDULES)

#: The error type of a cron that has no next instant.
NOT_PLANNED = "not_planned"
_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class CronPlan:
    """A cron's next instant and the data from which it was computed, or an error with the reason why there is none.

    ``planned_with`` is None if nothing was computed: a caller set the instant, or the cron is switched off.
    """

    next_run_at: datetime | None
    planned_with: str | None = None
    error: str | None = None


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


def effective_of(cron: Any, override: OverrideColumns) -> Effective:
    """Return what is in effect for a cron under an override's columns. Does not look at whether it is retired."""
    return effective(Timing(cron.pattern, cron.timezone, cron.enabled), override)


def next_plan(held: Timing, after: datetime) -> CronPlan:
    """Return the plan for the first instant after ``after``. If there is no such instant, the plan carries the reason.

    Raises only `MisuseError`, if the extra ``cron`` is not installed.
    """
    try:
        instant = cron.next_after(held.pattern, held.timezone, after)
    except InvalidValue as error:
        return _impossible(held, str(error))
    if instant is None:
        return _impossible(held, f"{held.pattern!r}: no instant after {iso_text(after)}")
    return CronPlan(instant, held.plan)


def from_now(before: CronPlan, held: Timing, now: datetime) -> CronPlan:
    """Return the plan that a cron should have: the one before if it still matches, else a new one from now."""
    if not held.enabled:
        return OFF
    return before if matches(before, held, now) else next_plan(held, now)


def matches(plan: CronPlan, held: Timing, now: datetime) -> bool:
    """Return whether the stored instant is an instant of the effective pattern.

    An instant that a caller set always matches, and so does a due instant of this pattern. A due instant that was
    planned with another pattern matches if it is also an instant of this one.
    """
    instant, planned_with = plan.next_run_at, plan.planned_with
    if instant is None:
        return False
    if planned_with is None:
        return True
    if planned_with != held.plan:
        return is_due_under_both(instant, planned_with, held, now)
    return bool(instant <= now) or next_plan(held, instant - _TICK).next_run_at == instant


def is_due_under_both(instant: datetime, planned_with: str, held: Timing, now: datetime) -> bool:
    """Return whether a due instant of another pattern is also an instant of the effective pattern."""
    if instant > now or planned_with in ("", UNPLANNED):
        return False
    return next_plan(held, instant - _TICK).next_run_at == instant


def store(unit: Unit, cron: Cron, plan: CronPlan) -> bool:
    """Store the plan of a locked cron if it differs from the stored one. Return whether it did."""
    values = stored_as(cron, plan)
    same = (cron.next_run_at, cron.planned_with) == (plan.next_run_at, plan.planned_with)
    if same and not values["sets_error"]:
        return False
    unit.change(sql.PLAN, {"name": cron.name, **values})
    return True


def stored_as(cron: Cron, plan: CronPlan) -> StoredPlan:
    """Return a plan as parameters. A plan with an instant clears a stored "not planned" error; a fire's error stays."""
    error = cron.error
    not_planned = isinstance(error, dict) and error.get("type") == NOT_PLANNED
    sets = codec.decode(plan.error) != error if plan.error else not_planned and plan.next_run_at is not None
    return {
        "next_run_at": plan.next_run_at,
        "planned_with": plan.planned_with,
        "sets_error": sets,
        "error": plan.error,
    }


def after_override(unit: Unit, stored: StoredCron | None, override: OverrideColumns, now: datetime) -> None:
    """Plan a cron again after its override changed. ``stored`` is the cron before the change; None does nothing.

    The cron is planned from now, but an instant that is due under both patterns stays. The plan is always stored,
    because the override's trigger has marked the row if its plan does not fit.

    Without the extra ``cron``, instants cannot be computed. Then a cron that is switched off loses its plan. Any other
    plan that no longer fits stays marked: `take_due` plans the cron again in a process that has the extra.
    """
    if stored is None:
        return
    held = effective_of(stored.cron, override)
    if not held.enabled or cron.available():
        plan = _changed_plan(stored.cron, held, now)
        unit.change(sql.PLAN, {"name": stored.cron.name, **stored_as(stored.cron, plan)})


def _changed_plan(stored: Cron, held: Effective, now: datetime) -> CronPlan:
    """Return the plan like `from_now`, but drop an instant that a caller set: a change of the override replaces it."""
    if stored.retired_at is not None:
        return OFF
    return from_now(CronPlan(stored.next_run_at, stored.planned_with or ""), held, now)


def _impossible(held: Timing, problem: str) -> CronPlan:
    error = {"type": NOT_PLANNED, "message": problem}
    return CronPlan(None, held.plan, codec.encode("error", error, max_bytes=_LIMITS.error_json))


def track(unit: Unit, values: TrackedRun, expected: datetime | None) -> Cron:
    """Store the run and the next instant of a service's own loop, if the stored instant is the expected one."""
    stored = lock(unit, values["name"])
    before = stored.cron
    if before.retired_at is not None:
        raise Conflict(f"the cron {before.name!r} is retired", code="retired", name=before.name)
    if before.next_run_at != expected:
        raise LostRace(
            f"the cron {before.name!r} is planned for {before.next_run_at}, not for {expected}",
            name=before.name,
            expected=expected,
            current=before.next_run_at,
        )
    [tracked] = unit.rows(sql.TRACK, values)
    return Cron.of({**tracked, **stored.override._asdict()})


def replan(unit: Unit, stored: StoredCron | None, now: datetime) -> bool:
    """Store the plan that the locked cron should have. Return whether its plan was another one."""
    return stored is not None and store(unit, stored.cron, _fitting_plan(stored.cron, now))


def _fitting_plan(cron: CronSummary, now: datetime) -> CronPlan:
    """Return the plan that a cron should have."""
    held = Timing(cron.effective_pattern, cron.effective_timezone, cron.effective_enabled)
    return from_now(CronPlan(cron.next_run_at, cron.planned_with), held, now)


def mismatched_names(reading: Callable[[Callable[[Unit], Any]], Any], now: datetime) -> Iterator[str]:
    """Yield the sorted names of crons whose plan no longer matches. Reads crons in batches."""
    after = ""
    while True:
        found, in_all = reading(lambda unit, after=after: unit.readable_rows(sql.IN_PLACE, {"after": after}))  # type: ignore[misc]
        for stored in found:
            plan = _fitting_plan(stored, now)
            if (plan.next_run_at, plan.planned_with) != (stored.next_run_at, stored.planned_with) or plan.error:
                yield stored.name
        if in_all < sql.BATCH or not found:
            return
        after = found[-1].name
