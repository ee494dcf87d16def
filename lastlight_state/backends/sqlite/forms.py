"""The form in which each kind of value is stored on SQLite, whose columns keep whatever is put into them.

Statements compare stored values as they stand, and a time that is spelled another way comes before or after the wrong
ones. So there is one form of each kind. `REPAIRS` can bring some other spellings into it, without a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Table, column as named, func, literal_column, not_, or_, type_coerce
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import String

from lastlight_state.backends.facts import Form
from lastlight_state.backends.sql.quoting import quoted
from lastlight_state.clock import iso_text, spelled

_SPELLING = "'%Y-%m-%dT%H:%M:%fZ'"
_FLAGS: Mapping[object, int] = {"true": 1, "false": 0}


def malformed(column: ColumnElement[Any], form: Form) -> ColumnElement[bool]:
    """Whether a stored value that is not NULL is in another form than this one.

    A time is compared with what SQLite itself makes of it. The modifier has it count the days, so that there is no 30
    February.
    """
    stored = type_coerce(column, String)
    if form == "time":
        made = func.strftime(literal_column(_SPELLING), stored, literal_column("'+0 days'"))
        return made.is_distinct_from(stored)
    if form == "JSON":
        return func.json_valid(stored) == literal_column("0")
    if form == "flag":
        return stored.not_in([literal_column("0"), literal_column("1")])
    kind = func.typeof(stored)
    if form == "whole number":
        return kind != literal_column("'integer'")
    return not_(or_(kind == literal_column("'real'"), kind == literal_column("'integer'")))


def newest(table: Table) -> ColumnElement[Any]:
    """The order in which the row that was stored last comes first."""
    return literal_column(f"{quoted(table.name)}.rowid").desc()


def condition(column: str, form: Form) -> str:
    """`malformed` as text, NULL excepted."""
    value: ColumnElement[Any] = named(column)
    wrong = value.is_not(None) & malformed(value, form)
    return str(wrong.compile(dialect=sqlite.dialect(paramstyle="named")))


def _time(value: object) -> str | None:
    moment = spelled(value)
    return None if moment is None else iso_text(moment)


def _flag(value: object) -> int | None:
    return _FLAGS.get(value.lower()) if isinstance(value, str) else None


#: What brings a value into its form: it returns None for one that cannot be read. The other forms have none.
REPAIRS: Mapping[Form, Callable[[object], object]] = {"time": _time, "flag": _flag}
