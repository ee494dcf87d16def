"""Checks of callers' arguments about conversations. Each returns the value to store, or raises `InvalidValue`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from typing import Any, TypeVar

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.conversations import similarity, words
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.db import valid
from lastlight_state.db.schema.columns import form_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue

_MESSAGE = limits_of(MESSAGES)

T = TypeVar("T")

Row = dict[str, Any]
#: A function that checks a value and returns the value to store. Its first argument is the name used in errors.
Check = Callable[[str, Any], Any]


def name(where: str, value: Any, most: int) -> str | None:
    """Check a name, id or path of at most ``most`` bytes, and return it. None is allowed."""
    return None if value is None else valid.identifier(where, value, most)


def of(table: sa.Table, *names: str) -> dict[str, Check]:
    """Return a check for each named column of a table: `encode_object` for JSON columns, else `name`.

    Each has the column's size limit.
    """
    most = vars(limits_of(table))
    return {one: partial(encode_object if form_of(table.c[one]) == "JSON" else name, most=most[one]) for one in names}


def encode_object(where: str, value: Any, most: int) -> str | None:
    """Check an object (dict) and return it as JSON text of at most ``most`` bytes. None is allowed."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidValue(where, f"expected an object, got {type(value).__name__}")
    return codec.encode(where, value, max_bytes=most)


def content(where: str, value: Any) -> str:
    """Check a message's content, any JSON value but None, and return it as JSON text."""
    if value is None:
        raise InvalidValue(where, "must not be None")
    return codec.encode(where, value, max_bytes=_MESSAGE.content)


def creation_time(where: str, value: Any, now: datetime) -> tuple[datetime, float | None]:
    """Check a time of creation: a datetime, Unix seconds, or None for now.

    Returns the time, and the caller's Unix seconds or None.
    """
    if value is None:
        return now, None
    if isinstance(value, datetime):
        return aware_utc(where, value), None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(where, f"expected a time or Unix seconds, got {type(value).__name__}")
    try:
        exact = float(value)
        if not isfinite(exact):
            raise InvalidValue(where, "expected a finite number, got NaN or infinity")
        return aware_utc(where, datetime.fromtimestamp(exact, UTC)), exact
    except (OverflowError, ValueError, OSError):
        raise InvalidValue(where, "must be within the years 1 to 9999") from None


def optional_time(where: str, value: Any) -> datetime | None:
    """Check a time with a time zone, and return it in UTC. None is allowed."""
    return None if value is None else aware_utc(where, value)


def fields(where: str, given: Any, of: Mapping[str, Check]) -> Row:
    """Apply a check to each named field of an argument group, and return the values by field name."""
    return {key: check(f"{where}.{key}", getattr(given, key)) for key, check in of.items()}


def batch(where: str, given: Any, most: int) -> Sequence[Any]:
    """Check a sequence, other than a text, of at most ``most`` items, and return it."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidValue(where, f"expected a sequence, got {type(given).__name__}")
    valid.at_most(where, given, most)
    return given


def message_ids(where: str, given: Any, most: int) -> list[str]:
    """Check at most ``most`` message ids, and return them in order, repetitions included."""
    return [valid.identifier(f"{where}[{i}]", one, _MESSAGE.id) for i, one in enumerate(batch(where, given, most))]


def kind(where: str, value: Any) -> str | None:
    """Check the word for what a session runs (`words.INVOCATION_KINDS`), and return it. None is allowed."""
    return None if value is None else valid.word(where, value, words.INVOCATION_KINDS)


def source(where: str, value: Any) -> str | None:
    """Check the word for a session's source (`words.SOURCE_KINDS`), and return it. None is allowed."""
    return None if value is None else valid.word(where, value, words.SOURCE_KINDS)


def vector(where: str, value: Any) -> bytes:
    """Check a query vector of at most `words.DIMENSIONS` numbers, and return it as bytes."""
    return similarity.pack_vector(where, value, most=words.DIMENSIONS)


def embedding(where: str, value: Any) -> bytes | None:
    """Check an embedding of at most `words.DIMENSIONS` numbers, and return it as bytes. None is allowed."""
    return None if value is None else similarity.pack_vector(where, value, most=words.DIMENSIONS)
