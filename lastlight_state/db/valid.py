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
from lastlight_state.reprs import shown

G = TypeVar("G")

PAGE_LIMIT = 500
#: The most seconds that a call waits.
LONGEST_WAIT = 86_400
_FIRST_PRINTABLE, _DELETE = " ", "\x7f"


def identifier(where: str, value: Any, max_bytes: int = 256) -> str:
    """Return a name or id: text that is not blank, without control characters, of at most ``max_bytes`` of UTF-8.

    Names stand in indexes, and Postgres limits the size of an index entry.
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
    """True if a value is an `identifier`."""
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
    """Return an `identifier`, or None."""
    return None if value is None else identifier(where, value, max_bytes)


def session_id(where: str, value: Any) -> str:
    """Return the id of an agent session. It must be fit for the name of the session's log file."""
    text = _text(where, value)
    if not SESSION_ID.fullmatch(text):
        rule = "must be 1 to 200 of A-Z a-z 0-9 _ -, because it names a file"
        raise InvalidValue(where, rule, limit=200, actual=len(text))
    return text


def content(where: str, value: Any, max_bytes: int, *, hint: str | None = None) -> str:
    """Return free text unchanged; it may be empty. Raises `PayloadTooLarge` beyond ``max_bytes`` of UTF-8."""
    text = _text(where, value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        raise PayloadTooLarge(where, limit=max_bytes, actual=size, hint=hint)
    return text


def optional_content(where: str, value: str | None, max_bytes: int) -> str | None:
    """Return `content`, or None."""
    return None if value is None else content(where, value, max_bytes)


def word(where: str, value: Any, vocabulary: Collection[str]) -> str:
    """Return a word that must be in a closed vocabulary."""
    if not isinstance(value, str) or value not in vocabulary:
        raise InvalidValue(where, f"expected a known word, got {shown(value, 80)}", permitted=sorted(vocabulary))
    return value


def words(literal: Any) -> frozenset[str]:
    """Return the words that a ``Literal`` type lists."""
    return frozenset(get_args(literal))


def several(where: str, values: Any) -> list[Any]:
    """Return the values of a sequence or set, as a list.

    A single text is refused, because it would be taken for a list of letters.
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
    """Return a whole number from ``least`` to ``most``. A bool is refused."""
    if type(value) is not int:
        raise InvalidValue(where, f"expected a whole number, got {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidValue(where, f"must be between {least} and {most}, got {shown(value, 80)}", least=least, most=most)
    return value


def duration(where: str, value: Any, *, least: timedelta = timedelta(0), most: timedelta = timedelta.max) -> timedelta:
    """Return a `timedelta` from ``least`` to ``most``."""
    if not isinstance(value, timedelta):
        raise InvalidValue(where, f"expected a timedelta, got {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidValue(where, f"must be between {least} and {most}, got {value}", least=least, most=most)
    return value


def seconds(where: str, value: Any) -> float:
    """Return a number of seconds, up to a day, for the time that a call waits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(where, f"expected a number of seconds, got {type(value).__name__}")
    if not 0 <= value <= LONGEST_WAIT:
        raise InvalidValue(where, f"must be between 0 and {LONGEST_WAIT} seconds, got {shown(value, 80)}")
    return float(value)


def callback(where: str, value: Any) -> Callable[..., Any]:
    """Return a function, or another object that can be called."""
    if not callable(value):
        raise InvalidValue(where, f"expected a callable, got {type(value).__name__}")
    return value  # type: ignore[no-any-return]


def stop(value: Any) -> threading.Event:
    """Return the event that ends a follower; without an event, a new one that nobody sets."""
    if value is None:
        return threading.Event()
    if not isinstance(value, threading.Event):
        raise InvalidValue("stop", f"expected a threading.Event, got {type(value).__name__}")
    return value


def flag(where: str, value: Any) -> bool:
    """Return a bool. Numbers and texts are refused."""
    if type(value) is not bool:
        raise InvalidValue(where, "must be True or False")
    return value


def group(where: str, value: Any, kind: type[G]) -> G:
    """Return an argument group, such as a ``Trigger``. It must be an instance of ``kind``."""
    if not isinstance(value, kind):
        raise InvalidValue(where, f"expected a {kind.__name__}, got {type(value).__name__}")
    return value


def not_found(kind: str, key: Any) -> StateError:
    """Return the error for a missing row: `NotFound`, or `InvalidValue` if no database can hold its key.

    Postgres refuses such a key and SQLite finds nothing; this check makes both raise the same error.
    """
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, str):
            codec.check_text(kind, part)
        elif part is None:
            return InvalidValue(kind, "expected a key, got None")
    return NotFound(kind, key)


def sought(where: str, key: Any) -> str:
    """Return a text to search for.

    Finding nothing is no error; a text that no database can hold raises `InvalidValue`.
    """
    return key if type(key) is str and key.isascii() and "\0" not in key else _text(where, key)


def are_storable(*texts: Any) -> bool:
    """True if databases can hold all these texts. If one cannot be held, no row with it exists.

    Values that are not texts count as storable, so that the call itself refuses their type.
    """
    try:
        for one in texts:
            if isinstance(one, str):
                _text("text", str(one))
    except InvalidValue:
        return False
    return True


def page_limit(value: Any) -> int:
    """Return the size of a page, from 1 to 500."""
    return number("limit", value, least=1, most=PAGE_LIMIT)


def _text(where: str, value: Any) -> str:
    if type(value) is not str:
        raise InvalidValue(where, f"expected text, got {type(value).__name__}")
    if not value.isascii() or "\0" in value:
        codec.check_text(where, value)
    return value
