"""The tables of a copy in their order, and statements that read their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import NAMESPACES
from lastlight_state.db import reconcile
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Statement, number, statement_of
from lastlight_state.db.schema import columns, sealing
from lastlight_state.db.schema.columns import JsonbText, in_code_points
from lastlight_state.db.units.unit import Unit
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.workflows.shared.claims import HEARTBEAT_AT, LEASE_END
from lastlight_state.workflows.tables import LEASES, RUNS

# Finds columns that another program added to tables of this library. A copy or a bundle would lose their values.


def filled_columns(unit: Unit, tables: Iterable[sa.Table]) -> list[str]:
    """Return the unknown columns that have a value in at least one row, as ``table.column``, in order."""
    known = {str(table.name): set(table.columns.keys()) for table in tables}
    inspector = sa.inspect(unit.backend.connection(unit))
    found: list[str] = []
    for name in reconcile.existing_tables(unit, known):
        there = {str(column["name"]) for column in inspector.get_columns(name, unit.backend.schema)}
        found += [f"{name}.{column}" for column in sorted(there - known[name]) if _holds(unit, name, column)]
    return found


def _holds(unit: Unit, table: str, column: str) -> bool:
    found: sa.ColumnClause[Any] = sa.column(column)
    some = sa.select(number(1)).select_from(sa.table(table, found)).where(found.is_not(None)).limit(number(1))
    return unit.value(statement_of(some), {}) is not None


# Records of copies between databases.


class CopiedTable(Record):
    """The contents of a table: the number of rows, and a digest.

    Equal rows give an equal digest in any order, on any database. The digest is the sum of the SHA-256 of each row's
    canonical form, as 64 hex digits.
    """

    name: str
    rows: int
    digest: str


class _Tables(Record):
    """The tables that are copied from one database to another. Locations are given without passwords.

    ``left_columns`` are those, as ``table.column``, that other programs added to tables of this library and that hold
    something: no copy has them. ``left_indexes`` are the namespaces whose index of embeddings no copy has either:
    `vectors.index` makes them there.
    """

    source: str
    target: str
    tables: tuple[CopiedTable, ...]
    left_columns: tuple[str, ...] = ()
    left_indexes: tuple[str, ...] = ()

    def shared_fields(self) -> dict[str, Any]:
        """Return the fields that a plan and its report have in common, by name."""
        return {name: getattr(self, name) for name in _Tables.model_fields}

    @property
    def rows(self) -> int:
        """Return the number of rows of all tables."""
        return sum(table.rows for table in self.tables)


class CopyPlan(_Tables):
    """The plan of a copy. Nothing is written for a plan.

    ``revision`` is the schema of the source. ``problems`` are values that the target cannot hold and other obstacles; a
    copy with problems is refused.
    """

    revision: str
    problems: tuple[str, ...]


class CopyReport(_Tables):
    """The report of a finished copy: every table of the target was read again, and its digest is that of the source."""

    receipt_id: str


class CopyProgress(Record):
    """The progress of a copy: the rows of one table so far. ``phase`` is ``planned``, ``copied`` or ``verified``."""

    phase: str
    table: str
    rows: int
    total: int | None


#: Tables about their own database, which are not copied: facts about its schema, permits to delete, and the progress of
#: copies into it. Leases are kept by triggers of the runs.
APART = frozenset({"lastlight_meta", "maintenance_permits", "copy_progress", LEASES.name})
#: Columns about their own database, by table.
_COLUMNS_APART = {NAMESPACES.name: frozenset({"content_tag"})}
#: Columns that are read from another table together with the row: a run has its lease's columns.
_CARRIED = {RUNS.name: {"heartbeat_at": HEARTBEAT_AT, "lease_expires_at": LEASE_END}}
#: The tables with rows that revisions insert, and their number.
SEEDED = {"message_types": 6, "invocation_kinds": 6, "source_kinds": 3}
#: Tables with foreign keys to themselves. Sorting by the column puts referenced rows first.
DEPTHS = {"branches": "fork_depth"}

#: A batch ends with the row that brings its texts and bytes to this size.
BATCH_BYTES = 8 * 1024 * 1024

Row = Sequence[Any]


class Subject:
    """A table that is copied.

    Rows are read as the driver returns them, with JSON as text, so that the size of a batch is known without decoding.
    """

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self.name = str(table.name)
        apart = _COLUMNS_APART.get(self.name, ())
        self.columns = tuple(column for column in table.columns if column.name not in apart)
        self.names = tuple(str(column.name) for column in self.columns)
        carried = _CARRIED.get(self.name, {})
        #: The columns or expressions to read.
        self.shown = tuple(
            carried[column.name].label(column.name) if column.name in carried else column for column in self.columns
        )
        first = [table.c[DEPTHS[table.name]]] if table.name in DEPTHS else []
        self.order = (*first, *table.primary_key)
        self._places = tuple(self.names.index(column.name) for column in self.order)

    @property
    def is_output(self) -> bool:
        """True if the table is an output table, which no revision creates."""
        return self.name not in METADATA.tables

    @property
    def numbered_column(self) -> str | None:
        """Return the column whose numbers the database generates, or None if there is none."""
        column = self.table.autoincrement_column
        return None if column is None else column.name

    @property
    def sort_order(self) -> tuple[Any, ...]:
        """Return the ORDER BY: by key, but a row comes after the rows of the same table that it refers to."""
        return tuple(map(_sort_expression, self.order))

    def key(self, row: Row) -> list[Any]:
        """Return the values by which a row is sorted."""
        return [row[place] for place in self._places]

    def stream(self, unit: Unit, after: Sequence[Any] | None = None) -> Iterator[Row]:
        """Yield all rows, or the rows after a key, in key order."""
        compiled = self.compiled_select(unit, after is not None)
        values = {} if after is None else {f"after_{i}": value for i, value in enumerate(after)}
        shown = self._shown_columns(unit.backend.large_values_in_rows)
        return unit.backend.stream(unit, compiled.sql, compiled.parameters(values), shown)

    def compiled_select(self, unit: Unit, resumed: bool = False) -> Compiled:
        """Return the compiled statement for this database, which also converts rows to Python values."""
        return (self._rest if resumed else self._all_rows).on(unit.backend)

    @cached_property
    def _all_rows(self) -> Statement:
        return Statement(self._select(texts=True), self._select(texts=False))

    @cached_property
    def _rest(self) -> Statement:
        after = [sa.bindparam(f"after_{i}", type_=column.type) for i, column in enumerate(self.order)]
        beyond = sa.tuple_(*self.sort_order) > sa.tuple_(*after)
        return Statement(self._select(texts=True).where(beyond), self._select(texts=False).where(beyond))

    def _select(self, *, texts: bool) -> sa.Select[Any]:
        """Return the SELECT. With ``texts``, JSON is selected as text, for a database that has a JSON type."""
        return sa.select(*self._shown_columns(not texts)).order_by(*self.sort_order)

    def _shown_columns(self, as_stored: bool) -> list[Any]:
        return [_cell_of(column) if as_stored or not is_json(column) else _text_of(column) for column in self.shown]


def subjects(outputs: Iterable[sa.Table]) -> list[Subject]:
    """Return every table that is copied, in the order of foreign keys. ``outputs`` are the output tables."""
    return [*_own(), *map(_of, outputs)]


@cache
def _own() -> tuple[Subject, ...]:
    return tuple(_of(table) for table in METADATA.sorted_tables if table.name not in APART)


@lru_cache(maxsize=512)
def _of(table: sa.Table) -> Subject:
    """Return the subject of a table. It is cached, so that its statements are compiled once."""
    return Subject(table)


def batches(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Yield the rows in lists of at most ``most`` rows, and of hardly more than `BATCH_BYTES` bytes."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum([len(value) for value in row if value.__class__ is str or value.__class__ is bytes])
        if len(batch) >= most or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def is_json(column: sa.ColumnElement[Any]) -> bool:
    """True if the column holds JSON."""
    return isinstance(column.type, columns.BinaryJson)


def _cell_of(column: Any) -> Any:
    """Return a column as it is stored. A sealed value is copied and compared without being decrypted."""
    kind = sealing.plain(column.type)
    return column if kind is column.type else sa.type_coerce(column, kind).label(column.name)


def _text_of(column: Any) -> Any:
    return sa.type_coerce(sa.cast(column, sa.Text), JsonbText()).label(column.name)


def _sort_expression(column: sa.Column[Any]) -> Any:
    """Return the expression to sort by: texts by code points, so that every database and collation sorts equally."""
    return in_code_points(column) if isinstance(column.type, sa.Text) else column
