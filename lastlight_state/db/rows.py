"""From driver rows to dicts of Python values, by a function written for the columns of one statement.

Generated code takes less than half the time of a loop over the columns, and every read uses it. The only names in the
generated text are quoted names of columns.

A row is checked by the types of its values, all at once: SQLite keeps a number or bytes in a column of text when plain
SQL puts them there. A combination of types that was met before costs one look into a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import NoneType
from typing import Any

from lastlight_state.backends.cells import Unreadable
from lastlight_state.db.columns import read_time
from lastlight_state.db.parameters import Convert

Build = Callable[[Iterable[Sequence[Any]]], list[dict[str, Any]]]
BuildOne = Callable[[Sequence[Any]], dict[str, Any]]

#: `read_time` inlined for the usual case, a time that is spelled as ours.
_TIME = "(iso({0}) if {0}[4:20:3] == '--T::.' and {0}[23:] == 'Z' else read_time({0}))"


#: What converters raise for stored values that they cannot read, a value of another type included.
UNREADABLE = (ValueError, TypeError, OverflowError, AttributeError, KeyError)

#: Combinations of types that are remembered for one statement.
_MOST_KINDS = 4_096


class Sound:
    """The combinations of types that rows of one statement were found to have, and that fit their columns.

    ``stored`` are the types that each column may hold, None for any. Called for a combination that is not known.
    """

    def __init__(self, stored: Sequence[tuple[type, ...] | None]) -> None:
        self._stored = stored
        self.known: set[tuple[type, ...]] = set()

    def __call__(self, kinds: tuple[type, ...]) -> bool:
        if not all(map(is_kept, kinds, self._stored)):
            raise TypeError("a stored value is of another type than its column")
        if len(self.known) >= _MOST_KINDS:
            self.known.clear()
        self.known.add(kinds)
        return True


def is_kept(kind: type, stored: tuple[type, ...] | None) -> bool:
    """Whether a column that keeps these types (None: any) may hold a value of this one, or NULL."""
    return kind is NoneType or (kind is not Unreadable if stored is None else kind in stored)


def builders(
    keys: Sequence[str],
    converters: Mapping[str, Convert],
    sound: Sound | None = None,
    damage: Callable[[Sequence[Sequence[Any]]], Exception] | None = None,
) -> tuple[BuildOne, Build]:
    """The functions that make a dict of one row, and of many. NULL becomes None without a call of the converter.

    For a value that its column cannot hold the first raises ``damage`` of the row, where that is given, and the second
    one of `UNREADABLE`.
    """
    row = "".join(f"v{i}, " for i in range(len(keys))) or "()"
    pairs = ", ".join(f"{key!r}: {_expression(i, converters.get(key))}" for i, key in enumerate(keys))
    given = {f"c{i}": converters[key] for i, key in enumerate(keys) if key in converters}
    scope: dict[str, Any] = {**given, "iso": datetime.fromisoformat, "read_time": read_time}
    sound = sound or Sound([None] * len(keys))
    scope |= {"known": sound.known, "sound": sound}
    names = ", ".join(f"{name}={name}" for name in scope)
    kinds = "".join(f"v{i}.__class__, " for i in range(len(keys))) or "()"
    checked = f"(k := ({kinds})) in known or sound(k)"
    exec(f"def many(rows, {names}):\n    return [{{{pairs}}} for {row} in rows if {checked}]\n", scope)  # noqa: S102
    body = f"{row} = row; {checked}; return {{{pairs}}}"
    scope |= {"unreadable": () if damage is None else UNREADABLE, "damage": damage}
    failing = "except unreadable as error: raise damage((row,)) from error"
    exec(f"def one(row, {names}):\n    try: {body}\n    {failing}\n", scope)  # noqa: S102
    return scope["one"], scope["many"]


def _expression(i: int, convert: Convert | None) -> str:
    value = f"v{i}"
    if convert is None:
        return value
    converted = _TIME.format(value) if convert is read_time else f"c{i}({value})"
    return f"None if {value} is None else {converted}"
