"""Two writes in one: change a row, and insert a row into another table if the change took place.

If the database allows it, both are one statement, which needs no transaction of its own and one round trip; else they
run one after the other in a writing unit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, overload

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import Insert, insert
from sqlalchemy.sql.dml import ReturningInsert

from lastlight_state import codec
from lastlight_state.backends.base import Backend
from lastlight_state.backends.sql.json import elements_of
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.rows.statements import Compiled, Row, RowT, Shaped, Statement
from lastlight_state.db.schema import columns

# Insert or replace in one statement.

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


def insert_computed(table: sa.Table, values: Mapping[str, sa.ColumnElement[Any]]) -> Insert:
    """Return the INSERT of one row of which a subquery computes a value.

    The values are selected, because a server that passes statements on to others refuses a subquery in VALUES. Without
    a condition SQLite takes ON CONFLICT for the condition of a join.
    """
    return insert(table).from_select(list(values), sa.select(*values.values()).where(sa.true()), include_defaults=False)


# Any number of values as one parameter of a statement: a JSON array that it reads as rows.
#
# So a statement about many rows is one statement for any number of them, and is compiled once.


def listed(parameter: str) -> Any:
    """Return the elements of the JSON array that this parameter holds as text, one a row."""
    return elements_of(sa.bindparam(parameter, type_=columns.Text)).table_valued(sa.column("value"), name=parameter)


def as_list(values: Sequence[Any]) -> str:
    """Return the parameter of `listed`, of values that were checked."""
    return codec.encode_sound(values).decode()


NEW = "new_"


class Chain(Generic[RowT]):
    """``head`` changes or inserts a row and returns columns; then ``into`` gets one row for each that it returned.

    A value of ``values`` is a SQL expression, usually a bind parameter with the column's type. `from_head` stands for
    a column that the head returned. The result is the head's columns, and those of ``returning`` of the row inserted,
    as ``new_<column>``. ``row`` is its type, as of a `Statement`.
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
        self.returning = returning
        self.head: Statement[Any] = Statement(head)
        self.tail: Statement[Any] = Statement(self._separate_tail(into, values))
        self.whole: Statement[RowT] = Statement(self._single_statement(head, into, values), row=row)

    def _separate_tail(self, into: sa.Table, given: Mapping[str, sa.ColumnElement[Any]]) -> Any:
        values = {
            name: sa.bindparam(_head_name(value), type_=into.c[name].type) if _head_name(value) else value
            for name, value in given.items()
        }
        insert = sa.insert(into).values(values)
        return insert.returning(*self.returning) if self.returning else insert

    def _single_statement(self, changed: Any, into: sa.Table, values: Mapping[str, sa.ColumnElement[Any]]) -> Any:
        head = changed.cte("head")
        columns = [head.c[_head_name(value)] if _head_name(value) else value for value in values.values()]
        insert = sa.insert(into).from_select(
            list(values), sa.select(*columns).select_from(head), include_defaults=False
        )
        tail = insert.returning(*(self.returning or into.primary_key.columns)).cte("tail")
        new = [tail.c[column.name].label(NEW + column.name) for column in self.returning]
        return sa.select(*head.c, *new).select_from(head).join(tail, sa.true())


def inserted(made: Mapping[str, Any]) -> Row:
    """Return the ``returning`` columns of the row that a chain inserted, by their own names."""
    return {name[len(NEW) :]: value for name, value in made.items() if name.startswith(NEW)}


def from_head(column: str) -> sa.ColumnElement[Any]:
    """Return the value that the head returned under this name."""
    return sa.bindparam(f"_head_{column}")


def _head_name(value: Any) -> str | None:
    key = str(getattr(value, "key", ""))
    return key.removeprefix("_head_") if key.startswith("_head_") else None


# Statements and chains that functions make.

P = ParamSpec("P")


@overload
def shaped(make: Callable[P, Chain[RowT]]) -> Callable[P, Chain[RowT]]: ...


@overload
def shaped(make: Callable[P, Statement[RowT]]) -> Callable[P, Statement[RowT]]: ...


def shaped(make: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what the statements or chains of this function compile to, by its arguments, within the bound of bytes."""

    @wraps(make)
    def of(*args: Any, **kwargs: Any) -> Any:
        shape = (make, args, tuple(kwargs.items()))
        return SHAPES.get(shape) or SHAPES.put(shape, _without_trees(shape, partial(make, *args, **kwargs)))

    return of


def _without_trees(shape: Hashable, make: Callable[[], Any]) -> Any:
    made = make()
    if isinstance(made, Statement):
        return Shaped(shape, lambda backend: make().on(backend))
    for name in ("head", "tail", "whole"):
        setattr(made, name, Shaped(shape, partial(_part, make, name)))
    return made


def _part(make: Callable[[], Any], name: str, backend: Backend) -> Compiled:
    compiled: Compiled = getattr(make(), name).on(backend)
    return compiled
