"""The health of crons, derived from their newest fires. Few rows are read for each cron, however many fires it has.

One statement serves any number of names. For each name it walks the index of the cron's fires from the newest on, and
skips fires that are running, skipped or missed. It stops at the tenth finished fire, or after `WALK` rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import Family, among, constant, number
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.indexes import AmongFew, Leading
from lastlight_state.db.units.unit import Unit
from lastlight_state.schedules.fires.statements import SUMMARY
from lastlight_state.schedules.models import FINISHED, FIRES
from lastlight_state.schedules.records import CronHealth, FireSummary

#: How many finished fires decide about a cron's health.
STREAK = 10
#: The most fires of a cron that are read to find them.
WALK = 200

Binds = Sequence[sa.BindParameter[Any]]


def latest(unit: Unit, names: Sequence[str]) -> dict[str, FireSummary]:
    """Return the newest fire of each cron that has one, by cron name."""
    statement, values = LATEST.of(names)
    return {fire.cron_name: fire for fire in unit.rows(statement, values)}


def health(unit: Unit, names: Sequence[str]) -> dict[str, CronHealth]:
    """Return the health of each cron by name, also of crons that never fired."""
    statement, values = HEALTH.of(names)
    fires: dict[str, list[FireSummary]] = {name: [] for name in names}
    for fire in unit.rows(statement, values):
        fires[fire.cron_name].append(fire)
    return {name: cron_health(name, found) for name, found in fires.items()}


def cron_health(name: str, fires: Sequence[FireSummary]) -> CronHealth:
    """Return one cron's health, derived from its newest fire, its last finished fires and a running fire."""
    newest_first = sorted(fires, key=lambda fire: (fire.started_at, fire.id), reverse=True)
    finished = [fire for fire in newest_first if fire.status in FINISHED][:STREAK]
    streak = takewhile(lambda fire: fire.status != "ok", finished)
    return CronHealth.of(
        {
            "cron_name": name,
            "latest": next(iter(newest_first), None),
            "failure_streak": len(list(streak)),
            "last_ok_at": next((fire.finished_at for fire in finished if fire.status == "ok"), None),
            "last_finished_at": next((fire.finished_at for fire in finished), None),
            "running": any(fire.status == "running" for fire in newest_first),
        }
    )


def _statement(binds: Binds, *, judging: bool) -> sa.Select[Any]:
    names = _names(binds)
    parts = [_newest(names, number(1))]
    if judging:
        parts += [_finished_fires(names), _running_fire(names)]
    found = sa.union_all(*(sa.select(part.c.id).correlate(names) for part in parts))
    return sa.select(*SUMMARY).select_from(names.join(FIRES, AmongFew(FIRES.c.id, found)))


def _names(binds: Binds) -> sa.CTE:
    """Return a CTE with one row for each distinct name.

    `Family` repeats the last name to fill the statement's parameters.
    """
    given = sa.values(sa.column("name", columns.Text), name="given")
    rows = given.data([(sa.bindparam(bind.key, type_=columns.Text),) for bind in binds]).cte("given")
    return sa.select(rows.c.name).distinct().cte("names")


def _newest(names: sa.CTE, limit: sa.ColumnElement[Any]) -> sa.Subquery:
    fires = FIRES.alias()
    return (
        sa.select(fires.c.id, fires.c.status)
        .with_hint(fires, "INDEXED BY ix_cron_fires_cron", "sqlite")
        .where(Leading(fires.c.cron_name, names.c.name))
        .order_by(fires.c.cron_name.desc(), fires.c.started_at.desc(), fires.c.id.desc())
        .limit(limit)
        .correlate(names)
        .subquery()
    )


def _finished_fires(names: sa.CTE) -> sa.Subquery:
    """Return a subquery for the last finished fires of each name.

    The LIMIT of the walk is a subquery. With a literal, Postgres would plan for the average cron, and sort all fires of
    a large one.
    """
    walked = _newest(names, sa.select(number(WALK)).scalar_subquery())
    chosen = sa.select(walked.c.id).where(among(walked.c.status, FINISHED)).limit(number(STREAK))
    return chosen.correlate(names).subquery()


def _running_fire(names: sa.CTE) -> sa.Subquery:
    fires = FIRES.alias()
    return (
        sa.select(fires.c.id)
        .with_hint(fires, "INDEXED BY ix_cron_fires_running", "sqlite")
        .where(fires.c.status == constant("running"), fires.c.cron_name == names.c.name)
        .order_by(fires.c.lease_until)
        .limit(number(1))
        .correlate(names)
        .subquery()
    )


LATEST = Family("name", lambda binds: _statement(binds, judging=False), FireSummary)
HEALTH = Family("name", lambda binds: _statement(binds, judging=True), FireSummary)
