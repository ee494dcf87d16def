"""Insert or replace in one statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.sql.dml import ReturningInsert

Columns = Any


def upsert(
    table: sa.Table,
    names: Sequence[str],
    *,
    key: Sequence[str],
    replacing: Callable[[Columns], dict[str, Any]],
) -> ReturningInsert[Any]:
    """Insert a row of the parameters ``names``; if a row with this ``key`` exists, update it instead.

    ``replacing`` returns the values to set, given the columns of the row that was not inserted. The statement returns
    the stored row. ``ON CONFLICT`` is spelt alike on SQLite and Postgres; SQLAlchemy keeps it in a dialect's package.
    """
    row = insert(table).values({name: sa.bindparam(name, type_=table.c[name].type) for name in names})
    replaced = row.on_conflict_do_update(index_elements=[table.c[name] for name in key], set_=replacing(row.excluded))
    return replaced.returning(*table.c)
