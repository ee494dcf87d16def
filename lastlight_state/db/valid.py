"""Checks of a caller's values, made before any statement runs.

Each function returns the value to store, or raises `InvalidValue` with the name of the argument.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sized
from datetime import timedelta
from typing import Any, TypeVar, get_args, overload

from lastlight_state import codec
from lastlight_state.errors import InvalidValue, NotFound, PayloadTooLarge, StateError
from lastlight_state.ids import SESSION_ID
from lastlight_state.reprs import repr_of

G = TypeVar("G")

PAGE_LIMIT = 500
#: The most seconds that a call waits.
LONGEST_WAIT = 86_400
_FIRST_PRINTABLE, _DELETE = " ", "\x7f"


def identifier(where: str, value: Any, max_bytes: int = 256) -> str:
    """Check a name or id: text that is not blank, without control characters, at most ``max_bytes`` of UTF-8.

    Return it. Names are stored in indexes, and Postgres limits the size of an index entry.
    """
    if type(value) is str and value.isascii() and value.isprintable() and len(value) <= max_bytes and value.strip():
        return value
    text = _text(where, value)
    if not text.strip():
        raise InvalidValue(where, "must not be blank")
    if min(text) < _FIRST_PRINTABLE or _DELETE in text:
        raise InvalidValue(where, "must not contain control characters")
    size = len(text.encode())
    if size > max_bytes:
        raise InvalidValue(where, f"{size} bytes, more than the limit of {max_bytes}", limit=max_bytes, actual=size)
    return text


def is_identifier(value: Any, max_bytes: int = 256) -> bool:
    """True if a value would be accepted by `identifier`."""
    try:
        identifier("value", value, max_bytes)
    except InvalidValue:
        return False
    return True


@overload
def optional(where: str, value: None, max_bytes: int = ...) -> None: ...
@overload
def optional(where: str, value: str | None, max_bytes: int = ...) -> str | None: ...
def optional(where: str, value: str | None, max_bytes: int = 256) -> str | None:
    """Check a value as `identifier` does, or return None for None."""
    return None if value is None else identifier(where, value, max_bytes)


def session_id(where: str, value: Any) -> str:
    """Check the id of an agent session, which must be usable in the name of the session's log file. Return it."""
    text = _text(where, value)
    if not SESSION_ID.fullmatch(text):
        rule = "must be 1 to 200 of A-Z a-z 0-9 _ -, because it names a file"
        raise InvalidValue(where, rule, limit=200, actual=len(text))
    return text


def content(where: str, value: Any, max_bytes: int, *, hint: str | None = None) -> str:
    """Check free text, which may be empty, and return it unchanged.

    Raises `PayloadTooLarge` beyond ``max_bytes`` of UTF-8.
    """
    text = _text(where, value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        raise PayloadTooLarge(where, limit=max_bytes, actual=size, hint=hint)
    return text


def optional_content(where: str, value: str | None, max_bytes: int) -> str | None:
    """Check a text as `content` does, or return None for None."""
    return None if value is None else content(where, value, max_bytes)


def word(where: str, value: Any, vocabulary: Collection[str]) -> str:
    """Check that a word is in a closed vocabulary. Return it."""
    if not isinstance(value, str) or value not in vocabulary:
        raise InvalidValue(where, f"expected a known word, got {repr_of(value, 80)}", permitted=sorted(vocabulary))
    return value


def words(literal: Any) -> frozenset[str]:
    """Return the words that a ``Literal`` type lists."""
    return frozenset(get_args(literal))


def several(where: str, values: Any) -> list[Any]:
    """Check that a value is a sequence or set. Return its values as a list.

    A text is refused, because it would be treated as a list of letters.
    """
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidValue(where, f"expected a list of values, got {type(values).__name__}")
    return list(values)


def at_most(where: str, values: Sized, limit: int) -> None:
    """Raise `InvalidValue` for more than ``limit`` values."""
    if len(values) > limit:
        raise InvalidValue(
            where, f"{len(values)} values, more than the limit of {limit}", limit=limit, actual=len(values)
        )


def number(where: str, value: Any, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """Check that a value is a whole number from ``least`` to ``most``. Return it. A bool is refused."""
    if type(value) is not int:
        raise InvalidValue(where, f"expected a whole number, got {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidValue(
            where, f"must be between {least} and {most}, got {repr_of(value, 80)}", least=least, most=most
        )
    return value


def duration(where: str, value: Any, *, least: timedelta = timedelta(0), most: timedelta = timedelta.max) -> timedelta:
    """Check that a value is a `timedelta` from ``least`` to ``most``. Return it."""
    if not isinstance(value, timedelta):
        raise InvalidValue(where, f"expected a timedelta, got {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidValue(where, f"must be between {least} and {most}, got {value}", least=least, most=most)
    return value


def seconds(where: str, value: Any) -> float:
    """Check the number of seconds, at most a day, that a call may wait. Return it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(where, f"expected a number of seconds, got {type(value).__name__}")
    if not 0 <= value <= LONGEST_WAIT:
        raise InvalidValue(where, f"must be between 0 and {LONGEST_WAIT} seconds, got {repr_of(value, 80)}")
    return float(value)


def callback(where: str, value: Any) -> Callable[..., Any]:
    """Check that a value is a function or another callable object. Return it."""
    if not callable(value):
        raise InvalidValue(where, f"expected a callable, got {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def stop(value: Any) -> threading.Event:
    """Return the event that ends a follower. Without an event, return a new one that is never set."""
    if value is None:
        return threading.Event()
    if not isinstance(value, threading.Event):
        raise InvalidValue("stop", f"expected a threading.Event, got {type(value).__name__}")
    return value


def flag(where: str, value: Any) -> bool:
    """Check that a value is a bool, not a number or text. Return it."""
    if type(value) is not bool:
        raise InvalidValue(where, "must be True or False")
    return value


def argument_group(where: str, value: Any, kind: type[G]) -> G:
    """Check that a value is an argument group of the class ``kind``, such as a ``Trigger``. Return it."""
    if not isinstance(value, kind):
        raise InvalidValue(where, f"expected a {kind.__name__}, got {type(value).__name__}")
    return value


def not_found(kind: str, key: Any) -> StateError:
    """Return the error for a missing row: `NotFound`, or `InvalidValue` if no database can store its key.

    For such a key, Postgres raises an error and SQLite finds nothing. This check makes both raise the same error.
    """
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, str):
            codec.check_text(kind, part)
        elif part is None:
            return InvalidValue(kind, "expected a key, got None")
    return NotFound(kind, key)


def lookup_text(where: str, key: Any) -> str:
    """Check a text to search for. Return it.

    A text that is not found is no error, but a text that no database can store raises `InvalidValue`.
    """
    return key if type(key) is str and key.isascii() and "\0" not in key else _text(where, key)


def are_storable(*texts: Any) -> bool:
    """True if databases can store all these texts. If one cannot be stored, no row with it exists.

    Values that are not texts count as storable, so that the called method itself refuses their type.
    """
    try:
        for one in texts:
            if isinstance(one, str):
                _text("text", str(one))
    except InvalidValue:
        return False
    return True


def page_limit(value: Any) -> int:
    """Check the size of a page, from 1 to 500. Return it."""
    return number("limit", value, least=1, most=PAGE_LIMIT)


def _text(where: str, value: Any) -> str:
    if type(value) is not str:
        raise InvalidValue(where, f"expected text, got {type(value).__name__}")
    if not value.isascii() or "\0" in value:
        codec.check_text(where, value)
    return value
