"""Overrides: what an operator changed about a cron. Without an override the cron's own definition is in effect.

A cron need not be stored in the database: services that keep their crons in files combine them with overrides by
`resolve`. An override of an unknown name is kept, because the cron may come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.records import Page
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as shared, words
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.crons import plans
from lastlight_state.schedules.overrides import checks, statements as sql
from lastlight_state.schedules.overrides.checks import OverrideDraft
from lastlight_state.schedules.records import CronOverride, EffectiveCron
from lastlight_state.schedules.tables import OVERRIDES

_MOST = limits_of(OVERRIDES)


class Overrides(Repository):
    """``store.schedules.overrides``"""

    def put(
        self,
        name: str,
        *,
        enabled: bool | UnsetType | None = UNSET,
        schedule: str | UnsetType | None = UNSET,
        timezone: str | UnsetType | None = UNSET,
        by: str | None = None,
    ) -> CronOverride:
        """Change the given fields of a cron. None goes back to the cron's own value; a field not given stays.

        Operators who change different fields at the same time do not overwrite each other. The cron is planned again
        in the same transaction. ``by`` is stored as the last change's author. Raises `InvalidValue` for a pattern or
        time zone that cannot be read (without the extra ``cron`` only their length is checked), and if no field is
        given and there is no override yet.
        """
        said = checks.changes(enabled, schedule, timezone)
        key, author, now = shared.name("name", name), valid.optional("by", by, _MOST.updated_by), self._now()
        row: OverrideDraft = {**said, "name": key, "updated_by": author, "updated_at": now}
        return self._writing(lambda unit: _put(unit, row, now), repeatable=True)

    def get(self, name: str) -> CronOverride:
        """The override of this cron. Raises `NotFound` if there is none."""
        return self._one(CronOverride.of, sql.FIND, {"name": name}, kind=words.OVERRIDE, key=name)

    def find(self, name: str) -> CronOverride | None:
        """The override of this cron, or None."""
        return self._find(CronOverride.of, sql.FIND, {"name": valid.sought("name", name)})

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[CronOverride]:
        """A page of overrides, the newest change first."""
        return self._page(sql.LIST, CronOverride.of, None, limit, page_token)

    def clear(self, name: str) -> bool:
        """Remove the override and plan the cron again. Returns whether there was one."""
        key, now = valid.sought("name", name), self._now()
        return self._writing(lambda unit: _clear(unit, key, now), repeatable=True)

    def resolve(self, defaults: Mapping[str, CronSpec]) -> dict[str, EffectiveCron]:
        """What is in effect for each of these configured crons: field by field the override, or else the default.

        One query for any number of names. A name without an override comes back as its default.
        """
        known = checks.defaults(defaults)
        if not known:
            return {}
        statement, values = sql.of_names(list(known))
        found = {row["name"]: row for row in self._reading(lambda unit: unit.rows(statement, values))}
        return {name: checks.resolved(name, spec, found.get(name)) for name, spec in known.items()}


def _put(unit: Unit, row: OverrideDraft, now: datetime) -> CronOverride:
    if row["keeps_all"]:
        stored = unit.row(sql.TOUCH, row)
        if stored is None:
            raise InvalidValue("override", f"no field is given, and {row['name']!r} has no override")
    else:
        [stored] = unit.rows(sql.PUT, row)
    plans.after_override(unit, row["name"], now)
    return CronOverride.of(stored)


def _clear(unit: Unit, name: str, now: datetime) -> bool:
    cleared = unit.change(sql.CLEAR, {"name": name}) > 0
    if cleared:
        plans.after_override(unit, name, now)
    return cleared
