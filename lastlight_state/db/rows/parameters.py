"""The parameters of statements: checked and converted by a function generated for each statement.

Every parameter is checked before any statement is sent, in the same way for each database.

For a value of the wrong type, one database compares it, another converts it, a third raises in its own words. So a
parameter must have the Python type of the column that it is compared with or stored in. A text must not contain NUL,
and an integer must fit 64 bits. A combination of types that was accepted before costs one look-up in a set.

Generated code takes a third of the time of loops over the parameters, and every call uses it. The generated text
contains only names of its own, and the names of parameters as quoted texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from types import NoneType
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.types import NullType, TypeEngine

from lastlight_state.backends.facts import Unreadable
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.columns import read_flag, read_time
from lastlight_state.db.schema.sealing import Keyed
from lastlight_state.errors import InvalidValue, SealedValue

Convert = Callable[[Any], Any]
Gather = Callable[[Mapping[str, Any]], Any]

#: The whole numbers that both databases can hold.
LEAST, MOST = -(2**63), 2**63 - 1
#: The most combinations of types that are remembered for one statement.
_MOST_KINDS = 4_096

#: For column types that check their values themselves, such as those of columns in a service's own tables.
_OPEN = (object, bool), "a value"

#: The Python types that a parameter of a column's type may have, and what errors call them.
_ALLOWED: tuple[tuple[type[TypeEngine[Any]], tuple[type, ...], str], ...] = (
    (sa.Enum, *_OPEN),
    (sa.String, (str,), "text"),
    (sa.Integer, (int,), "a whole number"),
    (sa.Boolean, (bool,), "True or False"),
    (columns.Float64, (float, int), "a number"),
    (columns.ExactNumeric, (Decimal,), "a Decimal"),
    (columns.UtcTimestamp, (datetime,), "a datetime"),
    (columns.BinaryJson, (str,), "JSON text"),
    (sa.LargeBinary, (bytes,), "bytes"),
    (columns.RawBytes, (bytes,), "bytes"),
)

#: The types for a parameter whose column type the statement leaves open.
_ANY = (str, int, float, bool, datetime), "a text, number or time"


class Gate:
    """The accepted types of one statement's parameters, in the order of their names."""

    __slots__ = ("_names", "_rules", "known")

    def __init__(self, types: Mapping[str, TypeEngine[Any] | None]) -> None:
        self._names = tuple(types)
        self._rules = [rule(kind) for kind in types.values()]
        #: The combinations of types that were accepted.
        self.known: set[tuple[type, ...]] = set()

    def judge(self, given: Sequence[Any], kinds: tuple[type, ...]) -> None:
        """Check a combination of types that was not met before, and remember it.

        Raises `InvalidValue` if one type is not allowed.
        """
        for name, rule, value in zip(self._names, self._rules, given, strict=True):
            if value is None:
                continue
            allowed, words = rule
            if not isinstance(value, allowed) or (type(value) is bool and bool not in allowed):
                raise InvalidValue(name, f"expected {words}, got {type(value).__name__}")
        if len(self.known) >= _MOST_KINDS:
            self.known.clear()
        self.known.add(kinds)

    def refusals(self) -> list[str]:
        """Return lines of code that refuse values outside a column's range. The values are called ``v0``, ``v1`` …"""
        rules = zip(self._names, self._rules, strict=True)
        edges = [(name, f"v{i}", _edge(f"v{i}", allowed)) for i, (name, (allowed, _)) in enumerate(rules)]
        return [f"if {edge}: refuse({name!r}, {value})" for name, value, edge in edges if edge]


def gatherer(
    order: Sequence[str],
    types: Mapping[str, TypeEngine[Any]],
    converters: Mapping[str, Convert | Keyed],
    constants: Mapping[str, Any],
    *,
    by_position: bool,
) -> Gather:
    """Return the function that converts values by name to the driver's parameters: a list or a dict, as it needs.

    The function raises `InvalidValue` for a wrong value. ``constants`` are used for values that are not given.
    """
    at = {name: f"v{i}" for i, name in enumerate(dict.fromkeys(order))}
    gate = Gate({name: types.get(name) for name in at})
    scope: dict[str, Any] = {"known": gate.known, "judge": gate.judge, "refuse": refuse}
    scope |= {f"constant_{at[name]}": value for name, value in constants.items() if name in at}
    scope |= {f"convert_{at[name]}": converter(convert) for name, convert in converters.items() if name in at}
    beside = {at[name]: _beside(convert) for name, convert in converters.items() if name in at}
    everything = _join_parts(at.values())
    lines = [
        *(f"{value} = {_value_expression(name, value, scope)}" for name, value in at.items()),
        f"if (kinds := ({_join_parts(f'{value}.__class__' for value in at.values())})) not in known:",
        f"    judge(({everything}), kinds)",
        *gate.refusals(),
        *(f"if {v} is not None: {v} = convert_{v}({v}{beside[v]})" for v in at.values() if v in beside),
        f"return [{_join_parts(at[name] for name in order)}]"
        if by_position
        else f"return {{{_join_parts(f'{name!r}: {value}' for name, value in at.items())}}}",
    ]
    head = f"def gather(values, {', '.join(f'{name}={name}' for name in scope)}):\n"
    exec(head + "".join(f"    {line}\n" for line in lines), scope)  # noqa: S102
    made: Gather = scope["gather"]
    return made


def converter(convert: Convert | Keyed) -> Callable[..., Any]:
    """Return the function that a converter stands for.

    For a `Keyed` one, the function takes the row's key as second argument.
    """
    return convert.convert if isinstance(convert, Keyed) else convert


