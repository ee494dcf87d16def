"""Columns that another program added to tables of this library. A copy or a bundle would lose what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from lastlight_state.db import reconcile
from lastlight_state.db.statements import number, prepared
from lastlight_state.db.unit import Unit


def filled(unit: Unit, tables: Iterable[sa.Table]) -> list[str]:
    """Those that are not NULL in every row, as ``table.column``, in order."""
    known = {str(table.name): set(table.columns.keys()) for table in tables}
    inspector = sa.inspect(unit.backend.connection(unit.checkout))
    found: list[str] = []
    for name in reconcile.existing(unit, known):
        there = {str(column["name"]) for column in inspector.get_columns(name, unit.backend.schema)}
        found += [f"{name}.{column}" for column in sorted(there - known[name]) if _holds(unit, name, column)]
    return found


def _holds(unit: Unit, table: str, column: str) -> bool:
    found: sa.ColumnClause[Any] = sa.column(column)
    some = sa.select(number(1)).select_from(sa.table(table, found)).where(found.is_not(None)).limit(number(1))
    return unit.value(prepared(some), {}) is not None
