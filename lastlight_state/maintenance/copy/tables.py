"""The tables of a copy, in the order in which they are copied, and how the rows of each are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import NAMESPACES
from lastlight_state.db import reconcile
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import Compiled, Statement, number, prepared
from lastlight_state.db.schema import columns, sealing
from lastlight_state.db.schema.columns import JsonbText, in_code_points
from lastlight_state.db.units.unit import Unit
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.workflows.kernel.claims import HEARTBEAT_AT, LEASE_END
from lastlight_state.workflows.tables import LEASES, RUNS

# Columns that another program added to tables of this library. A copy or a bundle would lose what they hold.


def filled(unit: Unit, tables: Iterable[sa.Table]) -> list[str]:
    """Return the columns that are not NULL in every row, as ``table.column``, in order."""
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


# Records of copies between databases.


class CopiedTable(Record):
    """The contents of a table: the number of rows, and a digest that equal rows give in any order, on any database.

    The digest is the sum of the SHA-256 of each row's canonical form, 64 hex digits.
    """

    name: str
    rows: int
    digest: str


class _Tables(Record):
    """Tables of a copy from one database to another; locations are without passwords.

    ``left_columns`` are those, as ``table.column``, that other programs added to tables of this library and that hold
    something: no copy has them.
    """

    source: str
    target: str
    tables: tuple[CopiedTable, ...]
    left_columns: tuple[str, ...] = ()

    def shared(self) -> dict[str, Any]:
        """Return what a plan and its report have in common, by name."""
        return {name: getattr(self, name) for name in _Tables.model_fields}

    @property
    def rows(self) -> int:
        """Return the number of rows of all tables."""
        return sum(table.rows for table in self.tables)


class CopyPlan(_Tables):
    """The plan of a copy as of now, for which nothing is written.

    ``revision`` is the schema of the source. ``problems`` says what the target cannot hold, or what stands in the way;
    a copy with problems is refused.
    """

    revision: str
    problems: tuple[str, ...]


class CopyReport(_Tables):
    """A copy that was finished: every table of the target was read again, and has the digest of the source."""

    receipt_id: str


class CopyProgress(Record):
    """The progress of a copy: rows of one table so far. ``phase`` is ``planned``, ``copied`` or ``verified``."""

    phase: str
    table: str
    rows: int
    total: int | None


#: Tables that tell of their own database: facts about its schema, leave to delete, and how far copies into it came.
#: Leases are kept there by triggers of the runs.
APART = frozenset({"lastlight_meta", "maintenance_permits", "copy_progress", LEASES.name})
#: Columns that do so, by table.
_COLUMNS_APART = {NAMESPACES.name: frozenset({"content_tag"})}
#: Columns that are read as they are beside the row, by table: a run carries its lease.
_CARRIED = {RUNS.name: {"heartbeat_at": HEARTBEAT_AT, "lease_expires_at": LEASE_END}}
#: Tables with rows of the revisions' making, and how many.
SEEDED = {"message_types": 6, "invocation_kinds": 6, "source_kinds": 3}
#: Tables whose rows refer to others of the same table, with the column by which those come first.
DEPTHS = {"branches": "fork_depth"}

#: A batch ends with the row that brings it to this many bytes of text and bytes.
BATCH_BYTES = 8 * 1024 * 1024

Row = Sequence[Any]


class Subject:
    """A table that is copied.

    Rows are read as the drivers have them, JSON as text, so that a batch can be measured and need not be decoded.
    """

    def __init__(self, table: sa.Table) -> None:
        self.table = table
        self.name = str(table.name)
        apart = _COLUMNS_APART.get(self.name, ())
        self.columns = tuple(column for column in table.columns if column.name not in apart)
        self.names = tuple(str(column.name) for column in self.columns)
        carried = _CARRIED.get(self.name, {})
        #: The columns as they are read.
        self.shown = tuple(
            carried[column.name].label(column.name) if column.name in carried else column for column in self.columns
        )
        first = [table.c[DEPTHS[table.name]]] if table.name in DEPTHS else []
        self.order = (*first, *table.primary_key)
        self._places = tuple(self.names.index(column.name) for column in self.order)

    @property
    def is_output(self) -> bool:
        """True if it is an output table, which no revision makes."""
        return self.name not in METADATA.tables

    @property
    def numbered(self) -> str | None:
        """Return the column whose numbers the database gives, if there is one."""
        column = self.table.autoincrement_column
        return None if column is None else column.name

    @property
    def sorting(self) -> tuple[Any, ...]:
        """Return the ORDER BY: rows by key, after those of the table that they refer to."""
        return tuple(map(_sorted, self.order))

    def key(self, row: Row) -> list[Any]:
        """Return the values by which rows are in order."""
        return [row[place] for place in self._places]

    def stream(self, unit: Unit, after: Sequence[Any] | None = None) -> Iterator[Row]:
        """Yield all rows, or those after a key, in the order of keys."""
        compiled = self.reading(unit, after is not None)
        values = {} if after is None else {f"after_{i}": value for i, value in enumerate(after)}
        shown = self._shown(unit.backend.large_values_in_rows)
        return unit.backend.stream(unit.checkout, compiled.sql, compiled.parameters(values), shown)

    def reading(self, unit: Unit, resumed: bool = False) -> Compiled:
        """Return the statement on this database, which also makes Python values of the rows."""
        return (self._rest if resumed else self._all).on(unit.backend)

    @cached_property
    def _all(self) -> Statement:
        return Statement(self._select(texts=True), self._select(texts=False))

    @cached_property
    def _rest(self) -> Statement:
        after = [sa.bindparam(f"after_{i}", type_=column.type) for i, column in enumerate(self.order)]
        beyond = sa.tuple_(*self.sorting) > sa.tuple_(*after)
        return Statement(self._select(texts=True).where(beyond), self._select(texts=False).where(beyond))

    def _select(self, *, texts: bool) -> sa.Select[Any]:
        """Return the SELECT. ``texts``: the database keeps JSON in a type of its own, and is asked for its text."""
        return sa.select(*self._shown(not texts)).order_by(*self.sorting)

    def _shown(self, as_stored: bool) -> list[Any]:
        return [_cell_of(column) if as_stored or not is_json(column) else _text_of(column) for column in self.shown]


def subjects(outputs: Iterable[sa.Table]) -> list[Subject]:
    """Return every table that is copied, each after those that it refers to. ``outputs`` are the output tables."""
    return [*_own(), *map(_of, outputs)]


@cache
def _own() -> tuple[Subject, ...]:
    return tuple(_of(table) for table in METADATA.sorted_tables if table.name not in APART)


@lru_cache(maxsize=512)
def _of(table: sa.Table) -> Subject:
    """Return the subject of a table: its statements are compiled once."""
    return Subject(table)


def batches(rows: Iterable[Row], most: int) -> Iterator[list[Row]]:
    """Yield the rows in lists of at most ``most`` rows, and of not much more than `BATCH_BYTES`."""
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
    """Return whether the column holds JSON."""
    return isinstance(column.type, columns.BinaryJson)


def _cell_of(column: Any) -> Any:
    """Return a column as it is stored: a sealed cell travels, and is compared, without being opened."""
    kind = sealing.plain(column.type)
    return column if kind is column.type else sa.type_coerce(column, kind).label(column.name)


def _text_of(column: Any) -> Any:
    return sa.type_coerce(sa.cast(column, sa.Text), JsonbText()).label(column.name)


def _sorted(column: sa.Column[Any]) -> Any:
    """Return the column to sort by: texts by code points, the same on every database and collation."""
    return in_code_points(column) if isinstance(column.type, sa.Text) else column
