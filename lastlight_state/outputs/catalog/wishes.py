"""Makes the handle that a caller's model or table would get. Reads and writes nothing."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue, SchemaMismatch
from lastlight_state.outputs import naming, words
from lastlight_state.outputs.catalog.definitions import Wish
from lastlight_state.outputs.shapes import BOOKKEEPING, OutputColumn, Shape, shape_of
from lastlight_state.outputs.signature import signature
from lastlight_state.outputs.table import OutputTable, sql_table
from lastlight_state.outputs.words import Token

#: The token of a column of the caller's making, by the first class that fits.
_TOKENS: tuple[tuple[type[sa.types.TypeEngine[Any]], Token], ...] = (
    (sa.Boolean, "boolean"),
    (sa.Integer, "integer"),
    (sa.Float, "real"),
    (sa.Numeric, "decimal"),
    (sa.DateTime, "timestamp"),
    (sa.JSON, "json"),
    (sa.LargeBinary, "blob"),
    (sa.String, "text"),
)


def named(key: Any, table: Any) -> tuple[str, str]:
    """The key and the table name of a definition. Does not check whether the table name is reserved."""
    checked = naming.key(key)
    if table is None:
        return checked, naming.table_name("key", naming.snake_case(checked))
    return checked, naming.table_name("table", table)


def wished(key: str, name: str, model: Any, max_bytes: Any) -> Wish:
    """The definition with this key and table name, which have been checked."""
    shape = shape_of(model)
    limit = words.ROW if max_bytes is None else valid.number("max_bytes", max_bytes, least=1, most=words.LARGEST_ROW)
    columns = (*BOOKKEEPING, *shape.columns)
    made: OutputTable[Any] = OutputTable(
        key=key,
        table_name=name,
        kind=shape.kind,
        columns=columns,
        signature=signature(name, columns),
        model_digest=shape.model_digest,
        table=sql_table(name, columns),
        shape=shape,
        max_bytes=limit,
    )
    return Wish(made, shape, shape.json_schema)


def attached(key: str, table: Any, model: Any) -> Wish:
    """The handle of a table of the caller's making."""
    own = getattr(table, "__table__", table)
    if not isinstance(own, sa.Table):
        raise InvalidValue("table", f"expected a SQLAlchemy Table or declarative class, got {type(table).__name__}")
    name = naming.any_table_name("table", own.name)
    missing = [name for name in ("run_id", "node_id") if name not in own.c]
    if missing:
        raise SchemaMismatch(
            f"the table {own.name!r} lacks columns that outputs need",
            differences=[f"column {name}" for name in missing],
        )
    shape = None if model is None else shape_of(model)
    columns = tuple(_column(column, shape) for column in own.columns)
    made: OutputTable[Any] = OutputTable(
        key=key,
        table_name=name,
        kind="custom",
        columns=columns,
        signature=signature(name, columns),
        model_digest=None if shape is None else shape.model_digest,
        table=own,
        shape=shape,
    )
    return Wish(made, shape, None if shape is None else shape.json_schema)


def _column(column: sa.Column[Any], shape: Shape | None) -> OutputColumn:
    name = naming.any_table_name("column", column.name)
    fields = {} if shape is None else {known.name: known.field for known in shape.columns}
    field = None if name in words.BOOKKEEPING else fields.get(name, name)
    token = _token(name, column.type)
    return OutputColumn(name, field, token, nullable=bool(column.nullable), primary_key=column.primary_key)


def _token(column: str, kind: Any) -> Token:
    own = getattr(kind, "impl_instance", kind)
    found = next((token for base, token in _TOKENS if isinstance(own, base)), None)
    if found is None or isinstance(kind, sa.Interval | sa.PickleType) or getattr(own, "enum_class", None) is not None:
        accepted = "text, integers, floats, decimals, booleans, times, JSON and bytes"
        raise InvalidValue(
            column, f"outputs cannot be stored in a column of type {type(kind).__name__}: {accepted} can"
        )
    return found
