"""Defines crons one by one or by a whole configuration, and plans them again. Implements methods of `crons`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec, cron
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, ReservedName
from lastlight_state.schedules import checks as shared, models
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.crons import plans, statements as sql
from lastlight_state.schedules.crons.plans import CronPlan, StoredCron
from lastlight_state.schedules.effective import NO_OVERRIDE, Timing, effective
from lastlight_state.schedules.models import SCHEDULES
from lastlight_state.schedules.records import Cron, SyncReport

# Checks of arguments about crons. Each returns values as statements name them.

_LIMITS = limits_of(SCHEDULES)


class Definition(TypedDict):
    """The columns of a cron's definition."""

    name: str
    pattern: str
    timezone: str
    target_kind: str
    target: str
    catch_up: str
    grace_seconds: int
    overlap: str
    origin: models.Origin
    enabled: bool
    payload: str | None


def definition(name: Any, spec: Any, *, origin: models.Origin, parsed: bool = True) -> Definition:
    """Return the columns of a cron's definition.

    With ``parsed=False`` and without the extra ``cron``, the pattern is only checked for its length. Raises
    `InvalidValue`, `PayloadTooLarge`, and `MisuseError` if the pattern must be parsed without the extra.
    """
    valid.argument_group("spec", spec, CronSpec)
    return {
        "name": shared.name("name", name),
        "pattern": pattern(spec.pattern, spec.timezone, parsed=parsed),
        "timezone": spec.timezone,
        "target_kind": valid.word("target_kind", spec.target_kind, models.TARGET_KINDS),
        "target": valid.identifier("target", spec.target, _LIMITS.target),
        "catch_up": valid.word("catch_up", spec.catch_up, models.CATCH_UPS),
        "grace_seconds": valid.number("grace_seconds", spec.grace_seconds, most=models.GRACE_SECONDS),
        "overlap": valid.word("overlap", spec.overlap, models.OVERLAPS),
        "origin": origin,
        "enabled": valid.flag("enabled", spec.enabled),
        "payload": shared.payload("payload", spec.payload),
    }


def pattern(given: Any, timezone: Any, *, parsed: bool, where: str = "pattern") -> str:
    """Check a pattern in its time zone and return it in its stored form.

    ``parsed`` has the same meaning as in `definition`.
    """
    valid.identifier("timezone", timezone, _LIMITS.timezone)
    try:
        text = valid.identifier("pattern", cron.trim_pattern(given), _LIMITS.pattern)
        return cron.validate(text, timezone) if parsed or cron.available() else text
    except InvalidValue as error:
        raise InvalidValue(where if error.where == "pattern" else error.where, error.problem) from None


def instant(where: str, given: Any) -> datetime | None:
    """Return the given time in UTC. None means never."""
    return None if given is None else aware_utc(where, given)


def optional_instant(where: str, given: datetime | UnsetType | None) -> datetime | UnsetType | None:
    """Return the given time in UTC, None for never, or UNSET if no time was given."""
    return UNSET if given is UNSET else instant(where, given)


def optional_flag(where: str, given: Any) -> bool | UnsetType:
    """Return the given flag, or UNSET if none was given."""
    return UNSET if given is UNSET else valid.flag(where, given)


def definitions(specs: Any) -> dict[str, Definition]:
    """Return a configuration's definitions, sorted by name.

    Raises `InvalidValue` with the names of all invalid crons.
    """
    if not isinstance(specs, Mapping):
        raise InvalidValue("specs", f"expected a mapping of names to CronSpec, got {type(specs).__name__}")
    found, wrong = {}, {}
    for name, spec in specs.items():
        try:
            found[name] = definition(name, spec, origin="config")
        except InvalidValue as error:
            wrong[str(name)] = str(error)
    if wrong:
        listed = "; ".join(f"{name}: {problem}" for name, problem in sorted(wrong.items()))
        raise InvalidValue("specs", listed, crons=tuple(sorted(wrong)))
    return dict(sorted(found.items()))


def list_filters(enabled: Any, origin: Any, due_before: Any, retired: Any) -> Row:
    """Check the filters of a list of crons, and return them by name."""
    chosen: Row = {}
    if enabled is not None:
        chosen["only_enabled" if valid.flag("enabled", enabled) else "only_disabled"] = {}
    if origin is not None:
        chosen["origin"] = valid.word("origin", origin, models.ORIGINS)
    if due_before is not None:
        chosen["due_before"] = aware_utc("due_before", due_before)
    if retired is not None:
        chosen["only_retired" if valid.flag("retired", retired) else "not_retired"] = {}
    return chosen


_log = logging.getLogger("lastlight_state.schedules")


def put(
    unit: Unit,
    said: Definition,
    now: datetime,
    *,
    enabled: bool | UnsetType = UNSET,
    next_run_at: datetime | UnsetType | None = UNSET,
) -> Cron:
    """Store a definition.

    Without ``enabled``, a new cron is switched as its definition states; an existing one is not switched. Raises
    `ReservedName` if a cron of the other origin has the name, unless that cron is retired.
    """
    stored = plans.find_or_reserve(unit, said["name"])
    if stored is None:
        switch = said["enabled"] if enabled is UNSET else enabled
        return _add_cron(unit, {**said, "enabled": switch}, now, next_run_at)
    if stored.cron.origin != said["origin"] and stored.cron.retired_at is None:
        raise ReservedName("name", f"{said['name']!r} comes from the configuration: change it with an override")
    switch = stored.cron.enabled if enabled is UNSET else enabled
    return _redefine_cron(unit, stored, {**said, "enabled": switch}, now, next_run_at)


