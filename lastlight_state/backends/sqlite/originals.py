"""SQLite files of the original program: checks them for damage, and rebuilds the one table that needs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Table, column as named, func, literal_column, not_, or_, type_coerce
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import String

from lastlight_state.backends.facts import Entry, Form, Malformed
from lastlight_state.backends.sql.expressions import quote_name
from lastlight_state.clock import iso_text, parse_foreign_time
from lastlight_state.errors import MisuseError, SchemaMismatch

# The stored form of each kind of value on SQLite, whose columns keep any value.
#
# Statements compare stored values as they stand, so a time in another spelling sorts wrongly. So each kind has exactly
# one form. `REPAIRS` can convert some other spellings into it, without guessing.

_SPELLING = "'%Y-%m-%dT%H:%M:%fZ'"
_FLAGS: Mapping[object, int] = {"true": 1, "false": 0}


def malformed_condition(column: ColumnElement[Any], form: Form) -> ColumnElement[bool]:
    """Return the condition that a stored value is not NULL and has another form than ``form``.

    A time is compared with SQLite's own formatting of the same time. A modifier makes SQLite compute the date from its
    days, so that 30 February does not equal its own formatting.
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
    """Return the order that puts the last stored row first."""
    return literal_column(f"{quote_name(table.name)}.rowid").desc()


def condition(column: str, form: Form) -> str:
    """Return the condition of `malformed_condition` as SQL text. It is false for NULL."""
    value: ColumnElement[Any] = named(column)
    wrong = value.is_not(None) & malformed_condition(value, form)
    return str(wrong.compile(dialect=sqlite.dialect(paramstyle="named")))


def _time(value: object) -> str | None:
    moment = parse_foreign_time(value)
    return None if moment is None else iso_text(moment)


def _flag(value: object) -> int | None:
    return _FLAGS.get(value.lower()) if isinstance(value, str) else None


#: Functions that convert a value into a form, or return None if it is unreadable. Other forms have none.
REPAIRS: Mapping[Form, Callable[[object], object]] = {"time": _time, "flag": _flag}


#: The name of a table while it is rebuilt.
REBUILT = "lastlight_rebuilt"

_SAMPLES = 3
_LONGEST_SAMPLE = 40
#: The most unreadable values of each column that are named.
_MOST_LOST = 5
#: Limits of reading a file: the seconds, the least bytes a second, and the steps between two checks of the clock.
_LEAST_SECONDS, _BYTES_A_SECOND, _STEPS = 60.0, 2_000_000, 200
_REPAIR = "lastlight_repaired"
_COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) ORDER BY cid'
_DISPLACING = """
SELECT CASE type WHEN 'view' THEN type ELSE 'virtual table' END, name FROM sqlite_master
WHERE type = 'view' OR (type = 'table' AND rootpage = 0)
"""
#: Triggers, and indexes with an expression or a condition.
_COMPUTING = """
SELECT type, tbl_name, name FROM sqlite_master WHERE type = 'trigger'
UNION ALL SELECT 'index', m.name, l.name FROM sqlite_master m, pragma_index_list(m.name) l
WHERE m.type = 'table' AND m.rootpage > 0
AND (l.partial OR EXISTS (SELECT 1 FROM pragma_index_xinfo(l.name) x WHERE x.cid = -2))
"""
_HANGING = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL"


