"""When a cron is due next, and whether the plan that is stored for it still fits.

Plans changed by others than claims: by a service's own loop, by hand, by new zone data. Works of `crons`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lastlight_state import codec, cron
from lastlight_state.clock import iso_text
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, LostRace
from lastlight_state.schedules import words
from lastlight_state.schedules.crons import rows, statements as sql
from lastlight_state.schedules.effective import Effective, Own, effective
from lastlight_state.schedules.records import Cron

#: The type of the error of a cron that cannot be planned.
NOT_PLANNED = "not_planned"
_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Plan:
    """The next instant and what it was computed from, or why there is none.

    ``planned_with`` is None where nothing was computed: a caller said the instant, or the cron is off. What was
    computed and gave no instant has it, and an error.
    """

    next_run_at: datetime | None
    planned_with: str | None = None
    error: str | None = None


OFF = Plan(None)


def held_by(row: Mapping[str, Any]) -> Effective:
    """What holds for the cron of a row with its override's columns."""
    return effective(Own.of(row), row)


def planned(held: Effective, after: datetime) -> Plan:
    """The plan for the first instant after ``after``. One that cannot be made says why; it raises `MisuseError` alone:
    without the extra nobody can tell.
    """
    try:
        instant = cron.next_after(held.pattern, held.timezone, after)
    except InvalidValue as error:
        return _impossible(held, str(error))
    if instant is None:
        return _impossible(held, f"{held.pattern!r}: no instant after {iso_text(after)}")
    return Plan(instant, held.plan)


def from_now(row: Mapping[str, Any], held: Effective, now: datetime) -> Plan:
    """What the plan of the row should be: the one it has, as long as that fits."""
    if row["retired_at"] is not None or not held.enabled:
        return OFF
    return Plan(row["next_run_at"], row["planned_with"]) if fits(row, held, now) else planned(held, now)


def fits(row: Mapping[str, Any], held: Effective, now: datetime) -> bool:
    """Whether the stored instant is one of what holds now. One that a caller said fits, and one that is due already."""
    instant, planned_with = row["next_run_at"], row["planned_with"]
    if instant is None:
        return False
    if planned_with is None:
        return True
    if planned_with != held.plan:
        return False
    return bool(instant <= now) or planned(held, instant - _TICK).next_run_at == instant


def store(unit: Unit, row: Mapping[str, Any], plan: Plan) -> bool:
    """Store the plan of a locked row, unless it is what stands there. Whether it was stored."""
    values = stored_as(row, plan)
    same = (row["next_run_at"], row["planned_with"]) == (plan.next_run_at, plan.planned_with)
    if same and not values["sets_error"]:
        return False
    unit.change(sql.PLAN, {"name": row["name"], **values})
    return True


def stored_as(row: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A plan as parameters. A new plan takes back the error that said there was none, and leaves a fire's alone."""
    error = row["error_json"]
    complains = isinstance(error, dict) and error.get("type") == NOT_PLANNED
    sets = codec.decode(plan.error) != error if plan.error else complains and plan.next_run_at is not None
    return {
        "next_run_at": plan.next_run_at,
        "planned_with": plan.planned_with,
        "sets_error": sets,
        "error": plan.error,
    }


def after_override(unit: Unit, name: str, now: datetime) -> None:
    """Plan the cron whose override changed anew from now, if there is a schedule of that name.

    Without the extra nothing can be computed: then a cron that is off loses its plan, and every other plan is left to
    whoever claims it, which finds that it does not fit.
    """
    row = rows.find_or_reserve(unit, name)
    if row is None:
        return
    held = held_by(row)
    if not held.enabled or cron.available():
        store(unit, row, _said_anew(row, held, now))


def _said_anew(row: Mapping[str, Any], held: Effective, now: datetime) -> Plan:
    """Like `from_now`, but an instant that a caller said does not outlive a change of what was said about the cron."""
    return from_now({**row, "planned_with": row["planned_with"] or ""}, held, now)


def _impossible(held: Effective, problem: str) -> Plan:
    error = {"type": NOT_PLANNED, "message": problem}
    return Plan(None, held.plan, codec.encode("error", error, max_bytes=words.ERROR))


def track(unit: Unit, values: dict[str, Any], expected: datetime | None) -> Cron:
    """Store what a service's loop says, if the plan is the expected one."""
    row = rows.lock(unit, values["name"])
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


def replan(unit: Unit, row: dict[str, Any] | None, now: datetime) -> bool:
    """Store the plan that the locked row should have. Whether it had another."""
    return row is not None and store(unit, row, from_now(row, held_by(row), now))


def misfits(reading: Callable[[Callable[[Unit], Any]], Any], now: datetime) -> Iterator[str]:
    """The names of crons whose plan does not fit, ascending, read in portions."""
    after = ""
    while True:
        found = reading(lambda unit, after=after: unit.rows(sql.IN_PLACE, {"after": after}))  # type: ignore[misc]
        for row in found:
            plan = from_now(row, held_by(row), now)
            if (plan.next_run_at, plan.planned_with) != (row["next_run_at"], row["planned_with"]) or plan.error:
                yield row["name"]
        if len(found) < sql.BATCH:
            return
        after = found[-1]["name"]
