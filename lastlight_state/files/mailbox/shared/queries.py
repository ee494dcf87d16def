"""SELECTs on a file that another program may have created, with fewer columns than this library uses.

A side never changes the other's file. Columns that the file lacks are read as their defaults, and a missing table as
empty. The existing columns are read again for each unit, because the file's owner may add some at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Family, RowT, Statement, bind, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendError, InvalidValue
from lastlight_state.files.mailbox import models
from lastlight_state.files.mailbox.arguments import Routing, StalePolicy
from lastlight_state.files.mailbox.projections import RoutingColumns
from lastlight_state.settings import Settings

# Values that a side stores about its own file: ``mailbox_meta``.


def _statements(table: sa.Table) -> tuple[Statement, Statement]:
    key, value = bind("key", table.c.key), bind("value", table.c.value)
    put = insert(table).values(key=key, value=value)
    return (
        statement_of(sa.select(table.c.value).where(table.c.key == key)),
        statement_of(put.on_conflict_do_update(index_elements=[table.c.key], set_={"value": put.excluded.value})),
    )


_OF = {models.INBOUND: _statements(models.IN_META), models.OUTBOUND: _statements(models.OUT_META)}


def find(unit: Unit, file: sa.MetaData, key: str) -> str | None:
    """Return the value stored under a name, or None. A file opened only for reading may lack the table."""
    if unit.backend.options.read_only and not unit.backend.column_names(unit, "mailbox_meta"):
        return None
    try:
        found: str | None = unit.value(_OF[file][0], {"key": key})
    except BackendError:
        if unit.backend.column_names(unit, "mailbox_meta"):
            raise
        return None  # replaced by a file of the original program
    return found


def put(unit: Unit, file: sa.MetaData, key: str, value: str) -> None:
    """Store a value under a name."""
    unit.change(_OF[file][1], {"key": key, "value": value})


def number(unit: Unit, file: sa.MetaData, key: str) -> int:
    """Return the value stored under a name as a number, or 0 if there is none."""
    text = find(unit, file, key) or ""
    return int(text) if text.isascii() and text.isdigit() else 0


# Checks of the arguments of mailbox calls.


def message_id(value: Any) -> str:
    """Check the id of a message, and return it."""
    return valid.identifier("id", value, models.ID_BYTES)


def kind(value: Any) -> str:
    """Check a kind of message, and return it. A kind is any name of 1 to 64 characters."""
    name = valid.identifier("kind", value, 4 * models.KIND_CHARACTERS)
    if len(name) > models.KIND_CHARACTERS:
        raise InvalidValue("kind", f"{len(name)} characters, more than the limit of {models.KIND_CHARACTERS}")
    return name


def content(value: Any, settings: Settings) -> str:
    """Return content in the form in which it is stored: compact JSON, which the original program searches as text.

    None stays None.
    """
    if value is None:
        raise InvalidValue("content", "must not be None")
    return codec.encode("content", value, max_bytes=settings.limits.message_content, max_depth=models.CONTENT_DEPTH)


def routing(value: Routing | None) -> RoutingColumns:
    """Return a routing as columns of a row."""
    given = Routing() if value is None else valid.argument_group("routing", value, Routing)
    return {
        "channel_type": valid.optional("routing.channel_type", given.channel_type, models.ROUTING_BYTES),
        "platform_id": valid.optional("routing.platform_id", given.platform_id, models.ROUTING_BYTES),
        "thread_id": valid.optional("routing.thread_id", given.thread_id, models.ROUTING_BYTES),
    }


def time_text(where: str, moment: datetime | None) -> str | None:
    """Return a time as text in the form that most columns have. Raises `InvalidValue` for a time without a zone."""
    return None if moment is None else iso_text(aware_utc(where, moment))


def error_text(value: Any) -> str:
    """Check the text of an error, and return it."""
    return valid.content("error", value, models.ERROR_BYTES)


def policy(value: Any) -> StalePolicy:
    """Check the limits for treating an agent as stuck, and return them."""
    given = valid.argument_group("policy", value, StalePolicy)
    for name in ("silent_after", "claim_after"):
        valid.duration(f"policy.{name}", getattr(given, name), most=models.LONGEST_SILENCE)
    kept = None if given.max_context is None else valid.number("policy.max_context", given.max_context)
    return replace(given, timed_tools=kinds("policy.timed_tools", given.timed_tools), max_context=kept)


def kinds(where: str, values: Any) -> frozenset[str]:
    """Check the kinds of messages to skip, and return them."""
    return frozenset(valid.lookup_text(where, value) for value in valid.several(where, values))


Columns: TypeAlias = Mapping[str, sa.ColumnElement[Any]]
_Make: TypeAlias = Callable[..., sa.Select[Any]]

#: The most values in one look-up by key.
_MOST = 500


class TolerantSelect(Generic[RowT]):
    """A SELECT on one table that may lack columns. ``make`` builds the SELECT from the columns by name.

    ``row`` is the type of its rows, as of a `Statement`.
    """

    def __init__(
        self, table: sa.Table, make: _Make, *, listed: str | None = None, row: type[RowT] | None = None
    ) -> None:
        self.table = table
        self._make = make
        self._listed = listed
        self.row = row
        self._made: dict[frozenset[str], Statement[RowT] | Family[RowT]] = {}
        self._whole = frozenset(column.name for column in table.columns)

    def rows(self, unit: Unit, values: Mapping[str, Any], present: frozenset[str] | None = None) -> list[RowT]:
        """Return the rows that can be read.

        ``present`` are the columns that exist in the file, by default all columns.
        """
        made = self._of(present)
        assert isinstance(made, Statement)  # noqa: S101 - of one without a list
        return unit.readable_rows(made, values)[0]

    def rows_by_key(self, unit: Unit, keys: Sequence[Any], present: frozenset[str] | None = None) -> list[RowT]:
        """Return the rows with these keys that can be read."""
        made = self._of(present)
        assert isinstance(made, Family)  # noqa: S101 - of one with a list
        found: list[RowT] = []
        for start in range(0, len(keys), _MOST):
            statement, values = made.of(keys[start : start + _MOST])
            found += unit.readable_rows(statement, values)[0]
        return found

    def _of(self, present: frozenset[str] | None) -> Statement[RowT] | Family[RowT]:
        there = self._whole if present is None else present & self._whole
        found = self._made.get(there)
        if found is None:
            columns = {column.name: _element(column, there) for column in self.table.columns}
            found = self._made[there] = self._build_statement(columns)
        return found

    def _build_statement(self, columns: Columns) -> Statement[RowT] | Family[RowT]:
        if self._listed is None:
            return Statement(self._make(columns), row=self.row)
        return Family(self._listed, lambda parameters: self._make(columns, parameters), self.row)


class OtherSide:
    """A snapshot of the file that the other side writes."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._present: dict[str, frozenset[str]] = {}

    def rows(self, reading: TolerantSelect[RowT], values: Mapping[str, Any] | None = None) -> list[RowT]:
        """Return the rows of a SELECT; empty if the file has no such table."""
        present = self._columns(reading.table.name)
        return reading.rows(self._unit, values or {}, present) if present else []

    def row(self, reading: TolerantSelect[RowT], values: Mapping[str, Any] | None = None) -> RowT | None:
        """Return the first row of a SELECT."""
        return next(iter(self.rows(reading, values)), None)

    def rows_by_key(self, reading: TolerantSelect[RowT], keys: Sequence[Any]) -> list[RowT]:
        """Return the rows of these keys."""
        present = self._columns(reading.table.name)
        return reading.rows_by_key(self._unit, keys, present) if present else []

    def _columns(self, table: str) -> frozenset[str]:
        found = self._present.get(table)
        if found is None:
            found = self._present[table] = self._unit.backend.column_names(self._unit, table)
        return found


