"""Defining crons, one by one or the configured ones as a whole, with the plans that follow. Works of `crons`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from lastlight_state import codec
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.statements import Values
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, ReservedName
from lastlight_state.schedules.crons import plans, rows, statements as sql
from lastlight_state.schedules.crons.checks import Definition
from lastlight_state.schedules.crons.plans import CronPlan, PlanColumns
from lastlight_state.schedules.effective import NO_OVERRIDE, Own, effective
from lastlight_state.schedules.records import Cron, CronRow, SyncReport

_log = logging.getLogger("lastlight_state.schedules")


def put(
    unit: Unit,
    said: Definition,
    now: datetime,
    *,
    enabled: bool | UnsetType = UNSET,
    next_run_at: datetime | UnsetType | None = UNSET,
) -> Cron:
    """Store a definition. Without ``enabled`` a new cron takes that of its definition, an existing one keeps its own.

    Raises `ReservedName` if a cron of the other origin has the name, unless that cron is retired.
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
    """Retire a cron, if it is not retired already. Raises `NotFound`."""
    unit.change(sql.RETIRE, {"name": name, "at": now})
    return rows.get(unit, name)


def _added(unit: Unit, said: Definition, now: datetime, next_run_at: datetime | UnsetType | None) -> Cron:
    override = unit.row(sql.OVERRIDE, {"name": said["name"]}) or NO_OVERRIDE
    if next_run_at is not UNSET:
        plan = CronPlan(next_run_at)
    else:
        held = effective(Own.of(said), override)
        plan = plans.planned(held, now) if held.enabled else plans.OFF
    values = {"next_run_at": plan.next_run_at, "planned_with": plan.planned_with, "error": plan.error}
    [stored] = unit.rows(sql.INSERT, {**said, **values, "at": now})
    return Cron.of({**stored, **override})


def _changed(
    unit: Unit, row: CronRow, said: Definition, now: datetime, next_run_at: datetime | UnsetType | None
) -> Cron:
    plan = CronPlan(next_run_at) if next_run_at is not UNSET else _plan(row, said, now)
    [stored] = unit.rows(sql.DEFINE, {**said, **plans.stored_as(row, plan), "at": now})
    return Cron.of({**row, **stored})


def _plan(row: CronRow, said: Definition, now: datetime) -> CronPlan:
    """Return the plan of a changed definition: a new one if the effective pattern or zone changes with it.

    A cron that was switched off is planned from now: instants during the pause are not made up for.
    """
    before, held = plans.effective_of(row), effective(Own.of(said), row)
    kept = before.enabled and before.plan == held.plan
    before_now = row["next_run_at"] if kept else None
    planned: PlanColumns = {"next_run_at": before_now, "planned_with": row["planned_with"], "retired_at": None}
    return plans.from_now(planned, held, now)


@dataclass(frozen=True)
class Differences:
    """How a configuration differs from the stored crons. Each name stands in one of the lists, which are sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    retired: tuple[str, ...]
    revived: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.added or self.changed or self.retired or self.revived)

    @property
    def report(self) -> SyncReport:
        """As the record that `sync` returns."""
        return SyncReport.of(dict(self.__dict__))


def compare(unit: Unit, wanted: Mapping[str, Definition]) -> Differences:
    """Compare a configuration with the stored crons. Raises `Conflict` naming every cron created at run time."""
    stored = {row["name"]: row for row in unit.rows(sql.CONFIGURED)}
    stored |= {row["name"]: row for row in _named(unit, [name for name in wanted if name not in stored])}
    live = {name: row for name, row in stored.items() if row["retired_at"] is None}
    clashing = sorted(name for name in wanted if name in live and live[name]["origin"] != "config")
    if clashing:
        raise Conflict(
            f"crons created at run time have configured names: {', '.join(clashing)}; retire or rename them first",
            code="cron_origin",
            crons=tuple(clashing),
        )
    differing = {name for name, said in wanted.items() if name in live and _differs(live[name], said)}
    return Differences(
        added=_ascending(name for name in wanted if name not in stored),
        changed=_ascending(differing),
        retired=_ascending(name for name in live if name not in wanted),
        revived=_ascending(name for name in wanted if name in stored and name not in live),
        unchanged=_ascending(name for name in wanted if name in live and name not in differing),
    )


def apply(unit: Unit, wanted: Mapping[str, Definition], now: datetime) -> Differences:
    """Make the stored crons equal to the configuration. Replicas doing the same wait, and then find no difference."""
    unit.named_lock(rows.NEW_NAMES)
    found = compare(unit, wanted)
    if not wanted and found.retired:
        _log.warning("the configuration is empty: %d crons are retired", len(found.retired))
    for name in sorted((*found.added, *found.changed, *found.revived, *found.retired)):
        if name in wanted:
            put(unit, wanted[name], now, enabled=wanted[name]["enabled"])
        else:
            retire(unit, name, now)
    return found


def _named(unit: Unit, names: list[str]) -> Iterable[CronRow]:
    for first in range(0, len(names), sql.NAMES):
        statement, values = sql.NAMED.of(names[first : first + sql.NAMES])
        yield from unit.rows(statement, values)


def _differs(row: Values, said: Values) -> bool:
    if any(row[name] != said[name] for name in sql.DEFINITION if name != "payload"):
        return True
    payload = None if said["payload"] is None else codec.decode(said["payload"])
    return codec.canonical(row["payload"]) != codec.canonical(payload)


def _ascending(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
