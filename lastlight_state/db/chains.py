"""Two writes in one: change a row, and insert a row into another table if the change took place.

If the database allows it, both are one statement, which needs no transaction of its own and one round trip; else they
run one after the other in a writing unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

import sqlalchemy as sa

from lastlight_state.db.statements import Row, RowT, Statement

NEW = "new_"


class Chain(Generic[RowT]):
    """``head`` changes or inserts a row and returns columns; then ``into`` gets one row for each that it returned.

    A value of ``values`` is a SQL expression, usually a bind parameter with the column's type. `from_head` stands for
    a column that the head returned. The result is the head's columns, and those of ``returning`` of the row inserted,
    as ``new_<column>``. ``row`` is its `TypedDict`, as of a `Statement`.
    """

    def __init__(
        self,
        head: Any,
        *,
        into: sa.Table,
        values: Mapping[str, sa.ColumnElement[Any]],
        returning: tuple[sa.Column[Any], ...] = (),
        row: type[RowT] | None = None,
    ) -> None:
        self._head = head
        self._into = into
        self._values = dict(values)
        self.returning = returning
        self.head = Statement(head)
        self.tail = Statement(self._separate_tail())
        self.whole = Statement(self._single_statement(), row=row)

    def _separate_tail(self) -> Any:
        values = {
            name: sa.bindparam(_head_name(value), type_=self._into.c[name].type) if _head_name(value) else value
            for name, value in self._values.items()
        }
        insert = sa.insert(self._into).values(values)
        return insert.returning(*self.returning) if self.returning else insert

    def _single_statement(self) -> Any:
        head = self._head.cte("head")
        columns = [head.c[_head_name(value)] if _head_name(value) else value for name, value in self._values.items()]
        insert = sa.insert(self._into).from_select(
            list(self._values), sa.select(*columns).select_from(head), include_defaults=False
        )
        tail = insert.returning(*(self.returning or self._into.primary_key.columns)).cte("tail")
        new = [tail.c[column.name].label(NEW + column.name) for column in self.returning]
        return sa.select(*head.c, *new).select_from(head).join(tail, sa.true())


def inserted(made: Mapping[str, Any]) -> Row:
    """Return the ``returning`` columns of the row that a chain inserted, by their own names."""
    return {name[len(NEW) :]: value for name, value in made.items() if name.startswith(NEW)}


def from_head(column: str) -> sa.ColumnElement[Any]:
    """The value that the head returned under this name."""
    return sa.bindparam(f"_head_{column}")


def _head_name(value: Any) -> str | None:
    key = str(getattr(value, "key", ""))
    return key.removeprefix("_head_") if key.startswith("_head_") else None