def _beside(convert: Convert | Keyed) -> str:
    return f", ({_join_parts(f'values[{name!r}]' for name in convert.keys)})" if isinstance(convert, Keyed) else ""


class Bound(NamedTuple):
    """The parameters of a statement: the arguments of `gatherer`, and how a parameter is written in the SQL text."""

    order: tuple[str, ...]
    types: Mapping[str, TypeEngine[Any]]
    converters: Mapping[str, Convert | Keyed]
    constants: Mapping[str, Any]
    by_position: bool
    template: str

    def gather(self) -> Gather:
        """Return the function that converts values by name to the driver's parameters."""
        return gatherer(self.order, self.types, self.converters, self.constants, by_position=self.by_position)


def _join_parts(parts: Iterable[str]) -> str:
    return "".join(f"{part}, " for part in parts)


def _value_expression(name: str, value: str, scope: Mapping[str, Any]) -> str:
    constant = f"constant_{value}"
    return f"values.get({name!r}, {constant})" if constant in scope else f"values[{name!r}]"


def _edge(value: str, allowed: tuple[type, ...]) -> str | None:
    """Return Python code that is true for a text with NUL or an integer beyond 64 bits. Return None for other types."""
    nul, beyond = f'"\\0" in {value}', f"not {LEAST} <= {value} <= {MOST}"
    if allowed == (str,):
        return f"{value} is not None and {nul}"
    if allowed == (int,):
        return f"{value} is not None and {beyond}"
    if str in allowed or int in allowed or object in allowed:
        return f"({value}.__class__ is str and {nul}) or ({value}.__class__ is int and {beyond})"
    return None


def refuse(name: str, value: Any) -> None:
    """Raise `InvalidValue` for a text that contains NUL, or for a number that is too large."""
    raise InvalidValue(
        name,
        "must not contain a NUL character"
        if isinstance(value, str)
        else "expected an integer of at most 64 bits, got an integer beyond 64 bits",
    )


def rule(kind: TypeEngine[Any] | None) -> tuple[tuple[type, ...], str]:
    """Return the Python types that a parameter may have for a column's type, and how errors describe them."""
    if kind is None or isinstance(kind, NullType):
        return _ANY
    return next(((allowed, words) for ours, allowed, words in _ALLOWED if isinstance(kind, ours)), _OPEN)


# From driver rows to dicts of Python values, by a function generated for the columns of one statement.
#
# Generated code takes less than half the time of a loop over the columns, and every read uses it. The generated text
# contains only quoted names of columns.
#
# The types of a row's values are checked all at once: SQLite keeps a number or bytes in a text column if plain SQL
# stores them there. A combination of types that was accepted before costs one look-up in a set.
# plain SQL puts them there. A combination of types that was met before costs one look into a set.

Build = Callable[[Iterable[Sequence[Any]]], list[dict[str, Any]]]
BuildOne = Callable[[Sequence[Any]], dict[str, Any]]

#: `read_time` inlined for the usual case: a time in this library's spelling.
_TIME = "(iso({0}) if {0}[4:20:3] == '--T::.' and {0}[23:] == 'Z' and {0}[11:13] != '24' else read_time({0}))"
#: `read_flag` inlined for the numbers 0 and 1.
_FLAG = "({0} == 1 if {0} in (0, 1) else read_flag({0}))"
_INLINED: dict[Convert, str] = {read_time: _TIME, read_flag: _FLAG}


#: The exceptions that converters raise for stored values that they cannot read, such as values of another type.
UNREADABLE = (ValueError, TypeError, OverflowError, AttributeError, KeyError, SealedValue)

#: The most combinations of types that are remembered for one statement.


class KnownTypes:
    """The combinations of value types that were met in rows of one statement and that fit their columns.

    ``stored`` has the types that each column may hold, None for any type. Calling the object checks and adds a new
    combination.
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
    """True if a column may hold a value of this type, or NULL. ``None`` as the column's types accepts any."""
    return kind is NoneType or (kind is not Unreadable if stored is None else kind in stored)


def builders(
    keys: Sequence[str],
    converters: Mapping[str, Convert],
    sound: KnownTypes | None = None,
    damage: Callable[[Sequence[Sequence[Any]]], Exception] | None = None,
    places: Mapping[str, Sequence[int]] | None = None,
) -> tuple[BuildOne, Build]:
    """Return two functions that build dicts: from one row, and from many rows. NULL becomes None without a converter.

    ``places`` gives the positions of the row's values that a converter takes as second argument, a tuple. If a column
    cannot hold its value, the first function raises ``damage`` of the row, if that is given. The second function raises
    an exception of `UNREADABLE`.
    """
    row = "".join(f"v{i}, " for i in range(len(keys))) or "()"
    pairs = ", ".join(
        f"{key!r}: {_expression(i, converters.get(key), (places or {}).get(key))}" for i, key in enumerate(keys)
    )
    given = {f"c{i}": converters[key] for i, key in enumerate(keys) if key in converters}
    scope: dict[str, Any] = {**given, "iso": datetime.fromisoformat, "read_time": read_time, "read_flag": read_flag}
    sound = sound or KnownTypes([None] * len(keys))
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


def _expression(i: int, convert: Convert | None, places: Sequence[int] | None) -> str:
    value = f"v{i}"
    if convert is None:
        return value
    inlined = _INLINED.get(convert)
    beside = f", ({_join_parts(f'v{place}' for place in places)})" if places else ""
    converted = f"c{i}({value}{beside})" if inlined is None else inlined.format(value)
    return f"None if {value} is None else {converted}"