class BothFiles:
    """A snapshot of both files: each SELECT goes to the file that has its table.

    If the own file was opened only for reading, it may lack columns, too.
    """

    def __init__(self, own: sa.MetaData, unit: Unit, look: OtherSide) -> None:
        self._own = own
        self._unit = unit
        self._look = look
        self._mine = OtherSide(unit) if unit.backend.options.read_only else None

    def rows(self, reading: TolerantSelect[RowT], values: Mapping[str, Any] | None = None) -> list[RowT]:
        """Return the rows of a SELECT."""
        if reading.table.metadata is self._own:
            return self._mine.rows(reading, values) if self._mine else reading.rows(self._unit, values or {})
        return self._look.rows(reading, values)

    def rows_by_key(self, reading: TolerantSelect[RowT], keys: Sequence[Any]) -> list[RowT]:
        """Return the rows of these keys."""
        if reading.table.metadata is self._own:
            return self._mine.rows_by_key(reading, keys) if self._mine else reading.rows_by_key(self._unit, keys)
        return self._look.rows_by_key(reading, keys)


def labelled_columns(columns: Columns, *names: str) -> list[sa.ColumnElement[Any]]:
    """Return these columns, or all, as expressions for a SELECT."""
    return [columns[name].label(name) for name in names or columns]


def _element(column: sa.Column[Any], present: frozenset[str]) -> sa.ColumnElement[Any]:
    if column.name in present:
        return column
    default = column.server_default
    if not isinstance(default, sa.DefaultClause):
        return sa.literal_column("NULL", column.type)
    text = str(default.arg)
    return sa.literal_column(text if text.isdigit() else f"'{text}'", column.type)
