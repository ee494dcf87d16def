"""Checks of a caller's values, before any statement: each returns what is stored, or raises `InvalidValue`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar, get_args, overload

from lastlight_state import codec
from lastlight_state.errors import InvalidValue, NotFound, PayloadTooLarge, StateError

G = TypeVar("G")

PAGE_LIMIT = 500
_FIRST_PRINTABLE, _DELETE = " ", "\x7f"


def identifier(where: str, value: Any, max_bytes: int = 256) -> str:
    """A name or id: text that is not blank, without control characters, of at most ``max_bytes`` of UTF-8.

    Longer ones are `InvalidValue`, because they stand in indexes, whose entries Postgres bounds.
    """
    text = _text(where, value)
    if not text.strip():
        raise InvalidValue(where, "blank")
    if min(text) < _FIRST_PRINTABLE or _DELETE in text:
        raise InvalidValue(where, "control character")
    size = len(text.encode())
    if size > max_bytes:
        raise InvalidValue(where, f"{size} bytes, more than the limit of {max_bytes}", limit=max_bytes, actual=size)
    return text


@overload
def optional(where: str, value: None, max_bytes: int = ...) -> None: ...
@overload
def optional(where: str, value: str | None, max_bytes: int = ...) -> str | None: ...
def optional(where: str, value: str | None, max_bytes: int = 256) -> str | None:
    """An `identifier`, or None."""
    return None if value is None else identifier(where, value, max_bytes)


def content(where: str, value: Any, max_bytes: int, *, hint: str | None = None) -> str:
    """Free text, verbatim, empty allowed. Past ``max_bytes`` of UTF-8 it is `PayloadTooLarge`."""
    text = _text(where, value)
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_bytes:
        raise PayloadTooLarge(where, limit=max_bytes, actual=size, hint=hint)
    return text


def optional_content(where: str, value: str | None, max_bytes: int) -> str | None:
    """`content`, or None."""
    return None if value is None else content(where, value, max_bytes)


def word(where: str, value: Any, vocabulary: Collection[str]) -> str:
    """One of a closed set of words."""
    if not isinstance(value, str) or value not in vocabulary:
        raise InvalidValue(where, f"{value!r:.80} is not in the vocabulary", permitted=sorted(vocabulary))
    return value


def words(literal: Any) -> frozenset[str]:
    """The vocabulary that a ``Literal`` type spells out."""
    return frozenset(get_args(literal))


def several(where: str, values: Any) -> list[Any]:
    """The values of a sequence or set. One text is refused: its letters are a sequence, too."""
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidValue(where, f"several values are needed, not {type(values).__name__}")
    return list(values)


def number(where: str, value: Any, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number within bounds, both included. Booleans are none."""
    if type(value) is not int:
        raise InvalidValue(where, f"a whole number is needed, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidValue(where, f"{value} is not between {least} and {most}", least=least, most=most)
    return value


def flag(where: str, value: Any) -> bool:
    """True or False itself: no number, no text."""
    if type(value) is not bool:
        raise InvalidValue(where, "a truth value is needed")
    return value


def group(where: str, value: Any, kind: type[G]) -> G:
    """An argument group, such as a ``Trigger``: of this class and no other."""
    if not isinstance(value, kind):
        raise InvalidValue(where, f"a {kind.__name__} is needed, not {type(value).__name__}")
    return value


def not_found(kind: str, key: Any) -> StateError:
    """The error for a row that is not there: `InvalidValue` if no database could hold its key, else `NotFound`.

    One database refuses to look for such a key, the other finds nothing; so it is judged where nothing was found.
    """
    if isinstance(key, str):
        codec.check_text(kind, key)
    return NotFound(kind, key)


def sought(where: str, key: Any) -> str:
    """A key to look for where finding nothing is no error: `InvalidValue` if no database could hold it."""
    return _text(where, key)


def page_limit(value: Any) -> int:
    """The size of a page: 1 to 500."""
    return number("limit", value, least=1, most=PAGE_LIMIT)


def _text(where: str, value: Any) -> str:
    if type(value) is not str:
        raise InvalidValue(where, f"text is needed, not {type(value).__name__}")
    if not value.isascii() or "\0" in value:
        codec.check_text(where, value)
    return value
