"""Reading of a table's rows in a form that is equal on every database, for digests and checks of target limits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.base import Backend
from lastlight_state.clock import iso_text
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData, InvalidValue
from lastlight_state.maintenance.copy.tables import CopiedTable, Row, Subject, batches, is_json

# Converts values of one database for the other database's driver, by column. Most values need no conversion.

Convert = Callable[[Any], Any]

#: The length of a time in SQLite's texts, and its suffix.
_LENGTH, _UTC = 24, "Z"


def conversion(subject: Subject, source: Backend, target: Backend) -> Callable[[Sequence[Row]], Sequence[Row]]:
    """Return a function that converts rows as the source's driver returns them to what the target's driver accepts."""
    if source.name == target.name:
        return lambda rows: rows
    kinds = _TO_SQLITE if target.large_values_in_rows else _TO_POSTGRES
    converts = [(i, convert) for i, column in enumerate(subject.columns) if (convert := _of(column, kinds)) is not None]
    return (lambda rows: [_convert_row(row, converts) for row in rows]) if converts else (lambda rows: rows)


def _convert_row(row: Row, converts: Sequence[tuple[int, Convert]]) -> Row:
    made = list(row)
    for i, convert in converts:
        if made[i] is not None:
            made[i] = convert(made[i])
    return made


def _of(column: sa.Column[Any], kinds: Sequence[tuple[type, Convert]]) -> Convert | None:
    if is_json(column):
        return next((convert for kind, convert in kinds if kind is columns.BinaryJson), None)
    return next((convert for kind, convert in kinds if isinstance(column.type, kind)), None)


def _time_for_postgres(text: str) -> Any:
    """Convert a time for Postgres, which parses the library's own form itself.

    A time without a zone is taken as UTC.
    """
    return text if len(text) == _LENGTH and text[-1] == _UTC else parse_time(text)


def _time_text(moment: datetime) -> str:
    return iso_text(moment)


def _json_text(text: str) -> str:
    """Return JSON text in this library's form. Postgres returns JSON with additional blanks."""
    return codec.encode_sound(codec.decode_jsonb(text)).decode()


def _decimal_text(value: Decimal) -> str:
    return format(value, "f")


_TO_POSTGRES: tuple[tuple[type, Convert], ...] = ((columns.UtcTimestamp, _time_for_postgres),)
_TO_SQLITE: tuple[tuple[type, Convert], ...] = (
    (columns.UtcTimestamp, _time_text),
    (columns.BinaryJson, _json_text),
    (columns.ExactNumeric, _decimal_text),
    (sa.Boolean, int),
)


#: How many rows are decoded together.
_ROWS = 500
#: How many problem rows of one table are named.
MOST_NAMED = 20

_MODULUS = 2**256
_NO_LIMIT = 2**40
#: The depth limit for checking JSON: deeper than this library writes it, but not deeper than the codec can.
_DEEPEST = 200

#: Returns the reason why the target cannot hold a row, else None. No such function is needed if the target holds
#: everything.
Judge = Callable[[Subject, Row], str | None]


class Content:
    """The number and digest of a table's rows. ``problems`` are rows that cannot be read or copied."""

    def __init__(self, subject: Subject) -> None:
        self._name = subject.name
        self._sum = 0
        self.rows = 0
        self.problems: list[str] = []

    def add(self, form: bytes) -> None:
        """Count a row, and add its canonical form to the digest."""
        self.rows += 1
        self._sum += int.from_bytes(hashlib.sha256(form).digest(), "big")

    def refuse(self, problem: str) -> None:
        """Record a row that cannot be copied."""
        self.rows += 1
        if len(self.problems) < MOST_NAMED:
            self.problems.append(problem)

    def result(self) -> CopiedTable:
        return CopiedTable(name=self._name, rows=self.rows, digest=f"{self._sum % _MODULUS:064x}")


def content(unit: Unit, subject: Subject, judge: Judge | None = None, *, without: str | None = None) -> Content:
    """Read a whole table. The row with the key ``without`` is ignored."""
    found = Content(subject)
    try:
        for key, form in forms(unit, subject, judge):
            if isinstance(form, str):
                found.refuse(form)
            elif [without] != key:
                found.add(form)
    except ValueError as error:  # a value that the driver cannot load, such as the time "infinity"
        found.refuse(f"{subject.name}: a value cannot be read: {error}")
    return found


def forms(unit: Unit, subject: Subject, judge: Judge | None = None) -> Iterator[tuple[list[Any], bytes | str]]:
    """Yield the key and canonical form of each row in key order.

    For a bad row, yield a text that describes the problem.
    """
    reading = subject.compiled_select(unit)
    for batch in batches(subject.stream(unit), _ROWS):
        for row, values in zip(batch, reading.readable(batch), strict=True):
            key = subject.key(row)
            if isinstance(values, CorruptData):
                yield key, str(values)
                continue
            problem = judge(subject, row) if judge is not None else None
            yield key, f"{subject.name} {key_text(key)}: {problem}" if problem else canonical(values)


def not_for_postgres(subject: Subject, row: Row) -> str | None:
    """Return what Postgres would refuse or change in a row of SQLite: NUL, lone surrogates, long integers.

    None if nothing.
    """
    for column, value in zip(subject.columns, row, strict=True):
        if value.__class__ is str and ("\0" in value or "\\u" in value or _may_be_rounded(column, value)):
            problem = _problem(column, value)
            if problem:
                return problem
    return None


def canonical(values: dict[str, Any]) -> bytes:
    """Return the bytes by which rows are compared, from Python values by column. They are equal on every database."""
    return codec.canonical({name: _portable(value) for name, value in values.items()})


def key_text(key: list[Any]) -> str:
    """Return a row's key as text."""
    return repr(key[0]) if len(key) == 1 else repr(tuple(key))


def _problem(column: sa.Column[Any], text: str) -> str | None:
    """Return the problem with a value for Postgres, or None.

    A backslash escape is checked only in JSON. In other texts it is six ordinary characters.
    """
    try:
        codec.check_text(column.name, text)
        if is_json(column):
            value = codec.decode(text)
            if codec.canonical(value) != codec.canonical(codec.decode_jsonb(text)):
                return f"{column.name}: an integer beyond 64 bits that Postgres gives back as a float"
            if "\\u" in text:
                codec.encode(column.name, value, max_bytes=_NO_LIMIT, max_depth=_DEEPEST)
    except InvalidValue as error:
        return str(error)
    return None


def _may_be_rounded(column: sa.Column[Any], text: str) -> bool:
    return is_json(column) and codec.may_hold_long_integers(text.encode("utf-8", "replace"))


def _portable(value: Any) -> Any:
    kind = value.__class__
    if kind is datetime:
        return iso_text(value)
    if kind is bytes:
        return value.hex()
    return codec.exact_text(value) if kind is Decimal else value
