"""What a table holds, in a form that is the same on every database: its digest, and what another one cannot hold."""

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

# Values of one database as the other one's driver takes them, column by column; most travel as they are.

Convert = Callable[[Any], Any]

#: The length of a time as SQLite's texts have it, and its end.
_LENGTH, _UTC = 24, "Z"


def conversion(subject: Subject, source: Backend, target: Backend) -> Callable[[Sequence[Row]], Sequence[Row]]:
    """Return what makes rows of the source's driver rows of the target's."""
    if source.name == target.name:
        return lambda rows: rows
    kinds = _TO_SQLITE if target.large_values_in_rows else _TO_POSTGRES
    converts = [(i, convert) for i, column in enumerate(subject.columns) if (convert := _of(column, kinds)) is not None]
    return (lambda rows: [_converted(row, converts) for row in rows]) if converts else (lambda rows: rows)


def _converted(row: Row, converts: Sequence[tuple[int, Convert]]) -> Row:
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
    """Return a time for Postgres, which reads the usual form itself; another program's without a zone is UTC."""
    return text if len(text) == _LENGTH and text[-1] == _UTC else parse_time(text)


def _time_text(moment: datetime) -> str:
    return iso_text(moment)


def _json_text(text: str) -> str:
    """JSON in the form in which this library writes it: Postgres puts blanks into it."""
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


#: Rows that are decoded at once.
_ROWS = 500
#: How many rows of one table are named.
MOST_NAMED = 20

_MODULUS = 2**256
_NO_LIMIT = 2**40
#: Deeper than this library writes JSON, and no deeper than the codec can write it.
_DEEPEST = 200

#: Says of a row what the target cannot hold, by column; None for a target that holds whatever the source does.
Judge = Callable[[Subject, Row], str | None]


class Content:
    """The rows of a table, counted and digested. ``problems`` are those that cannot be read, or not be copied."""

    def __init__(self, subject: Subject) -> None:
        self._name = subject.name
        self._sum = 0
        self.rows = 0
        self.problems: list[str] = []

    def add(self, form: bytes) -> None:
        """Count a row by its canonical form."""
        self.rows += 1
        self._sum += int.from_bytes(hashlib.sha256(form).digest(), "big")

    def refuse(self, problem: str) -> None:
        """Note a row that cannot be copied."""
        self.rows += 1
        if len(self.problems) < MOST_NAMED:
            self.problems.append(problem)

    def result(self) -> CopiedTable:
        return CopiedTable(name=self._name, rows=self.rows, digest=f"{self._sum % _MODULUS:064x}")


def content(unit: Unit, subject: Subject, judge: Judge | None = None, *, without: str | None = None) -> Content:
    """Read a whole table. The row of the key ``without`` is left out."""
    found = Content(subject)
    try:
        for key, form in forms(unit, subject, judge):
            if isinstance(form, str):
                found.refuse(form)
            elif [without] != key:
                found.add(form)
    except ValueError as error:  # what a driver cannot load, such as the time "infinity"
        found.refuse(f"{subject.name}: a value cannot be read: {error}")
    return found


def forms(unit: Unit, subject: Subject, judge: Judge | None = None) -> Iterator[tuple[list[Any], bytes | str]]:
    """Yield each row's key and canonical form by key, or in its place a text that says what is wrong."""
    reading = subject.reading(unit)
    for batch in batches(subject.stream(unit), _ROWS):
        for row, values in zip(batch, reading.readable(batch), strict=True):
            key = subject.key(row)
            if isinstance(values, CorruptData):
                yield key, str(values)
                continue
            problem = judge(subject, row) if judge is not None else None
            yield key, f"{subject.name} {shown(key)}: {problem}" if problem else canonical(values)


def not_for_postgres(subject: Subject, row: Row) -> str | None:
    """Return what Postgres refuses or changes in a row of SQLite: NUL, halves of surrogate pairs, long integers."""
    for column, value in zip(subject.columns, row, strict=True):
        if value.__class__ is str and ("\0" in value or "\\u" in value or _may_be_rounded(column, value)):
            problem = _problem(column, value)
            if problem:
                return problem
    return None


def canonical(values: dict[str, Any]) -> bytes:
    """Return the form in which rows are compared, of Python values by column: equal on every database."""
    return codec.canonical({name: _portable(value) for name, value in values.items()})


def shown(key: list[Any]) -> str:
    """Return a key in words."""
    return repr(key[0]) if len(key) == 1 else repr(tuple(key))


def _problem(column: sa.Column[Any], text: str) -> str | None:
    """Return what is wrong with a value.

    An escape means a character in JSON alone: in other texts it is six characters.
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
