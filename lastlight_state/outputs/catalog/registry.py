"""The registry: which output tables the database has, so that copies, grants and lists need no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Self

import sqlalchemy as sa

from lastlight_state.backends.sql.quoting import literal
from lastlight_state.clock import iso_text
from lastlight_state.codec import encode_sound
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Record
from lastlight_state.db.statements import bind, prepared
from lastlight_state.outputs.shapes import OutputColumn
from lastlight_state.outputs.shown import OutputTableSummaryRow, RegisteredRow
from lastlight_state.outputs.table import OutputTable, sql_table
from lastlight_state.outputs.tables import REGISTRY
from lastlight_state.outputs.words import Kind

_SUMMARY = tuple(column for column in REGISTRY.c if column.name not in ("columns", "json_schema"))
_KNOWN = (*_SUMMARY, REGISTRY.c.columns)
_CHANGING = ("signature", "model_digest", "updated_at", "columns", "json_schema")


class Registered(Record):
    """An output table as the registry has it."""

    key: str
    table_name: str
    kind: Kind
    signature: str
    model_digest: str | None
    created_at: datetime
    updated_at: datetime
    columns: tuple[OutputColumn, ...]

    @classmethod
    def of(cls, values: RegisteredRow) -> Self:
        values["columns"] = tuple(OutputColumn(**column) for column in values["columns"])
        return super().of(values)

    def handle(self) -> OutputTable[Any]:
        """An untyped handle: it reads, and knows no model."""
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
    """Return the same table for the same columns: whoever reads the registry again need not compile anew."""
    return sql_table(name, columns, is_foreign=is_foreign)


def with_extras(made: OutputTable[Any], columns: Sequence[OutputColumn]) -> OutputTable[Any]:
    """The handle with the columns that only the table has, and with the library's own columns as the table has them."""
    declared = {column.name for column in made.columns}
    own = union(made.columns, [column for column in columns if column.name in declared])
    extra = tuple(column.name for column in columns if column.name not in declared)
    table = made.table if own == made.columns else sql_table(made.table_name, own)
    return replace(made, table=table, extra_columns=extra)


ALL = prepared(sa.select(*_KNOWN).order_by(REGISTRY.c.key), RegisteredRow)
_sought = bind("name", REGISTRY.c.key)
_named = sa.or_(REGISTRY.c.key == _sought, REGISTRY.c.table_name == _sought)
FIND = prepared(sa.select(*_KNOWN).where(_named), RegisteredRow)
ENTRY = prepared(sa.select(*_SUMMARY).where(_named), OutputTableSummaryRow)
LIST = Listing("output_tables", _SUMMARY, order=(REGISTRY.c.key,), descending=False, row=OutputTableSummaryRow)


def union(declared: Iterable[OutputColumn], known: Iterable[OutputColumn]) -> tuple[OutputColumn, ...]:
    """The declared columns, then those that only the database has. The library's own are as the database has them."""
    there = {column.name: column for column in known}
    wanted = [there.get(column.name, column) if column.field is None else column for column in declared]
    names = {column.name for column in wanted}
    return (*wanted, *(column for column in there.values() if column.name not in names))


def noting(
    registry: str,
    handle: OutputTable[Any],
    columns: Sequence[OutputColumn],
    json_schema: Any,
    *,
    known: Registered | None,
    at: datetime,
) -> str:
    """The statement that notes a table in the registry, as text that anybody can run. ``registry`` is its name."""
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
