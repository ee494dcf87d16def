"""The statements of one output table. They are built when first used, and stored with the table's handle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from operator import add
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Row, Statement, bind, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import insert_computed
from lastlight_state.db.schema.columns import ExactNumeric, Real, SpelledTimestamp, Timestamp, in_code_points
from lastlight_state.outputs.models import HISTORY
from lastlight_state.outputs.records import OutputRevision
from lastlight_state.outputs.shapes import OutputColumn
from lastlight_state.outputs.table import OutputTable, sql_table

#: The time of rows that were written before the library adopted their table: the real time is unknown.
_NEVER = sa.literal_column("'1970-01-01T00:00:00.000Z'", Timestamp)


class TableStatements:
    """The statements that `results` runs on a table. Parameters of its columns are named ``v_<column>``."""

    def __init__(self, table: OutputTable[Any], extra: Sequence[OutputColumn] = ()) -> None:
        self.of = table
        self.columns = (*table.columns, *extra)
        self._extra = tuple(column.name for column in extra)
        self._table = sql_table(table.table_name, self.columns) if extra else _converted_table(table.table)
        self._domain = [column.name for column in self.columns if column.field is not None]
        self._has_iteration = "iteration" in self._table.c
        self._has_times = "row_created_at" in self._table.c and "row_updated_at" in self._table.c

    @cached_property
    def insert(self) -> Statement:
        """Return the INSERT of a row. It inserts nothing if the row exists."""
        own = [name for name in ("row_created_at", "row_updated_at") if name in self._table.c]
        values = {name: bind(f"v_{name}", self._table.c[name]) for name in self._domain}
        values |= {name: bind("at", self._table.c[name]) for name in own}
        values |= {column.name: bind(column.name, column) for column in self._key}
        return statement_of(insert(self._table).values(values).on_conflict_do_nothing(index_elements=self._key))

    @cached_property
    def get(self) -> Statement:
        return statement_of(sa.select(*self._whole).where(self._this_row))

    @cached_property
    def lock(self) -> Statement:
        """Return the SELECT of a row that locks it until the unit ends."""
        return statement_of(sa.select(*self._whole).where(self._this_row).with_for_update())

    @cached_property
    def replace(self) -> Statement:
        """Return the UPDATE that replaces the whole row. Columns that this process does not know become NULL."""
        values: Row = {
            name: sa.null() if name in self._extra else bind(f"v_{name}", self._table.c[name]) for name in self._domain
        }
        if "row_updated_at" in self._table.c:
            values["row_updated_at"] = bind("at", self._table.c.row_updated_at)
        return statement_of(sa.update(self._table).where(self._this_row).values(values))

    @cached_property
    def delete(self) -> Statement:
        return statement_of(sa.delete(self._table).where(self._this_row))

    @cached_property
    def latest(self) -> Statement:
        """Return the SELECT of a node's row with the highest iteration."""
        found = sa.select(*self._whole).where(*self._of("run_id", "node_id"))
        return statement_of(found.order_by(self._iteration.desc()).limit(number(1)) if self._has_iteration else found)

    @cached_property
    def newest(self) -> Listing:
        """Return the statement that lists rows, newest first, or by key if rows have no times."""
        run, node, iteration = self._place
        times = (self._written_column,) if self._has_times else ()
        return Listing(
            f"outputs.{self.of.table_name}",
            (*self._place, *self._times),
            order=(*times, run, node, iteration),
            filters=self._filters,
        )

    @cached_property
    def load(self) -> Listing:
        """Return the statement that lists a run's rows by node and iteration, by code points in every collation."""
        _, node, iteration = self._place
        return Listing(
            f"outputs.{self.of.table_name}.load",
            self._whole,
            order=(node, iteration),
            filters=self._filters,
            descending=False,
        )

    @cached_property
    def count(self) -> dict[frozenset[str], Statement]:
        """Return the statements that count rows, by the set of filters that are given."""
        wanted = [frozenset(names) for names in ((), ("run_id",), ("node_id",), ("run_id", "node_id"))]
        counted = sa.select(sa.func.count().label("rows")).select_from(self._table)
        return {names: statement_of(counted.where(*self._of(*sorted(names)))) for names in wanted}

    @cached_property
    def of_run(self) -> sa.Select[Any]:
        """Return the SELECT of all rows of a run for a snapshot, in no order: key, times and domain columns."""
        return sa.select(*self._whole).where(*self._of("run_id"))

    @cached_property
    def in_run(self) -> Statement:
        """Return the SELECT of `of_run` as a separate statement."""
        return statement_of(self.of_run)

    @cached_property
    def shown_columns(self) -> tuple[tuple[str, str], ...]:
        """Return the name and type token of each column of `of_run`.

        A constant in place of a column has type ``integer``.
        """
        tokens: dict[str, str] = {column.name: column.type for column in self.columns}
        return tuple((name, tokens.get(name, "integer")) for name in (c.name for c in self.of_run.selected_columns))

    @cached_property
    def size(self) -> Statement:
        """Return the statement that estimates the number of bytes in a run's rows."""
        held = [sa.func.length(sa.cast(self._table.c[name], sa.LargeBinary)) for name in self._domain]
        row = reduce(add, (sa.func.coalesce(one, number(0)) for one in held))
        total = sa.func.coalesce(sa.func.sum(row), number(0), type_=sa.Integer)
        return statement_of(sa.select(total.label("size")).where(*self._of("run_id")))

    @property
    def _key(self) -> list[sa.Column[Any]]:
        return [self._table.c[name] for name in ("run_id", "node_id", "iteration") if name in self._table.c]

    @property
    def _this_row(self) -> sa.ColumnElement[bool]:
        return sa.and_(*self._of(*(column.name for column in self._key)))

    @property
    def _filters(self) -> dict[str, sa.ColumnElement[bool]]:
        return dict(zip(("run_id", "node_id"), self._of("run_id", "node_id"), strict=True))

    @property
    def _iteration(self) -> Any:
        return self._table.c.iteration if self._has_iteration else number(0).label("iteration")

    @cached_property
    def _place(self) -> tuple[Any, ...]:
        own = self._table.c
        if self.of.kind != "custom":
            return own.run_id, own.node_id, self._iteration
        return in_code_points(own.run_id).label("run_id"), in_code_points(own.node_id).label("node_id"), self._iteration

    @cached_property
    def _written_column(self) -> Any:
        written = self._table.c.row_created_at
        kind = SpelledTimestamp if self.of.kind == "custom" else Timestamp
        return sa.func.coalesce(written, _NEVER, type_=kind).label("written") if written.nullable else written

    @cached_property
    def _times(self) -> tuple[Any, ...]:
        own = [self._table.c[name] for name in ("row_created_at", "row_updated_at") if name in self._table.c]
        return (*own, self._written_column) if self._has_times and self._written_column is not own[0] else tuple(own)

    @cached_property
    def _whole(self) -> tuple[Any, ...]:
        own = [self._table.c[name] for name in ("row_created_at", "row_updated_at") if name in self._table.c]
        return (*self._place, *own, *(self._table.c[name] for name in self._domain))

    def _of(self, *names: str) -> list[sa.ColumnElement[bool]]:
        return [self._table.c[name] == bind(name, self._table.c[name]) for name in names]


