"""What callers say about conversations, checked and as statements name it."""

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
#: Checks an argument, which is named first, and returns the value to store.
Check = Callable[[str, Any], Any]


def name(where: str, value: Any, most: int) -> str | None:
    """Return a name, id or path of at most ``most`` bytes, or None."""
    return None if value is None else valid.identifier(where, value, most)


def of(table: sa.Table, *names: str) -> dict[str, Check]:
    """Return the checks of these columns by their names: of a name or an object, each up to its limit."""
    most = vars(limits_of(table))
    return {one: partial(encoded if form_of(table.c[one]) == "JSON" else name, most=most[one]) for one in names}


def encoded(where: str, value: Any, most: int) -> str | None:
    """Return an object as JSON text, or None."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidValue(where, f"expected an object, got {type(value).__name__}")
    return codec.encode(where, value, max_bytes=most)


def content(where: str, value: Any) -> str:
    """Return any JSON but None, as text."""
    if value is None:
        raise InvalidValue(where, "must not be None")
    return codec.encode(where, value, max_bytes=_MESSAGE.content)


def created(where: str, value: Any, now: datetime) -> tuple[datetime, float | None]:
    """Return a time of the caller's, and the number that said it: a datetime, Unix seconds, or None for now."""
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
    """Return a time, or None."""
    return None if value is None else aware_utc(where, value)


def fields(where: str, given: Any, of: Mapping[str, Check]) -> Row:
    """Return the fields of an argument group, each by its check."""
    return {key: check(f"{where}.{key}", getattr(given, key)) for key, check in of.items()}


def batch(where: str, given: Any, most: int) -> Sequence[Any]:
    """Return a sequence of at most so many, which is no text."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidValue(where, f"expected a sequence, got {type(given).__name__}")
    valid.at_most(where, given, most)
    return given


def message_ids(where: str, given: Any, most: int) -> list[str]:
    """Return ids of messages, in their order, repetitions included."""
    return [valid.identifier(f"{where}[{i}]", one, _MESSAGE.id) for i, one in enumerate(batch(where, given, most))]


def kind(where: str, value: Any) -> str | None:
    """Return what a session runs, or None."""
    return None if value is None else valid.word(where, value, words.INVOCATION_KINDS)


def source(where: str, value: Any) -> str | None:
    """Return where a session comes from, or None."""
    return None if value is None else valid.word(where, value, words.SOURCE_KINDS)


def vector(where: str, value: Any) -> bytes:
    """Return the bytes of a vector."""
    return similarity.packed(where, value, most=words.DIMENSIONS)


def embedding(where: str, value: Any) -> bytes | None:
    """Return the bytes of an embedding, or None."""
    return None if value is None else similarity.packed(where, value, most=words.DIMENSIONS)
