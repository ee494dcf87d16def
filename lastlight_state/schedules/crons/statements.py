"""The statements of `crons`, except those of `take_due`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.records import needed_columns
from lastlight_state.db.rows.statements import Family, bind, constant, every_column_of, number, statement_of
from lastlight_state.db.schema.columns import Flag
from lastlight_state.schedules.effective import OverrideColumns
from lastlight_state.schedules.models import (
    FIRES,
    IS_RUNNING,
    NEXT_RUN_AT,
    OVERRIDDEN,
    OVERRIDES,
    SCHEDULES,
    THIS_SCHEDULE,
    WITH_OVERRIDE,
)
from lastlight_state.schedules.records import Cron, CronSummary

#: The columns of a schedule, under the names that records use.
SCHEDULE_COLUMNS = (
    *(
        NEXT_RUN_AT.label("next_run_at") if column.name == "next_run_at" else column
        for column in every_column_of(Cron, SCHEDULES, hidden={"error_json"})
    ),
    SCHEDULES.c.error_json.label("error"),
)
CRON_COLUMNS = (*SCHEDULE_COLUMNS, *OVERRIDDEN)
SUMMARY = tuple(column for column in CRON_COLUMNS if column.name in needed_columns(CronSummary))

#: The columns of a cron's definition.
DEFINITION = (
    "pattern",
    "timezone",
    "target_kind",
    "target",
    "catch_up",
    "grace_seconds",
    "overlap",
    "origin",
    "enabled",
    "payload",
)


def _bind_columns(*names: str) -> dict[str, sa.BindParameter[Any]]:
    return {name: bind(name, SCHEDULES.c[name]) for name in names}


#: The columns that storing a plan sets, by the parameters of `schedules.crons.plans.stored_as`.
PLANNED: dict[str, Any] = {
    **_bind_columns("next_run_at", "planned_with"),
    "error_json": sa.case(
        (sa.bindparam("sets_error", type_=Flag) == sa.true(), bind("error", SCHEDULES.c.error_json)),
        else_=SCHEDULES.c.error_json,
    ),
}

_at = bind("at", SCHEDULES.c.updated_at)

INSERT = statement_of(
    sa.insert(SCHEDULES)
    .values(
        name=bind("name", SCHEDULES.c.name),
        created_at=_at,
        updated_at=_at,
        error_json=bind("error", SCHEDULES.c.error_json),
        **_bind_columns(*DEFINITION, "next_run_at", "planned_with"),
    )
    .returning(*SCHEDULE_COLUMNS)
)
DEFINE = statement_of(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE)
    .values(updated_at=_at, retired_at=None, **_bind_columns(*DEFINITION), **PLANNED)
    .returning(*SCHEDULE_COLUMNS)
)
PLAN = statement_of(sa.update(SCHEDULES).where(THIS_SCHEDULE).values(**PLANNED))
RETIRE = statement_of(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE, SCHEDULES.c.retired_at.is_(None))
    .values(updated_at=_at, retired_at=_at, next_run_at=None, planned_with=None)
)
TRACK = statement_of(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE)
    .values(
        planned_with=None,
        error_json=bind("error", SCHEDULES.c.error_json),
        **_bind_columns("last_run_at", "next_run_at"),
    )
    .returning(*SCHEDULE_COLUMNS)
)
OVERRIDE = statement_of(
    sa.select(*OVERRIDDEN).where(OVERRIDES.c.name == bind("name", OVERRIDES.c.name)), OverrideColumns
)

_crons = sa.select(*CRON_COLUMNS).select_from(WITH_OVERRIDE)
CONFIGURED = statement_of(_crons.where(SCHEDULES.c.origin == constant("config")), Cron)


def _select_named(names: Sequence[sa.BindParameter[Any]]) -> Any:
    return _crons.where(SCHEDULES.c.name.in_(names))


NAMED = Family("name", _select_named, Cron)
#: The most names of one statement of `NAMED`.
NAMES = 500

#: How many crons one statement of `IN_PLACE` reads.
BATCH = 200
IN_PLACE = statement_of(
    sa.select(*SUMMARY)
    .select_from(WITH_OVERRIDE)
    .where(SCHEDULES.c.name > bind("after", SCHEDULES.c.name), SCHEDULES.c.retired_at.is_(None))
    .order_by(SCHEDULES.c.name)
    .limit(number(BATCH)),
    CronSummary,
)

#: The filters of crons by name and by target.
CHOSEN = {"cron_name": SCHEDULES.c.name.in_, "target": SCHEDULES.c.target.in_}


def _next_due(chosen: Sequence[Any]) -> sa.ScalarSelect[Any]:
    due = sa.select(SCHEDULES.c.next_run_at).where(SCHEDULES.c.next_run_at.is_not(None), *chosen)
    return due.order_by(SCHEDULES.c.next_run_at, SCHEDULES.c.name).limit(number(1)).scalar_subquery()


def _next_stale(chosen: Sequence[Any]) -> sa.ScalarSelect[Any]:
    stale = sa.select(FIRES.c.lease_until).where(IS_RUNNING, FIRES.c.lease_until.is_not(None), *chosen)
    return stale.order_by(FIRES.c.lease_until).limit(number(1)).scalar_subquery()


def _next(conditions: Sequence[tuple[Any, Any]]) -> sa.Select[Any]:
    due, stale = ([each[at] for each in conditions] for at in (0, 1))
    return sa.select(_next_due(due).label("due"), _next_stale(stale).label("stale"))


#: The earliest instant of a cron, and the earliest end of a fire's lease. A condition is a pair: of crons, of fires.
NEXT: Filtered[tuple[datetime | None, datetime | None]] = Filtered(
    _next,
    None,
    tuple,
    cron_name=lambda names: (SCHEDULES.c.name.in_(names), FIRES.c.cron_name.in_(names)),
    target=lambda targets: (SCHEDULES.c.target.in_(targets), FIRES.c.target.in_(targets)),
)

_inherits = sa.or_(
    OVERRIDES.c.name.is_(None),
    sa.and_(OVERRIDES.c.enabled == sa.true(), OVERRIDES.c.inherits_enabled == sa.true()),
)
#: True of crons that fire: not retired, and switched on by their override or, without one, by themselves.
IS_ON = sa.and_(
    SCHEDULES.c.retired_at.is_(None),
    sa.or_(
        sa.and_(_inherits, SCHEDULES.c.enabled == sa.true()),
        sa.and_(sa.not_(_inherits), OVERRIDES.c.enabled == sa.true()),
    ),
)

LIST = Listing(
    "crons",
    SUMMARY,
    order=(SCHEDULES.c.created_at, SCHEDULES.c.name),
    filters={
        "only_enabled": IS_ON,
        "only_disabled": sa.not_(IS_ON),
        "origin": SCHEDULES.c.origin == bind("origin", SCHEDULES.c.origin),
        "due_before": bind("due_before", SCHEDULES.c.next_run_at) > NEXT_RUN_AT,
        "only_retired": SCHEDULES.c.retired_at.is_not(None),
        "not_retired": SCHEDULES.c.retired_at.is_(None),
    },
    source=WITH_OVERRIDE,
    row=CronSummary,
)