class SqliteOriginal:
    """A `lastlight_state.backends.facts.Original` on a driver connection that is inside a transaction."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @contextmanager
    def time_limit(self) -> Iterator[None]:
        size = self._value("PRAGMA page_count") * self._value("PRAGMA page_size")
        end = time.monotonic() + _LEAST_SECONDS + size / _BYTES_A_SECOND
        self._driver.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
        try:
            yield
        finally:
            self._driver.set_progress_handler(None, 0)

    def displacing_objects(self, tables: Collection[str]) -> list[str]:
        names = {name.lower() for name in tables}
        rows = self._driver.execute(_DISPLACING).fetchall()
        return sorted(f"{name} is a {kind}, expected a table" for kind, name in rows if name.lower() in names)

    def unknown_triggers(self, tables: Collection[str], known: Collection[Entry]) -> list[str]:
        rows = self._driver.execute(_COMPUTING).fetchall()
        found = [(kind, table, name) for kind, table, name in rows if table in tables]
        return sorted(f"{kind} {name} on {table}" for kind, table, name in found if (kind, table, name) not in known)

    def damages(self) -> list[str]:
        found = [str(line) for (line,) in self._driver.execute("PRAGMA integrity_check(20)").fetchall()]
        return [] if found == ["ok"] else found

    def orphans(self) -> list[str]:
        rows = self._driver.execute('SELECT "table", count(*), parent FROM pragma_foreign_key_check GROUP BY 1, 3')
        return [f"{count} rows of {table} refer to no row of {parent}" for table, count, parent in rows.fetchall()]

    def malformed_values(self, table: str, key: Sequence[str], column: str, form: Form) -> Malformed:
        found = f"FROM {quote_name(table)} WHERE {condition(column, form)}"
        count = self._value(f"SELECT count(*) {found}")
        if not count:
            return Malformed(0, ())
        text = f"CAST({quote_name(column)} AS TEXT)"
        rows = self._driver.execute(f"SELECT DISTINCT {text} {found} LIMIT {_SAMPLES}").fetchall()
        samples = tuple(_sample(value) for (value,) in rows)
        if form not in REPAIRS:
            return Malformed(count, samples)
        with self._repair_function(form):
            keys = ", ".join(map(quote_name, key))
            beyond = f"SELECT {text}, {keys} {found} AND {_REPAIR}({quote_name(column)}) IS NULL LIMIT {_MOST_LOST}"
            lost = self._driver.execute(beyond).fetchall()
        named = tuple(f"{_sample(value)!r} of {', '.join(map(repr, of))}" for value, *of in lost)
        return Malformed(count, samples, named, mends=True)

    def repair(self, table: str, column: str, form: Form) -> None:
        name = quote_name(column)
        with self._repair_function(form):
            self._driver.execute(
                f"UPDATE {quote_name(table)} SET {name} = {_REPAIR}({name}) WHERE {condition(column, form)}"
            )

    @contextmanager
    def _repair_function(self, form: Form) -> Iterator[None]:
        """Run a block in which SQL statements can call the function that converts a value to ``form``."""
        self._driver.create_function(_REPAIR, 1, REPAIRS[form])
        try:
            yield
        finally:
            self._driver.create_function(_REPAIR, 1, None)

    def loosen(self, table: str) -> int:
        if self._value("PRAGMA foreign_keys"):
            raise MisuseError("a table cannot be rebuilt while foreign keys are on")
        rows, orphans = self._count(table), self.orphans()
        columns = self._driver.execute(_COLUMNS, (table,)).fetchall()
        hanging = [sql for (sql,) in self._driver.execute(_HANGING, (table,)).fetchall()]
        self._driver.execute("PRAGMA legacy_alter_table = ON")  # leaves references in other objects as they are
        try:
            for statement in (*_rebuild(table, columns), *hanging):
                self._driver.execute(statement)
        finally:
            self._driver.execute("PRAGMA legacy_alter_table = OFF")
        if self._count(table) != rows or self.orphans() != orphans:
            raise SchemaMismatch(f"{table} could not be rebuilt without a loss")
        return rows

    def _count(self, table: str) -> int:
        return self._value(f"SELECT count(*) FROM {quote_name(table)}")

    def _value(self, sql: str, *given: Any) -> int:
        return int(self._driver.execute(sql, given).fetchone()[0])


def _sample(value: object) -> str:
    return str(value)[:_LONGEST_SAMPLE]


def _rebuild(table: str, columns: list[Any]) -> Iterator[str]:
    """Yield the statements that rebuild a table, as SQLite's documentation lists them (ALTER TABLE, section 7)."""
    old, new = quote_name(table), quote_name(REBUILT)
    names = ", ".join(quote_name(name) for name, *_ in columns)
    yield f"CREATE TABLE {new} ({', '.join([*_definitions(columns), _key(columns)])})"
    yield f"INSERT INTO {new} ({names}) SELECT {names} FROM {old} ORDER BY rowid"
    yield f"DROP TABLE {old}"
    yield f"ALTER TABLE {new} RENAME TO {old}"


def _definitions(columns: list[Any]) -> Iterator[str]:
    for name, kind, needed, default, _ in columns:
        yield " ".join(
            [
                quote_name(name),
                str(kind),
                *(["NOT NULL"] if needed else []),
                *([f"DEFAULT ({default})"] if default is not None else []),
            ]
        )


def _key(columns: list[Any]) -> str:
    keys = sorted((place, name) for name, *_, place in columns if place)
    return f"PRIMARY KEY ({', '.join(quote_name(name) for _, name in keys)})"
