"""Values of other programs' rows as our tables have them: each is checked by the rules of today, or refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.clock import spelled
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports.aside import Aside
from lastlight_state.maintenance.imports.lenient import decoded

Row = dict[str, Any]
#: Checks the value of a column, which is named first, and returns the value to store.
Check = Callable[[str, Any], Any]


def row_of(table: sa.Table, found: Row, checks: Mapping[str, Check], aside: Aside) -> Row:
    """The columns with a check of a foreign row, as Python values. Those that the source lacks are left out.

    What is refused and said in a free text, a number or JSON goes to a lenient ``aside``. Ids, words and times do not.
    """
    where = f"{table.name} {found[table.primary_key.columns[0].name]!s:.80}"
    return {
        name: _checked(f"{where}.{name}", table.c[name], found[name], check, aside)
        for name, check in checks.items()
        if name in found
    }


def _checked(where: str, column: sa.Column[Any], value: Any, check: Check, aside: Aside) -> Any:
    if value is None:
        if not column.nullable:
            raise InvalidValue(where, "must not be NULL")
        return None
    kind = getattr(check, "func", check)
    try:
        if kind is _json and aside.lenient:
            return check(where, codec.encode_bytes(where, decoded(where, value, aside.noticed)))
        return check(where, value)
    except InvalidValue:
        if not aside.lenient or kind not in (_FREE if column.nullable else _TEXTS):
            raise
        again = partial(check, where)
        return aside.instead(column.name, value, again, may_be_empty=bool(column.nullable))


def name(max_bytes: int) -> Check:
    """An identifier of so many bytes."""
    return partial(valid.identifier, max_bytes=max_bytes)


def names(table: sa.Table, *columns: str) -> dict[str, Check]:
    """Return the checks of these columns, each an identifier up to its limit."""
    most = vars(limits_of(table))
    return {column: name(most[column]) for column in columns}


def text(max_bytes: int) -> Check:
    """Free text of so many bytes."""
    return partial(valid.content, max_bytes=max_bytes)


def json(max_bytes: int, kind: type = object) -> Check:
    """A value of JSON text of so many bytes; ``kind`` is the type that it must have."""
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
    """The text of an error, as an object with its message."""
    return partial(_error, max_bytes)


def _error(max_bytes: int, where: str, value: Any) -> dict[str, str]:
    return {"message": valid.content(where, value, max_bytes=max_bytes)}


def whole(where: str, value: Any) -> int:
    """A whole number."""
    return valid.number(where, value, least=-(2**63))


def real(where: str, value: Any) -> float:
    """A finite number."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidValue(where, "expected a finite number")
    return float(value)


def flag(where: str, value: Any) -> bool:
    """A bool that is written as 0 or 1."""
    if value not in (0, 1):
        raise InvalidValue(where, "must be 0 or 1")
    return bool(value)


def time(where: str, value: Any) -> datetime:
    """A time of ISO text, which is UTC if it names no zone."""
    moment = spelled(value)
    if moment is None:
        raise InvalidValue(where, "expected a day and a time of day as ISO 8601 text")
    return moment


#: The checks of what may be kept as text elsewhere, and of those the ones of texts.
_TEXTS = {valid.content}
_FREE = {*_TEXTS, _json, _error, whole, real, valid.number}
