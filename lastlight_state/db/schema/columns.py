"""Portable column types: one Python value, stored in two forms, read back as an equal value.

=============  ==========================================  =====================
type           SQLite                                      Postgres
=============  ==========================================  =====================
`Text`         TEXT (binary order)                         TEXT COLLATE "C"
`Integer`      INTEGER                                     BIGINT
`Real`         REAL                                        DOUBLE PRECISION
`Flag`         INTEGER 0/1                                 BOOLEAN
`Boolean`      BOOLEAN, holding 0/1                        BOOLEAN
`Exact`        TEXT, digits as written                     NUMERIC
`Timestamp`    TEXT ``2026-02-03T12:34:56.789Z``           TIMESTAMPTZ
`Json`         TEXT                                        JSONB
`Bytes`        BLOB                                        BYTEA
=============  ==========================================  =====================

A column declared JSON would have NUMERIC affinity on SQLite and change numbers; hence TEXT.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.types import TypeDecorator, TypeEngine

from lastlight_state import codec
from lastlight_state.backends.facts import Form
from lastlight_state.clock import aware_utc, exact_iso_text, iso_text, iso_time, parse_foreign_time

_NO_LIMIT = 2**40


class IsoTimestamp(TypeDecorator[datetime]):
    """An aware UTC time as 24-character text, which sorts as time does."""

    impl = sa.Text
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return _time_text

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return read_time


class SpelledIsoTimestamp(IsoTimestamp):
    """A time in a table that other programs may write, read in any spelling. Statements must not compare it."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _read_spelled


class UtcTimestamp(TypeDecorator[datetime]):
    """An aware time that is read in UTC, whatever time zone the server's connection has."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else aware_utc("timestamp", value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return lambda value: value if value is None or value.tzinfo is UTC else value.astimezone(UTC)


class ExactIsoTimestamp(IsoTimestamp):
    """A time that is part of a key, stored as text. It keeps microseconds that another program wrote."""

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return lambda value: None if value is None else exact_iso_text(value)


class ExactUtcTimestamp(UtcTimestamp):
    """A time that is part of a key and keeps its microseconds."""

    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value


class TextJson(TypeDecorator[Any]):
    """JSON as text, encoded and decoded by `lastlight_state.codec`."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else codec.encode("json", value, max_bytes=_NO_LIMIT)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _read_json


class JsonbText(TextJson):
    """The text of a JSONB column, for statements on Postgres: a cast."""

    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return lambda text: None if text is None else codec.decode_jsonb(text)


class BinaryJson(TypeDecorator[Any]):
    """JSONB, written as text by `lastlight_state.codec`. The driver reads it by the same codec."""

    impl = postgresql.JSONB(none_as_null=True)
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return lambda value: None if value is None else codec.encode("json", value, max_bytes=_NO_LIMIT)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return None


