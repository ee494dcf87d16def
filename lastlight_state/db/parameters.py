"""The gate of statements: every parameter is looked at before any statement is sent, the same way for each database.

The products differ in what they make of a value of the wrong type: one compares, one converts, one raises in its own
words. So a parameter must have the Python type of the column that it is compared with or stored in, a text no NUL, and
an integer 64 bits. Combinations of types that were met before cost one look into a set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import NullType, TypeEngine

from lastlight_state.db import columns
from lastlight_state.errors import InvalidValue

_LEAST, _MOST = -(2**63), 2**63 - 1
#: Combinations of types that are remembered for one statement.
_MOST_KINDS = 4_096

#: For types that check their values themselves, such as those of columns in a service's own tables.
_OPEN = (object, bool), "a value"

#: What a parameter of a column's type may be, and how that is called.
_ALLOWED: tuple[tuple[type[TypeEngine[Any]], tuple[type, ...], str], ...] = (
    (sa.Enum, *_OPEN),
    (sa.String, (str,), "text"),
    (sa.Integer, (int,), "a whole number"),
    (sa.Boolean, (bool,), "True or False"),
    (columns.Float64, (float, int), "a number"),
    (columns.UtcTimestamp, (datetime,), "a datetime"),
    (columns.BinaryJson, (str,), "JSON text"),
    (sa.LargeBinary, (bytes,), "bytes"),
)

#: Of a parameter whose type the statement leaves open.
_ANY = (str, int, float, bool, datetime), "a text, number or time"


class Gate:
    """What the parameters of one statement may be, in the order of their names."""

    __slots__ = ("_known", "_names", "_rules")

    def __init__(self, names: Sequence[str], types: Mapping[str, TypeEngine[Any]]) -> None:
        self._names = tuple(names)
        self._rules = [_rule(types.get(name)) for name in self._names]
        self._known: set[tuple[type, ...]] = set()

    def check(self, given: Sequence[Any]) -> None:
        """Refuse what the database would not take as it is. Raises `InvalidValue` naming the parameter."""
        kinds = tuple(map(type, given))
        if kinds not in self._known:
            self._judge(given)
            if len(self._known) >= _MOST_KINDS:
                self._known.clear()
            self._known.add(kinds)
        for i, kind in enumerate(kinds):
            if kind is str:
                if "\0" in given[i]:
                    raise InvalidValue(self._names[i], "NUL character")
            elif kind is int and not _LEAST <= given[i] <= _MOST:
                raise InvalidValue(self._names[i], "integer beyond 64 bits")

    def _judge(self, given: Sequence[Any]) -> None:
        for name, rule, value in zip(self._names, self._rules, given, strict=True):
            if value is None:
                continue
            allowed, words = rule
            if not isinstance(value, allowed) or (type(value) is bool and bool not in allowed):
                raise InvalidValue(name, f"expected {words}, got {type(value).__name__}")


def _rule(kind: TypeEngine[Any] | None) -> tuple[tuple[type, ...], str]:
    if kind is None or isinstance(kind, NullType):
        return _ANY
    return next(((allowed, words) for ours, allowed, words in _ALLOWED if isinstance(kind, ours)), _OPEN)
