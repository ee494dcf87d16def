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
    """Insert a row of the parameters ``names``; where ``key`` is taken, replace that row's values instead.

    ``replacing`` gives the values, from the columns of the row that was not inserted. Returns the row that stands.
    ``ON CONFLICT`` is written alike on all products that have it; SQLAlchemy merely keeps it in a dialect's package.
    """
    row = insert(table).values({name: sa.bindparam(name, type_=table.c[name].type) for name in names})
    replaced = row.on_conflict_do_update(index_elements=[table.c[name] for name in key], set_=replacing(row.excluded))
    return replaced.returning(*table.c)
