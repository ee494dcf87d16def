"""A double write: change a row, and insert a row into another table if the change took place.

If the database allows it, both are one statement, which needs one round trip and no transaction of its own. Otherwise
they run one after the other in a writing unit.
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
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.rows.statements import Row, RowT, Shaped, Statement
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
    """Return a statement that inserts a row of the parameters ``names``, or updates the row with this ``key``.

    ``replacing`` gets the columns of the row that could not be inserted, and returns the values to set. The statement
    returns the stored row. SQLite and Postgres write ``ON CONFLICT`` alike, but SQLAlchemy has it only in its dialects'
    packages.
    """
    row = insert(table).values({name: sa.bindparam(name, type_=table.c[name].type) for name in names})
    replaced = row.on_conflict_do_update(index_elements=[table.c[name] for name in key], set_=replacing(row.excluded))
    return replaced.returning(*table.c)


def insert_computed(table: sa.Table, values: Mapping[str, sa.ColumnElement[Any]]) -> Insert:
    """Return the INSERT of one row with a value that a subquery computes.

    It is an INSERT … SELECT, because a server that passes statements on to others refuses a subquery in VALUES. The
    SELECT has a condition; otherwise SQLite would parse ON CONFLICT as the condition of a join.
    """
    return insert(table).from_select(list(values), sa.select(*values.values()).where(sa.true()), include_defaults=False)


# Any number of values as one parameter of a statement: a JSON array, which the statement reads as rows.
#
# So one statement takes any number of values, and is compiled once.


def elements_table(parameter: str) -> Any:
    """Return a table of the elements of a JSON array, one per row. The parameter holds the array as text."""
    return elements_of(sa.bindparam(parameter, type_=columns.Text)).table_valued(sa.column("value"), name=parameter)


def as_list(values: Sequence[Any]) -> str:
    """Return checked values as the parameter that `elements_table` reads."""
    return codec.encode_sound(values).decode()


NEW = "new_"


class Chain(Generic[RowT]):
    """A write in two steps: ``head`` changes or inserts rows; then ``into`` gets a new row for each row of ``head``.

    A value in ``values`` is an SQL expression, usually a bind parameter with the column's type. `from_head` stands for
    a column that the head returned. The result has the head's columns, and the inserted row's columns in ``returning``
    under the names ``new_<column>``. ``row`` is the result's type, as in a `Statement`.
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


def inserted_row(made: Mapping[str, Any]) -> Row:
    """Return the ``returning`` columns of the row that a chain inserted, without their prefix ``new_``."""
    return {name[len(NEW) :]: value for name, value in made.items() if name.startswith(NEW)}


def from_head(column: str) -> sa.ColumnElement[Any]:
    """Return the SQL value of a column that the chain's head returned."""
    return sa.bindparam(f"_head_{column}")


def _head_name(value: Any) -> str | None:
    key = str(getattr(value, "key", ""))
    return key.removeprefix("_head_") if key.startswith("_head_") else None


# Statements and chains that functions build from their arguments.

P = ParamSpec("P")


@overload
def cache_statements(make: Callable[P, Chain[RowT]]) -> Callable[P, Chain[RowT]]: ...


@overload
def cache_statements(make: Callable[P, Statement[RowT]]) -> Callable[P, Statement[RowT]]: ...


def cache_statements(make: Callable[..., Any]) -> Callable[..., Any]:
    """Cache the compiled statements or chains that this function makes, by its arguments, within a limit of bytes."""

    @wraps(make)
    def of(*args: Any, **kwargs: Any) -> Any:
        shape = (make, args, tuple(kwargs.items()))
        return SHAPES.get(shape) or SHAPES.put(shape, _without_trees(shape, partial(make, *args, **kwargs)))

    return of


def _without_trees(shape: Hashable, make: Callable[[], Any]) -> Any:
    made = make()
    if isinstance(made, Statement):
        return Shaped(shape, lambda backend: make().on(backend), row=made.row)
    for name in ("head", "tail", "whole"):
        setattr(made, name, Shaped(shape, partial(_part, make, name), row=getattr(made, name).row))
    return made


def _part(make: Callable[[], Any], name: str, backend: Backend) -> Compiled:
    compiled: Compiled = getattr(make(), name).on(backend)
    return compiled
