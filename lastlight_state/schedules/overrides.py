"""Overrides: operators' changes to crons. Without an override, the cron's own definition applies.

A cron need not be stored in the database: services that keep their crons in files combine them with overrides by
`resolve`. An override of an unknown name is kept, because a cron of that name may be added again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Family, Row, Statement, bind, every_column_of, statement_of
from lastlight_state.db.rows.writes import upsert
from lastlight_state.db.schema.columns import Flag
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as shared, models
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.crons import definitions as cron_checks, plans
from lastlight_state.schedules.effective import NO_OVERRIDE, OverrideColumns, Timing, effective
from lastlight_state.schedules.models import OVERRIDES, SCHEDULES
from lastlight_state.schedules.records import CronOverride, EffectiveCron

# Checks of arguments about overrides, and combining configured crons with their overrides.

_LIMITS = limits_of(SCHEDULES)


class Change(TypedDict):
    """A change of an override: for each field its new value, and whether the stored one is kept instead."""

    enabled: bool
    inherits_enabled: bool
    schedule: str | None
    timezone: str | None
    keeps_all: bool
    keeps_enabled: bool
    keeps_schedule: bool
    keeps_timezone: bool


class OverrideDraft(Change):
    """The row of a changed override."""

    name: str
    updated_at: datetime
    updated_by: str | None


def changes(enabled: Any, schedule: Any, timezone: Any) -> Change:
    """Return the columns to change in an override, and for each field whether to keep the stored value."""
    zone = "UTC" if timezone is UNSET or timezone is None else timezone
    pattern = "* * * * *" if schedule is UNSET or schedule is None else schedule
    read = cron_checks.pattern(pattern, zone, parsed=False, where="schedule")
    inherits = enabled is UNSET or enabled is None
    return {
        "enabled": inherits or valid.flag("enabled", enabled),
        "inherits_enabled": inherits,
        "schedule": read if schedule is not UNSET and schedule is not None else None,
        "timezone": zone if timezone is not UNSET and timezone is not None else None,
        "keeps_all": enabled is UNSET and schedule is UNSET and timezone is UNSET,
        "keeps_enabled": enabled is UNSET,
        "keeps_schedule": schedule is UNSET,
        "keeps_timezone": timezone is UNSET,
    }


def check_defaults(given: Any) -> dict[str, CronSpec]:
    """Check configured crons and return them by name.

    Patterns and time zones are checked for their length, but not parsed.
    """
    if not isinstance(given, Mapping):
        raise InvalidValue("defaults", f"expected a mapping of names to CronSpec, got {type(given).__name__}")
    for name, spec in given.items():
        where = f"defaults[{shared.name('name', name)!r}]"
        valid.argument_group(where, spec, CronSpec)
        valid.content(f"{where}.pattern", spec.pattern, _LIMITS.pattern)
        valid.content(f"{where}.timezone", spec.timezone, _LIMITS.timezone)
        valid.flag(f"{where}.enabled", spec.enabled)
    return dict(given)


def _columns(override: CronOverride | None) -> OverrideColumns:
    """Return the columns of an override as they stand in a row of its cron."""
    if override is None:
        return NO_OVERRIDE
    return OverrideColumns(
        override.name, override.enabled, override.inherits_enabled, override.schedule, override.timezone
    )


def effective_cron(name: str, default: CronSpec, override: CronOverride | None) -> EffectiveCron:
    """Return what is in effect for a configured cron, given its override, or None."""
    held = effective(Timing(default.pattern, default.timezone, default.enabled), _columns(override))
    return EffectiveCron(
        name=name,
        default=default,
        **held.__dict__,
        overridden_by=override.updated_by if override else None,
        overridden_at=override.updated_at if override else None,
    )


# The statements of `overrides`.

COLUMNS = every_column_of(CronOverride, OVERRIDES)
_this = OVERRIDES.c.name == bind("name", OVERRIDES.c.name)


def _merged_value(new: Any, column: str, keeps: str) -> sa.ColumnElement[Any]:
    """Return an SQL expression: the stored value if the call keeps it, else the new value.

    The choice is made in SQL, so that no concurrent change is overwritten.
    """
    return sa.case((sa.cast(sa.bindparam(keeps, type_=Flag), sa.Boolean), OVERRIDES.c[column]), else_=new[column])


PUT = statement_of(
    upsert(
        OVERRIDES,
        [column.name for column in COLUMNS],
        key=("name",),
        replacing=lambda new: {
            "enabled": _merged_value(new, "enabled", "keeps_enabled"),
            "inherits_enabled": _merged_value(new, "inherits_enabled", "keeps_enabled"),
            "schedule": _merged_value(new, "schedule", "keeps_schedule"),
            "timezone": _merged_value(new, "timezone", "keeps_timezone"),
            "updated_at": new.updated_at,
            "updated_by": new.updated_by,
        },
    ),
    CronOverride,
)
TOUCH = statement_of(
    sa.update(OVERRIDES)
    .where(_this)
    .values(
        updated_at=bind("updated_at", OVERRIDES.c.updated_at), updated_by=bind("updated_by", OVERRIDES.c.updated_by)
    )
    .returning(*COLUMNS),
    CronOverride,
)
FIND = statement_of(sa.select(*COLUMNS).where(_this), CronOverride)
CLEAR = statement_of(sa.delete(OVERRIDES).where(_this))
LIST = Listing("cron_overrides", COLUMNS, order=(OVERRIDES.c.updated_at, OVERRIDES.c.name), row=CronOverride)

_ALL = statement_of(sa.select(*COLUMNS), CronOverride)


def _select_named(names: Sequence[sa.BindParameter[Any]]) -> Any:
    return sa.select(*COLUMNS).where(OVERRIDES.c.name.in_(names))


_NAMED = Family("name", _select_named, CronOverride)
_STATEMENT_MOST = 500


def of_names(names: Sequence[str]) -> tuple[Statement[CronOverride], Row]:
    """Return the statement that reads the overrides of these names; for more than 500 names, all overrides."""
    return (_ALL, {}) if len(names) > _STATEMENT_MOST else _NAMED.of(names)


_MOST = limits_of(OVERRIDES)


class Overrides(Repository):
    """``store.schedules.overrides``: operators' changes to crons."""

    def put(
        self,
        name: str,
        *,
        enabled: bool | UnsetType | None = UNSET,
        schedule: str | UnsetType | None = UNSET,
        timezone: str | UnsetType | None = UNSET,
        by: str | None = None,
    ) -> CronOverride:
        """Change the given fields of a cron.

        None restores the cron's own value; fields that are not given are not changed. Operators who change different
        fields at the same time do not overwrite each other. A pattern given without a zone applies in the cron's own
        zone. If the effective plan changes, the cron is planned from now in the same transaction; otherwise no due
        instant is skipped. ``by`` is stored as the author of the last change.

        Raises `InvalidValue` for an unreadable pattern or time zone; without the extra ``cron`` only their length is
        checked. Also raises `InvalidValue` if no field is given and there is no override yet.
        """
        said = changes(enabled, schedule, timezone)
        key, author, now = shared.name("name", name), valid.optional("by", by, _MOST.updated_by), self._now()
        row: OverrideDraft = {**said, "name": key, "updated_by": author, "updated_at": now}
        return self._writing(lambda unit: _put(unit, row, now), repeatable=True)

    def get(self, name: str) -> CronOverride:
        """Return the override of this cron. Raises `NotFound` if there is none."""
        return self._get_row(FIND, {"name": name}, kind=models.OVERRIDE, key=name)

    def find(self, name: str) -> CronOverride | None:
        """Return the override of this cron, or None."""
        return self._find(FIND, {"name": valid.lookup_text("name", name)})

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[CronOverride]:
        """Return a page of overrides, the newest change first."""
        return self._page(LIST, None, limit, page_token)

    def clear(self, name: str) -> bool:
        """Remove the override. Return True if there was one. The cron is planned again as by `put`."""
        key, now = valid.lookup_text("name", name), self._now()
        return self._writing(lambda unit: _clear(unit, key, now), repeatable=True)

    def resolve(self, defaults: Mapping[str, CronSpec]) -> dict[str, EffectiveCron]:
        """Return, by name, the values that apply to configured crons: each field from the override, else the default.

        Runs one query for any number of names. A cron without an override keeps all its defaults.
        """
        known = check_defaults(defaults)
        if not known:
            return {}
        statement, values = of_names(list(known))
        found = {override.name: override for override in self._list_rows(statement, values)}
        return {name: effective_cron(name, spec, found.get(name)) for name, spec in known.items()}


def _put(unit: Unit, row: OverrideDraft, now: datetime) -> CronOverride:
    cron = plans.find_or_reserve(unit, row["name"])
    if row["keeps_all"]:
        stored = unit.row(TOUCH, row)
        if stored is None:
            raise InvalidValue("override", f"no field is given, and {row['name']!r} has no override")
    else:
        [stored] = unit.rows(PUT, row)
    plans.after_override(unit, cron, _columns(stored), now)
    return stored


def _clear(unit: Unit, name: str, now: datetime) -> bool:
    cron = plans.find_or_reserve(unit, name)
    cleared = unit.change(CLEAR, {"name": name}) > 0
    if cleared:
        plans.after_override(unit, cron, _columns(None), now)
    return cleared
