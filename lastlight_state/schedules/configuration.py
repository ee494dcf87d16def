"""The configured set of crons, brought into the database as a whole. The work of `crons.sync`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.schedules import cron_statements as sql
from lastlight_state.schedules import definitions, rows
from lastlight_state.schedules.records import SyncReport

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
            definitions.put(unit, wanted[name], now, enabled=wanted[name]["enabled"])
        else:
            definitions.retire(unit, name, now)
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
