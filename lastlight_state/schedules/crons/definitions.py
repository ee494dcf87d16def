"""How a cron is defined: added, changed or revived, with the plan that follows from it. Works of `crons`.

The configured set of crons, brought into the database as a whole. The work of `crons.sync`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, ReservedName
from lastlight_state.schedules.crons import plans, rows, statements as sql
from lastlight_state.schedules.crons.plans import Plan
from lastlight_state.schedules.effective import Own, effective
from lastlight_state.schedules.records import Cron, SyncReport
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


_log = logging.getLogger("lastlight_state.schedules")


@dataclass(frozen=True)
class Differences:
    """How a configuration differs from what is stored: names in ascending order, none in two of the lists."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    retired: tuple[str, ...]
    revived: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def none(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.added or self.changed or self.retired or self.revived)

    @property
    def report(self) -> SyncReport:
        """What the caller gets."""
        return SyncReport.of(dict(self.__dict__))


def compare(unit: Unit, wanted: Mapping[str, dict[str, Any]]) -> Differences:
    """Compare with what is stored, writing nothing. Raises `Conflict` naming all crons made at run time."""
    stored = {row["name"]: row for row in unit.rows(sql.CONFIGURED)}
    stored |= {row["name"]: row for row in _named(unit, [name for name in wanted if name not in stored])}
    live = {name: row for name, row in stored.items() if row["retired_at"] is None}
    foreign = sorted(name for name in wanted if name in live and live[name]["origin"] != "config")
    if foreign:
        raise Conflict(
            f"made at run time, and configured now: {', '.join(foreign)}; retire or rename them first",
            code="cron_origin",
            crons=tuple(foreign),
        )
    differing = {name for name, said in wanted.items() if name in live and _differs(live[name], said)}
    return Differences(
        added=_ascending(name for name in wanted if name not in stored),
        changed=_ascending(differing),
        retired=_ascending(name for name in live if name not in wanted),
        revived=_ascending(name for name in wanted if name in stored and name not in live),
        unchanged=_ascending(name for name in wanted if name in live and name not in differing),
    )


def bring(unit: Unit, wanted: Mapping[str, dict[str, Any]], now: datetime) -> Differences:
    """Make what is stored the configuration. Others who do the same wait, and find nothing left to do."""
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


def _named(unit: Unit, names: list[str]) -> Iterable[dict[str, Any]]:
    for first in range(0, len(names), sql.NAMES):
        statement, values = sql.NAMED.of(names[first : first + sql.NAMES])
        yield from unit.rows(statement, values)


def _differs(row: Mapping[str, Any], said: Mapping[str, Any]) -> bool:
    if any(row[name] != said[name] for name in sql.DEFINITION if name != "payload"):
        return True
    payload = None if said["payload"] is None else codec.decode(said["payload"])
    return codec.canonical(row["payload"]) != codec.canonical(payload)


def _ascending(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
