"""Plans changed by others than claims: by a service's own loop, by hand, by new zone data. Works of `crons`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, LostRace
from lastlight_state.schedules import cron_statements as sql
from lastlight_state.schedules import plans, rows
from lastlight_state.schedules.records import Cron


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
    return row is not None and plans.store(unit, row, plans.from_now(row, plans.held_by(row), now))


def misfits(reading: Callable[[Callable[[Unit], Any]], Any], now: datetime) -> Iterator[str]:
    """The names of crons whose plan does not fit, ascending, read in portions."""
    after = ""
    while True:
        found = reading(lambda unit, after=after: unit.rows(sql.IN_PLACE, {"after": after}))  # type: ignore[misc]
        for row in found:
            plan = plans.from_now(row, plans.held_by(row), now)
            if (plan.next_run_at, plan.planned_with) != (row["next_run_at"], row["planned_with"]) or plan.error:
                yield row["name"]
        if len(found) < sql.BATCH:
            return
        after = found[-1]["name"]