class IntegerFlag(TypeDecorator[bool]):
    """A bool as 0 or 1. NULL is read as None; each column decides what None means."""

    impl = sa.Integer
    cache_ok = True

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value)

    def bind_processor(self, dialect: Dialect) -> Any:
        return lambda value: None if value is None else int(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return read_flag


class NumericFlag(IntegerFlag):
    """A bool stored as 0 or 1 in a column declared BOOLEAN, so that people see what it holds."""

    impl = sa.Boolean  # type: ignore[assignment]
    cache_ok = True


class TextDecimal(TypeDecorator[Decimal]):
    """A decimal as the text of its digits, so that its scale is kept."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | None:
        return None if value is None else format(value, "f")

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return _read_decimal


class ExactNumeric(TypeDecorator[Decimal]):
    """A decimal of any precision.

    The driver already returns decimals, so SQLAlchemy's check of the result is left out.
    """

    impl = sa.Numeric
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return None

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return None


class Float64(TypeDecorator[float]):
    """A float of 64 bits, without SQLAlchemy's result converter: both drivers return floats."""

    impl = sa.Double
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return None


class RawBytes(TypeDecorator[bytes]):
    """Bytes, without SQLAlchemy's converters: both drivers take and return bytes."""

    impl = sa.LargeBinary
    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> Any:
        return None

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return None


#: The column types for bytes.
BYTES = (sa.LargeBinary, RawBytes)


class CodePoints(sa.sql.expression.UnaryExpression[str]):
    """A text sorted by code points, whatever its column's collation. On SQLite every text is sorted so."""

    inherit_cache = True


@compiles(CodePoints, "postgresql")
def _compile_collation(element: CodePoints, compiler: SQLCompiler, **options: Any) -> str:
    return f'{compiler.process(element.element, **options)} COLLATE "C"'


@compiles(CodePoints)
def _as_it_is(element: CodePoints, compiler: SQLCompiler, **options: Any) -> str:
    return str(compiler.process(element.element, **options))


def in_code_points(column: sa.ColumnElement[str]) -> CodePoints:
    """Sort the column by code points, as `CodePoints` does, in a table that this library did not create."""
    return CodePoints(column)


#: The separators between the numbers of a stored time.
_MARKS = "--T::."


def read_time(text: str | None) -> datetime | None:
    """Parse the time in a stored text; None for NULL. Raises ValueError for a time in another spelling.

    Statements compare the stored texts, so another spelling would sort wrongly.
    """
    if text is None:
        return None
    if text[4:20:3] != _MARKS or text[23:] != "Z" or text[11:13] == "24":  # Python accepts the hour 24 from 3.14 on
        raise ValueError("not spelled as times are stored")
    return datetime.fromisoformat(text)


def _read_spelled(text: str | None) -> datetime | None:
    moment = parse_foreign_time(text)
    if moment is None and text is not None:
        raise ValueError("no time")
    return moment


def read_flag(stored: int | None) -> bool | None:
    """Return the bool of a stored 0 or 1, or None. Raises ValueError for another number."""
    if stored is None:
        return None
    if stored not in (0, 1):
        raise ValueError("neither true nor false")
    return stored == 1


def _read_decimal(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(str(text))  # a column with NUMERIC affinity returns floats
    except InvalidOperation as error:  # is not a ValueError
        raise ValueError("no decimal") from error


def _read_json(text: str | None) -> Any:
    return None if text is None else codec.decode(text)


def _time_texts() -> Callable[[datetime | None], str | None]:
    """Return a function that formats times and caches the last one, because one write usually repeats one time.

    Thread-safe: threads only replace each other's cached time.
    """
    last: tuple[datetime | None, str | None] = (None, None)

    def text_of(value: datetime | None) -> str | None:
        nonlocal last
        known, text = last
        if value is known:
            return text
        text = None if value is None else iso_text(value if value.tzinfo is UTC else aware_utc("timestamp", value))
        last = (value, text)
        return text

    return text_of


_time_text = _time_texts()


def key_type(column: sa.ColumnElement[Any]) -> Any:
    """Return the type of a parameter compared with values read from this column. Times keep microseconds."""
    return KeyTimestamp if isinstance(column.type, UtcTimestamp) else column.type


def parse_time(text: str) -> datetime:
    """Parse the time in a stored text, in UTC if it has no offset. Raises ValueError for other texts."""
    moment = iso_time(text)
    if moment.tzinfo is UTC:
        return moment
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


Text: TypeEngine[str] = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Integer: TypeEngine[int] = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Real: TypeEngine[float] = Float64().with_variant(sa.REAL(), "sqlite")
Flag: TypeEngine[bool] = sa.Boolean().with_variant(IntegerFlag(), "sqlite")
Boolean: TypeEngine[bool] = sa.Boolean().with_variant(NumericFlag(), "sqlite")
Exact: TypeEngine[Decimal] = ExactNumeric().with_variant(TextDecimal(), "sqlite")
Timestamp: TypeEngine[datetime] = UtcTimestamp().with_variant(IsoTimestamp(), "sqlite")
#: The types for parameters of keys: if a time lost its microseconds, a page could repeat rows or leave rows out.
KeyTimestamp: TypeEngine[datetime] = ExactUtcTimestamp().with_variant(ExactIsoTimestamp(), "sqlite")
#: The types for values that are only read: another program may spell them in its own way.
SpelledTimestamp: TypeEngine[datetime] = UtcTimestamp().with_variant(SpelledIsoTimestamp(), "sqlite")
Json: TypeEngine[Any] = BinaryJson().with_variant(TextJson(), "sqlite")
Bytes: TypeEngine[bytes] = RawBytes()

_FORMS: tuple[tuple[TypeEngine[Any], Form], ...] = (
    (Timestamp, "time"),
    (Json, "JSON"),
    (Flag, "flag"),
    (Boolean, "flag"),
    (Integer, "whole number"),
    (Real, "number"),
)


def form_of(column: sa.ColumnElement[Any]) -> Form | None:
    """Return the form in which a column stores its values if the database keeps any value; None for text and bytes."""
    kind = Json if isinstance(column.type, BinaryJson) else column.type  # true of a column that a codec may seal, too
    return next((form for ours, form in _FORMS if ours is kind), None)


#: The Python types that drivers return for these column types. A value of another type is damage: SQLite keeps whatever
#: plain SQL stores. Columns of types that are not named here are not checked.
_STORED: tuple[tuple[type[TypeEngine[Any]], tuple[type, ...]], ...] = (
    (IsoTimestamp, (str,)),
    (TextJson, (str,)),
    (IntegerFlag, (int,)),
    (UtcTimestamp, (datetime,)),
    (sa.Boolean, (bool, int)),
    (sa.Integer, (int,)),
    (sa.Text, (str,)),
    (sa.Float, (float, int)),
    (RawBytes, (bytes,)),
)


def stored_types(kind: TypeEngine[Any]) -> tuple[type, ...] | None:
    """Return the Python types that a driver returns for a column, in its dialect; None if any is accepted."""
    return next((types for ours, types in _STORED if isinstance(kind, ours)), None)


#: Parameters of these types arrive on the short path as text from `codec.encode` (`db.rows.statements`).
JSON_TYPES = (TextJson, BinaryJson)
