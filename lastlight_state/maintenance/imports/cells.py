"""Converts values of other programs' rows for the library's tables.

Each value is checked like a new value; a refusal names it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.clock import parse_foreign_time
from lastlight_state.conversations.runtime import SOURCE
from lastlight_state.db import valid
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.lenient import ADAPTED, as_text, decode_json

# The part of a row that has no column here: unknown columns of the source, and values that a lenient import adapts.
# `SOURCE` has the unknown columns. `ADAPTED` has the texts of refused values, whose fields are then empty. `ESCAPED`
# names the fields that must have a text: there each character that no database stores is an escape such as ``\u0000``
# or ``\ud800``.

Row = dict[str, Any]

#: The key with the names of the fields that have escapes, and how many names it has at most.
ESCAPED, NAMED = "escaped", 100


class ExtraFields:
    """Collects the values of a foreign row that have no column in this library. ``noticed`` counts adapted values.

    Without ``lenient``, no value is adapted.
    """

    def __init__(self, noticed: Counter[str], *, lenient: bool) -> None:
        self.noticed = noticed
        self.lenient = lenient
        self.others: Row = {}
        self.texts: dict[str, str] = {}
        self.escaped: list[str] = []

    def instead(self, name: str, value: Any, check: Callable[[Any], Any], *, may_be_empty: bool) -> Any:
        """Return the replacement of a refused value: None if the column may be empty, else its text with escapes.

        Raises the error of ``check`` if the text is refused, too.
        """
        text = as_text(value)
        if may_be_empty:
            self.texts[name] = text
            found = None
        else:
            found = check(text)
            self.escaped.append(name)
        self.noticed[ADAPTED] += 1
        return found

    def keep(self, row: Row, placed: Collection[str]) -> None:
        """Collect the columns that are not in ``placed``. A text that is a JSON object or list is stored decoded."""
        for name, value in row.items():
            if name in placed or value is None:
                continue
            found = plain(value)
            try:
                codec.encode_bytes(name, found)
            except InvalidValue:
                if not self.lenient:
                    raise
                self.instead(name, value, lambda text: text, may_be_empty=True)
            else:
                self.others[name] = found

    def add_to(self, where: str, place: Any, max_bytes: int) -> Any:
        """Return ``place``, the value of a JSON column, with the collected values added.

        If ``place`` is not an object, or if the result would be too large, the columns are only counted. Raises
        `InvalidValue` if refused texts do not fit.
        """
        said: Row = {}
        if self.others:
            said[SOURCE] = self.others
        if self.texts:
            said[ADAPTED] = self.texts
        if self.escaped:
            said[ESCAPED] = self.escaped[:NAMED]
        if not said:
            return place
        whole = {**place, **said} if isinstance(place, dict) else said
        if place is None or isinstance(place, dict):
            try:
                codec.encode(where, whole, max_bytes=max_bytes)
            except InvalidValue:
                pass
            else:
                return whole
        if self.texts:
            raise InvalidValue(where, "has no room for the texts of values that are refused")
        self.leave()
        return place

    def leave(self) -> None:
        """Count the unknown columns that could not be stored."""
        for name in self.others:
            self.noticed[f"{name}_left"] += 1


def plain(value: Any) -> Any:
    """Return a column's value, decoded if it is JSON text of an object or list. Bytes become hex."""
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return codec.decode(value)
        except ValueError:
            return value
    return value


#: Checks a value, named by the first argument, and returns the value to store.
Check = Callable[[str, Any], Any]


def row_of(table: sa.Table, found: Row, checks: Mapping[str, Check], aside: ExtraFields) -> Row:
    """Return the checked columns of a foreign row as Python values. Columns that the source lacks are left out.

    If ``aside`` is lenient, it collects refused free texts, numbers and JSON values. Refused ids, words and times are
    errors.
    """
    where = f"{table.name} {found[table.primary_key.columns[0].name]!s:.80}"
    return {
        name: _check_cell(f"{where}.{name}", table.c[name], found[name], check, aside)
        for name, check in checks.items()
        if name in found
    }


def _check_cell(where: str, column: sa.Column[Any], value: Any, check: Check, aside: ExtraFields) -> Any:
    if value is None:
        if not column.nullable:
            raise InvalidValue(where, "must not be NULL")
        return None
    kind = getattr(check, "func", check)
    try:
        if kind is _json and aside.lenient:
            return check(where, codec.encode_bytes(where, decode_json(where, value, aside.noticed)))
        return check(where, value)
    except InvalidValue:
        if not aside.lenient or kind not in (_FREE if column.nullable else _TEXTS):
            raise
        again = partial(check, where)
        return aside.instead(column.name, value, again, may_be_empty=bool(column.nullable))


def name(max_bytes: int) -> Check:
    """Return a function that checks identifiers of at most ``max_bytes`` bytes."""
    return partial(valid.identifier, max_bytes=max_bytes)


def names(table: sa.Table, *columns: str) -> dict[str, Check]:
    """Return a function for each column that checks identifiers of at most the column's size."""
    most = vars(limits_of(table))
    return {column: name(most[column]) for column in columns}


def text(max_bytes: int) -> Check:
    """Return a function that checks free text of at most ``max_bytes`` bytes."""
    return partial(valid.content, max_bytes=max_bytes)


def json(max_bytes: int, kind: type = object) -> Check:
    """Return a function that decodes JSON text of at most ``max_bytes`` bytes and checks its type ``kind``."""
    return partial(_json, max_bytes, kind)


def _json(max_bytes: int, kind: type, where: str, value: Any) -> Any:
    try:
        found = codec.decode(value)
    except ValueError as error:
        raise InvalidValue(where, f"is not JSON: {error}") from None
    if not isinstance(found, kind):
        raise InvalidValue(where, f"expected {kind.__name__}, got {type(found).__name__}")
    codec.encode(where, found, max_bytes=max_bytes)
    return found


def error(max_bytes: int) -> Check:
    """Return a function that checks an error's text, and returns an object with the text as ``message``."""
    return partial(_error, max_bytes)


def _error(max_bytes: int, where: str, value: Any) -> dict[str, str]:
    return {"message": valid.content(where, value, max_bytes=max_bytes)}


def whole(where: str, value: Any) -> int:
    """Check a whole number of at most 64 bits, and return it."""
    return valid.number(where, value, least=-(2**63))


def real(where: str, value: Any) -> float:
    """Check a finite number, and return it as a float."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidValue(where, "expected a finite number")
    return float(value)


def flag(where: str, value: Any) -> bool:
    """Check a bool written as 0 or 1, and return it."""
    if value not in (0, 1):
        raise InvalidValue(where, "must be 0 or 1")
    return bool(value)


def time(where: str, value: Any) -> datetime:
    """Parse ISO text as a time, in UTC if the text names no zone."""
    moment = parse_foreign_time(value)
    if moment is None:
        raise InvalidValue(where, "expected a day and a time of day as ISO 8601 text")
    return moment


#: The checks of texts, and of all values that a lenient import may keep as text elsewhere.
_TEXTS = {valid.content}
_FREE = {*_TEXTS, _json, _error, whole, real, valid.number}
