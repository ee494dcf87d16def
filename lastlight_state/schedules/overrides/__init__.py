"""Overrides: what an operator changed about a cron. No row means the default, and clearing goes back to it.

A cron need not have a schedule in the database: services that keep theirs in files `resolve` their defaults. An
override of a name that nobody knows is kept, because the cron may return.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as shared, words
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.crons import plans
from lastlight_state.schedules.overrides import checks as override_checks, statements as sql
from lastlight_state.schedules.overrides.checks import resolved
from lastlight_state.schedules.records import CronOverride, EffectiveCron


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
        """Change what is given, and nothing else: None goes back to the default of that field.

        Two operators who change different fields at once lose nothing. The cron is planned anew with the change. Who
        and when are those of the last change; without a field and without a row it is `InvalidValue`. A pattern or
        zone that cannot be read is `InvalidValue` too; without the extra ``cron`` only its length is judged.
        """
        said = override_checks.changes(enabled, schedule, timezone)
        row = {"name": shared.name("name", name), "updated_by": valid.optional("by", by, words.BY), **said}
        now = self._now()
        return self._writing(lambda unit: _put(unit, {**row, "updated_at": now}, now), repeatable=True)

    def get(self, name: str) -> CronOverride:
        """The override of this cron. Raises `NotFound` where the default holds."""
        found = self.find(name)
        if found is None:
            raise valid.not_found(words.OVERRIDE, name)
        return found

    def find(self, name: str) -> CronOverride | None:
        """The override of this cron, or None where the default holds."""
        values = {"name": valid.sought("name", name)}
        return self._reading(lambda unit: unit.find(CronOverride, sql.FIND, values))

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[CronOverride]:
        """A page of overrides, the newest change first."""
        valid.page_limit(limit)
        return self._reading(lambda unit: sql.LIST.page(unit, CronOverride.of, limit=limit, page_token=page_token))

    def clear(self, name: str) -> bool:
        """Go back to the default, and plan the cron anew. Whether there was an override; none is no error."""
        key, now = valid.sought("name", name), self._now()
        return self._writing(lambda unit: _clear(unit, key, now), repeatable=True)

    def resolve(self, defaults: Mapping[str, CronSpec]) -> dict[str, EffectiveCron]:
        """What holds for each of these configured crons: field by field the override, or else the default.

        One query for any number of names. Names without an override come back as their defaults.
        """
        known = override_checks.defaults(defaults)
        if not known:
            return {}
        statement, values = sql.of_names(list(known))
        found = {row["name"]: row for row in self._reading(lambda unit: unit.rows(statement, values))}
        return {name: resolved(name, spec, found.get(name)) for name, spec in known.items()}


def _put(unit: Unit, row: dict[str, Any], now: datetime) -> CronOverride:
    if row["says_nothing"]:
        stored = unit.row(sql.TOUCH, row)
        if stored is None:
            raise InvalidValue("override", f"nothing is said about {row['name']!r}, and there is no override to keep")
    else:
        [stored] = unit.rows(sql.PUT, row)
    plans.after_override(unit, row["name"], now)
    return CronOverride.of(stored)


def _clear(unit: Unit, name: str, now: datetime) -> bool:
    cleared = unit.change(sql.CLEAR, {"name": name}) > 0
    if cleared:
        plans.after_override(unit, name, now)
    return cleared
