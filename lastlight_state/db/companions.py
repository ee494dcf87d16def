"""Columns that a later revision adds, in a companion table: at most one row for a row of its parent, with its key.

A column that is added to a table stands behind its large ones. On SQLite a list that shows it from there walks the
large values of every row, and a covering index that held it would be made anew with each release. A companion's row is
found by the key, for the rows that a page shows and no others.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


def of_companion(column: sa.Column[Any]) -> sa.Label[Any]:
    """Return the column of a companion for the ``shown`` of a `Listing` of its parent: NULL where there is no row.

    The companion refers to its parent by one foreign key, which is its primary key as well.
    """
    [reference] = column.table.foreign_key_constraints
    same = (each.parent == each.column for each in reference.elements)
    return sa.select(column).where(*same).scalar_subquery().label(column.name)