def _converted_table(table: sa.Table) -> sa.Table:
    """Return the table with the library's number types.

    SQLAlchemy's types would query Postgres's cursor for column types.
    """
    if not any(isinstance(column.type, sa.Numeric | sa.Float) for column in table.c):
        return table
    columns = [
        sa.Column(own.name, _number(own.type), primary_key=own.primary_key, autoincrement=False, nullable=own.nullable)
        for own in table.c
    ]
    return sa.Table(table.name, sa.MetaData(), *columns, schema=table.schema)


def _number(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    if isinstance(kind, sa.Float):
        return Real
    return kind.with_variant(ExactNumeric(), "postgresql") if isinstance(kind, sa.Numeric) else kind


def statements_of(table: OutputTable[Any]) -> TableStatements:
    """Return the statements of a table, which are stored with the table's handle."""
    kept: TableStatements | None = table.__dict__.get("_statements")
    if kept is None:
        kept = TableStatements(table)
        table.__dict__["_statements"] = kept
    return kept


_HISTORY_KEY = ("run_id", "table_name", "node_id", "iteration")
_of_key = [HISTORY.c[name] == bind(name, HISTORY.c[name]) for name in _HISTORY_KEY]
_ARCHIVED = ("signature", "cause", "written_at", "removed_at", "reason", "value")
_next = sa.select(sa.func.coalesce(sa.func.max(HISTORY.c.revision) + number(1), number(0))).where(*_of_key)

#: Inserts a row into the history under its next revision. The unit has locked the row, so that no other unit takes the
#: same revision.
ARCHIVE = statement_of(
    insert_computed(
        HISTORY,
        {name: bind(name, HISTORY.c[name]) for name in (*_HISTORY_KEY, *_ARCHIVED)}
        | {"revision": _next.scalar_subquery()},
    )
)
HISTORY_LIST = Listing(
    "output_history",
    every_column_of(OutputRevision, HISTORY),
    row=OutputRevision,
    order=(HISTORY.c.revision,),
    filters=dict(zip(_HISTORY_KEY, _of_key, strict=True)),
)
