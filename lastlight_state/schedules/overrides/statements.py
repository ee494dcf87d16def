"""The statements of `overrides`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.columns import Flag
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Family, Row, Statement, bind, prepared
from lastlight_state.db.upserts import upsert
from lastlight_state.schedules.rows import CronOverrideRow
from lastlight_state.schedules.tables import OVERRIDES

COLUMNS = tuple(OVERRIDES.c)
_this = OVERRIDES.c.name == bind("name", OVERRIDES.c.name)


def _merged(new: Any, column: str, keeps: str) -> sa.ColumnElement[Any]:
    """The stored value if the call keeps it, else the new one. Decided in SQL, so that no change is overwritten."""
    return sa.case((sa.bindparam(keeps, type_=Flag) == sa.true(), OVERRIDES.c[column]), else_=new[column])


PUT = prepared(
    upsert(
        OVERRIDES,
        [column.name for column in COLUMNS],
        key=("name",),
        replacing=lambda new: {
            "enabled": _merged(new, "enabled", "keeps_enabled"),
            "inherits_enabled": _merged(new, "inherits_enabled", "keeps_enabled"),
            "schedule": _merged(new, "schedule", "keeps_schedule"),
            "timezone": _merged(new, "timezone", "keeps_timezone"),
            "updated_at": new.updated_at,
            "updated_by": new.updated_by,
        },
    ),
    CronOverrideRow,
)
TOUCH = prepared(
    sa.update(OVERRIDES)
    .where(_this)
    .values(
        updated_at=bind("updated_at", OVERRIDES.c.updated_at), updated_by=bind("updated_by", OVERRIDES.c.updated_by)
    )
    .returning(*COLUMNS),
    CronOverrideRow,
)
FIND = prepared(sa.select(*COLUMNS).where(_this), CronOverrideRow)
CLEAR = prepared(sa.delete(OVERRIDES).where(_this))
LIST = Listing("cron_overrides", COLUMNS, order=(OVERRIDES.c.updated_at, OVERRIDES.c.name), row=CronOverrideRow)

_ALL = prepared(sa.select(*COLUMNS), CronOverrideRow)


def _named(names: Sequence[sa.BindParameter[Any]]) -> Any:
    return sa.select(*COLUMNS).where(OVERRIDES.c.name.in_(names))


_NAMED = Family("name", _named, CronOverrideRow)
_MOST = 500


def of_names(names: Sequence[str]) -> tuple[Statement[CronOverrideRow], Row]:
    """Return the statement that reads the overrides of these names; for more than 500 names, all overrides."""
    return (_ALL, {}) if len(names) > _MOST else _NAMED.of(names)