def retire(unit: Unit, name: str, now: datetime) -> Cron:
    """Retire a cron, if it is not retired already. Raises `NotFound`."""
    unit.change(sql.RETIRE, {"name": name, "at": now})
    return plans.get(unit, name)


def _add_cron(unit: Unit, said: Definition, now: datetime, next_run_at: datetime | UnsetType | None) -> Cron:
    override = unit.row(sql.OVERRIDE, {"name": said["name"]}) or NO_OVERRIDE
    if next_run_at is not UNSET:
        plan = CronPlan(next_run_at)
    else:
        held = effective(_own(said), override)
        plan = plans.next_plan(held, now) if held.enabled else plans.OFF
    values = {"next_run_at": plan.next_run_at, "planned_with": plan.planned_with, "error": plan.error}
    [stored] = unit.rows(sql.INSERT, {**said, **values, "at": now})
    return Cron.of({**stored, **override._asdict()})


def _redefine_cron(
    unit: Unit, stored: StoredCron, said: Definition, now: datetime, next_run_at: datetime | UnsetType | None
) -> Cron:
    plan = CronPlan(next_run_at) if next_run_at is not UNSET else _plan(stored, said, now)
    [defined] = unit.rows(sql.DEFINE, {**said, **plans.stored_as(stored.cron, plan), "at": now})
    return Cron.of({**defined, **stored.override._asdict()})


def _own(said: Definition) -> Timing:
    return Timing(said["pattern"], said["timezone"], said["enabled"])


def _plan(stored: StoredCron, said: Definition, now: datetime) -> CronPlan:
    """Return the plan of a changed definition: a new one if the effective pattern or zone changes with it.

    An instant that is due under both patterns stays. A cron that was switched off is planned from now: instants during
    the pause do not fire.
    """
    cron, override = stored.cron, stored.override
    before, held = plans.effective_of(cron, override), effective(_own(said), override)
    before_now = cron.next_run_at if before.enabled else None
    with_which = cron.planned_with if before.plan == held.plan else cron.planned_with or before.plan
    return plans.from_now(CronPlan(before_now, with_which), held, now)


@dataclass(frozen=True)
class Differences:
    """The differences between a configuration and the stored crons. Each name is in exactly one of the sorted lists."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    retired: tuple[str, ...]
    revived: tuple[str, ...]
    unchanged: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to write."""
        return not (self.added or self.changed or self.retired or self.revived)

    @property
    def report(self) -> SyncReport:
        """Return the record that `sync` returns."""
        return SyncReport.of(dict(self.__dict__))


def compare(unit: Unit, wanted: Mapping[str, Definition]) -> Differences:
    """Compare a configuration with the stored crons. Raises `Conflict` naming every cron created at run time."""
    stored = {cron.name: cron for cron in unit.rows(sql.CONFIGURED)}
    stored |= {cron.name: cron for cron in _named_crons(unit, [name for name in wanted if name not in stored])}
    live = {name: cron for name, cron in stored.items() if cron.retired_at is None}
    clashing = sorted(name for name in wanted if name in live and live[name].origin != "config")
    if clashing:
        raise Conflict(
            f"crons created at run time have configured names: {', '.join(clashing)}; retire or rename them first",
            code="cron_origin",
            crons=tuple(clashing),
        )
    differing = {name for name, said in wanted.items() if name in live and _differs(live[name], said)}
    return Differences(
        added=_sort_names(name for name in wanted if name not in stored),
        changed=_sort_names(differing),
        retired=_sort_names(name for name in live if name not in wanted),
        revived=_sort_names(name for name in wanted if name in stored and name not in live),
        unchanged=_sort_names(name for name in wanted if name in live and name not in differing),
    )


def apply(unit: Unit, wanted: Mapping[str, Definition], now: datetime) -> Differences:
    """Make the stored crons equal to the configuration.

    If another replica does the same, it waits and then finds no difference.
    """
    unit.named_lock(plans.NEW_NAMES)
    found = compare(unit, wanted)
    if not wanted and found.retired:
        _log.warning("the configuration is empty: %d crons are retired", len(found.retired))
    for name in sorted((*found.added, *found.changed, *found.revived, *found.retired)):
        if name in wanted:
            put(unit, wanted[name], now, enabled=wanted[name]["enabled"])
        else:
            retire(unit, name, now)
    return found


def _named_crons(unit: Unit, names: list[str]) -> Iterable[Cron]:
    for first in range(0, len(names), sql.NAMES):
        statement, values = sql.NAMED.of(names[first : first + sql.NAMES])
        yield from unit.rows(statement, values)


def _differs(stored: Cron, said: Values) -> bool:
    if any(getattr(stored, name) != said[name] for name in sql.DEFINITION if name != "payload"):
        return True
    payload = None if said["payload"] is None else codec.decode(said["payload"])
    return codec.canonical(stored.payload) != codec.canonical(payload)


def _sort_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
