"""Values of one database as the other one's driver takes them, column by column; most travel as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.base import Backend
from lastlight_state.clock import iso_text
from lastlight_state.db import columns
from lastlight_state.db.columns import parse_time
from lastlight_state.maintenance.copy.subjects import Row, Subject, is_json

Convert = Callable[[Any], Any]

#: The length of a time as SQLite's texts have it, and its end.
_LENGTH, _UTC = 24, "Z"


def conversion(subject: Subject, source: Backend, target: Backend) -> Callable[[Sequence[Row]], Sequence[Row]]:
    """What makes rows of the source's driver rows of the target's."""
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
    """Postgres reads the usual form itself; what another program wrote may have no zone, and means UTC."""
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
