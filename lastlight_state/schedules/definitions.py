"""How a cron is defined: added, changed or revived, with the plan that follows from it. Works of `crons`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.unit import Unit
from lastlight_state.errors import ReservedName
from lastlight_state.schedules import cron_statements as sql
from lastlight_state.schedules import plans, rows
from lastlight_state.schedules.effective import Own, effective
from lastlight_state.schedules.plans import Plan
from lastlight_state.schedules.records import Cron
from lastlight_state.schedules.tables import OVERRIDDEN

_NO_OVERRIDE = {label.name: None for label in OVERRIDDEN}


def put(
    unit: Unit,
    said: dict[str, Any],
    now: datetime,
    *,
    enabled: bool | UnsetType = UNSET,
    next_run_at: datetime | UnsetType | None = UNSET,
) -> Cron:
    """Store a definition. Without ``enabled`` a new cron takes that of its definition, another one keeps its own.

    Raises `ReservedName` where the name is that of a cron of the other origin. A retired name is anybody's.
    """
    row = rows.find_or_reserve(unit, said["name"])
    if row is None:
        switch = said["enabled"] if enabled is UNSET else enabled
        return _added(unit, {**said, "enabled": switch}, now, next_run_at)
    if row["origin"] != said["origin"] and row["retired_at"] is None:
        raise ReservedName("name", f"{said['name']!r} comes from the configuration: change it with an override")
    switch = row["enabled"] if enabled is UNSET else enabled
    return _changed(unit, row, {**said, "enabled": switch}, now, next_run_at)


def retire(unit: Unit, name: str, now: datetime) -> Cron:
    """Take a cron out of use, if it is not already. Raises `NotFound`."""
    unit.change(sql.RETIRE, {"name": name, "at": now})
    return rows.get(unit, name)


def _added(unit: Unit, said: dict[str, Any], now: datetime, next_run_at: datetime | UnsetType | None) -> Cron:
    override = unit.row(sql.OVERRIDE, {"name": said["name"]}) or _NO_OVERRIDE
    if next_run_at is not UNSET:
        plan = Plan(next_run_at)
    else:
        held = effective(Own.of(said), override)
        plan = plans.planned(held, now) if held.enabled else plans.OFF
    values = {"next_run_at": plan.next_run_at, "planned_with": plan.planned_with, "error": plan.error}
    [stored] = unit.rows(sql.INSERT, {**said, **values, "at": now})
    return Cron.of({**stored, **override})


def _changed(
    unit: Unit, row: dict[str, Any], said: dict[str, Any], now: datetime, next_run_at: datetime | UnsetType | None
) -> Cron:
    plan = Plan(next_run_at) if next_run_at is not UNSET else _plan(row, said, now)
    [stored] = unit.rows(sql.DEFINE, {**said, **plans.stored_as(row, plan), "at": now})
    return Cron.of({**row, **stored})


def _plan(row: Mapping[str, Any], said: Mapping[str, Any], now: datetime) -> Plan:
    """The plan of a changed definition: the stored one, unless what it was made for has changed.

    Instants of a pause are not made up for: one that was off has no instant that could be kept.
    """
    before, held = plans.held_by(row), effective(Own.of(said), row)
    kept = before.enabled and before.plan == held.plan
    return plans.from_now({**row, "retired_at": None, **({} if kept else {"next_run_at": None})}, held, now)
