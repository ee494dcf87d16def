"""The definitions that a store has made so far, and requests for new definitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Self, TypeVar

import sqlalchemy as sa

from lastlight_state.backends.sql.expressions import literal
from lastlight_state.clock import iso_text
from lastlight_state.codec import encode_sound
from lastlight_state.db import reconcile, valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.reconcile import Difference
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.statements import bind, columns_of, every_column_of, statement_of
from lastlight_state.errors import AlreadyExists, BackendError, InvalidValue, MisuseError, SchemaMismatch
from lastlight_state.outputs import models
from lastlight_state.outputs.models import REGISTRY, Kind
from lastlight_state.outputs.records import OutputTableSummary
from lastlight_state.outputs.shapes import OutputColumn, Shape
from lastlight_state.outputs.table import OutputTable, sql_table

# The registry of output tables in the database, so that copies, grants and lists need no model.

_CHANGING = ("signature", "model_digest", "updated_at", "columns", "json_schema")


class Registered(OutputTableSummary):
    """An output table as the registry has it."""

    kind: Kind
    columns: tuple[OutputColumn, ...]

    @classmethod
    def of(cls, values: Any) -> Self:
        values["columns"] = tuple(OutputColumn(**column) for column in values["columns"])
        return super().of(values)

    def handle(self) -> OutputTable[Any]:
        """Return an untyped handle. It can read, but cannot write, because it has no model that validates."""
        return OutputTable(
            key=self.key,
            table_name=self.table_name,
            kind=self.kind,
            columns=self.columns,
            signature=self.signature,
            model_digest=self.model_digest,
            table=_table(self.table_name, self.columns, is_foreign=self.kind == "custom"),
        )


@lru_cache(maxsize=512)
def _table(name: str, columns: tuple[OutputColumn, ...], *, is_foreign: bool) -> sa.Table:
    """Return a SQLAlchemy table. It is cached by the arguments, so that its statements are compiled only once."""
    return sql_table(name, columns, is_foreign=is_foreign)


def with_extras(made: OutputTable[Any], columns: Sequence[OutputColumn]) -> OutputTable[Any]:
    """Return the handle with the table's extra columns, and with the library's own columns as they are in the table."""
    declared = {column.name for column in made.columns}
    own = union(made.columns, [column for column in columns if column.name in declared])
    extra = tuple(column.name for column in columns if column.name not in declared)
    table = made.table if own == made.columns else sql_table(made.table_name, own)
    return replace(made, table=table, extra_columns=extra)


_SUMMARY = columns_of(OutputTableSummary, REGISTRY)
_KNOWN = every_column_of(Registered, REGISTRY, hidden={"json_schema"})

ALL = statement_of(sa.select(*_KNOWN).order_by(REGISTRY.c.key), Registered)
_sought = bind("name", REGISTRY.c.key)
_named = sa.or_(REGISTRY.c.key == _sought, REGISTRY.c.table_name == _sought)
FIND = statement_of(sa.select(*_KNOWN).where(_named), Registered)
ENTRY = statement_of(sa.select(*_SUMMARY).where(_named), OutputTableSummary)
LIST = Listing("output_tables", _SUMMARY, order=(REGISTRY.c.key,), descending=False, row=OutputTableSummary)


def union(declared: Iterable[OutputColumn], known: Iterable[OutputColumn]) -> tuple[OutputColumn, ...]:
    """Return the declared columns, followed by the columns that only the database has.

    The library's own columns are returned as they are in the database.
    """
    there = {column.name: column for column in known}
    wanted = [there.get(column.name, column) if column.field is None else column for column in declared]
    names = {column.name for column in wanted}
    return (*wanted, *(column for column in there.values() if column.name not in names))


def registry_statement(
    registry: str,
    handle: OutputTable[Any],
    columns: Sequence[OutputColumn],
    json_schema: Any,
    *,
    known: Registered | None,
    at: datetime,
) -> str:
    """Return the SQL text that inserts or updates a table's registry row; it can also be run by hand.

    ``registry`` is the name of the registry's table.
    """
    row: dict[str, str | None] = {
        "key": handle.key,
        "table_name": handle.table_name,
        "kind": handle.kind,
        "signature": handle.signature,
        "model_digest": handle.model_digest,
        "created_at": iso_text(at),
        "updated_at": iso_text(at),
        "columns": encode_sound([asdict(column) for column in columns]).decode(),
        "json_schema": None if json_schema is None else encode_sound(json_schema).decode(),
    }
    texts = {name: "NULL" if value is None else literal(value) for name, value in row.items()}
    if known is None:
        return f"INSERT INTO {registry} ({', '.join(texts)}) VALUES ({', '.join(texts.values())})"
    changes = ", ".join(f"{name} = {texts[name]}" for name in _CHANGING)
    return f"UPDATE {registry} SET {changes} WHERE key = {texts['key']}"


@dataclass(frozen=True)
class DefinitionRequest:
    """A request to define a table. ``made`` is the handle of the table without extra columns."""

    made: OutputTable[Any]
    shape: Shape | None
    json_schema: Any

    @property
    def key(self) -> str:
        return self.made.key

    @property
    def table_name(self) -> str:
        return self.made.table_name


class Definitions:
    """The handles of one store, by key.

    Threads may share this object: a handle is added atomically, and never changed.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, OutputTable[Any]] = {}

    def __iter__(self) -> Iterator[OutputTable[Any]]:
        return iter(tuple(self._by_key.values()))

    def of_key(self, key: str) -> OutputTable[Any] | None:
        """Return the handle of this key, or None."""
        return self._by_key.get(key)

    def of_name(self, name: str) -> OutputTable[Any] | None:
        """Return the handle of this key or table name, or None."""
        found = self._by_key.get(name)
        return found or next((handle for handle in self if handle.table_name == name), None)

    def keep(self, handle: OutputTable[Any]) -> OutputTable[Any]:
        """Store a handle, unless its key has one already. Returns the key's handle, which may be another thread's.

        Raises `SchemaMismatch` if that handle describes another definition.
        """
        self._by_key.setdefault(handle.key, handle)
        return self.earlier_handle(handle) or handle

    def earlier_handle(self, wished: OutputTable[Any]) -> OutputTable[Any] | None:
        """Return the handle of an equal earlier definition, or None for a new key.

        Raises `SchemaMismatch` if the key has another definition, which is final while the process runs.
        """
        known = self._by_key.get(wished.key)
        if known is None:
            return None
        found = tuple(_changes(known, wished))
        if found:
            raise SchemaMismatch(
                f"output {wished.key!r} is defined differently in this process; a definition is final: restart needed",
                differences=found,
            )
        return known


def refuse_collisions(wished: OutputTable[Any], others: Iterable[tuple[str, str]]) -> None:
    """Raise `AlreadyExists` if the key or table name is already the key or table name of another definition."""
    for key, table_name in others:
        if key == wished.key:
            continue
        if table_name == wished.table_name:
            raise AlreadyExists(
                models.OUTPUT_TABLE, wished.key, problem=f"would share the table {table_name!r} of {key!r}", owner=key
            )
        if key == wished.table_name or table_name == wished.key:
            raise AlreadyExists(
                models.OUTPUT_TABLE,
                wished.key,
                problem=f"(table {wished.table_name!r}) could be taken for {key!r} (table {table_name!r})",
                owner=key,
            )


def column_differences(
    table: str, wished: Iterable[OutputColumn], known: Iterable[OutputColumn]
) -> Iterator[Difference]:
    """Yield a difference for each column that has different types in the two lists."""
    there = {column.name: column for column in known}
    for column in wished:
        found = there.get(column.name)
        if found is not None and found.type != column.type:
            yield Difference(table, column.name, "type", column.type, found.type)


def _changes(known: OutputTable[Any], wished: OutputTable[Any]) -> Iterator[Difference]:
    table = known.table_name
    for what in ("table_name", "kind", "max_bytes"):
        before, after = getattr(known, what), getattr(wished, what)
        if before != after:
            yield Difference(table, None, what, str(before), str(after))
    if known.signature != wished.signature:
        yield from column_differences(table, wished.columns, known.columns)
        yield from _presence(table, wished, known)
    if known.model_digest != wished.model_digest:
        yield Difference(table, None, "validation", str(known.model_digest), str(wished.model_digest))


def _presence(table: str, wished: OutputTable[Any], known: OutputTable[Any]) -> Iterator[Difference]:
    before, after = ({column.name for column in handle.columns} for handle in (known, wished))
    for name in sorted(before - after):
        yield Difference(table, name, "column", "defined", "not in the model")
    for name in sorted(after - before):
        yield Difference(table, name, "column", "not defined", "in the model")


# How a call finds its output table: by its handle, its key or its table name.

T = TypeVar("T")


class Targeted(Repository):
    """A repository whose methods take a *target*: a handle, a key or a table name."""

    def _target(self, target: Any) -> OutputTable[Any]:
        """Return the handle of a target.

        A key that this process has not defined is looked up in the registry. Raises `NotFound`.
        """
        if isinstance(target, OutputTable):
            return target
        if type(target) is not str:
            raise InvalidValue("target", f"must be an OutputTable or a key, not {type(target).__name__}")
        known = self._remember(Definitions).of_name(target)
        if known is not None:
            return known
        found = self._find(FIND, {"name": valid.lookup_text("target", target)})
        if found is None:
            raise valid.not_found(models.OUTPUT_TABLE, target)
        return found.handle()

    def _writable(self, target: Any) -> OutputTable[Any]:
        """Return the handle of a target, for writing.

        Raises `MisuseError` for a key that only other processes have defined.
        """
        table = self._target(target)
        if not table.writable:
            raise MisuseError(f"output {table.key!r} is not defined in this process: define it with its model first")
        return table

    def _there(self, table: OutputTable[Any], call: Callable[[], T]) -> T:
        """Return the result of ``call()``.

        If it failed because the table was dropped, raises `SchemaMismatch` instead.
        """
        try:
            return call()
        except BackendError as error:
            self._refuse_gone(table, error)
            raise

    def _refuse_gone(self, table: OutputTable[Any], error: BackendError) -> None:
        """Raise `SchemaMismatch` if a call failed on a table that no longer exists in the database."""
        if type(error) is not BackendError:
            return
        if not self._viewing(lambda unit: reconcile.present(unit, [table.table_name])):
            raise missing_table(table.key, table.table_name) from error


def missing_table(key: str, table_name: str) -> SchemaMismatch:
    """Return the error for a registered table that no longer exists in the database."""
    return SchemaMismatch(
        f"the table {table_name!r} of output {key!r} is not in the database",
        differences=[f"table {table_name}: missing"],
    )
