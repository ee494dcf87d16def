"""Compares rows of many tables with the stored rows: missing rows are inserted, and equal rows are not written.

``given`` is ``{table: [row, …]}``; a row is ``{column: value}`` with the Python types of the table's columns, and
contains all columns of its key. A column that no row of a table contains gets its default. Tables may come in any
order: rows are stored in the order of foreign keys. An output table must exist and be registered. To use it, within one
unit each:

    planned = {table: len(rows) for table, rows in missing_rows(view, given).items()}  # writes nothing
    added = insert_missing(unit, given)  # a Counter by table

If another call has stored a row after this lookup, the insert raises `Conflict` (code ``unique``): do the unit again.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.db.rows.statements import Statement, bind, statement_of
from lastlight_state.db.rows.writes import as_list, cache_statements, elements_table
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue
from lastlight_state.maintenance.copy.contents import canonical, key_text
from lastlight_state.maintenance.copy.tables import Subject, is_json, subjects
from lastlight_state.maintenance.copy.transfer import output_tables

Row = Mapping[str, Any]
Given = Mapping[str, Sequence[Row]]
Key = tuple[Any, ...]

#: How many rows one statement looks up.
_TOGETHER = 200
_NO_LIMIT = 2**40


def missing_rows(view: Unit, given: Given, *, keeps: bool = False) -> dict[str, list[Row]]:
    """Return the given rows that are not stored, by table, in the order in which they can be inserted.

    Raises `AlreadyExists` with table and key of the first row whose stored values differ in a given column. With
    ``keeps``, stored rows may have any values and stay. Raises `InvalidValue` for an unknown table or column, a row
    without its key, and two different rows with one key.
    """
    found = {
        subject.name: _new_rows(view, subject, given[subject.name], keeps) for subject in _ordered_subjects(view, given)
    }
    return {name: rows for name, rows in found.items() if rows}


def insert_missing(unit: Unit, given: Given, *, keeps: bool = False) -> Counter[str]:
    """Insert the given rows that are not stored yet, and return their number by table."""
    new = missing_rows(unit, given, keeps=keeps)
    for subject in _ordered_subjects(unit, new):
        _insert(unit, subject, new[subject.name])
    return Counter({name: len(rows) for name, rows in new.items()})


def check_insert(view: Unit, table: sa.Table, rows: Sequence[Row]) -> None:
    """Check these rows as `insert_missing` does, without writing them. Raises `InvalidValue` for a bad value."""
    if rows:
        view.rehearse(*_prepare_insert(Subject(table), rows))


def stored_pairs(view: Unit, given: Given) -> Iterator[tuple[Subject, Row, Row]]:
    """Yield each given row that is stored already: its table, the given row, and the stored row."""
    for subject in _ordered_subjects(view, given):
        by_key = _by_key(subject, given[subject.name])
        for stored in _stored_rows(view, subject, by_key):
            yield subject, by_key[_key(subject, stored)], stored


def differing_columns(row: Row, stored: Row) -> list[str]:
    """Return the columns in which a given row differs from the stored row."""
    return [name for name, value in row.items() if canonical({"": value}) != canonical({"": stored[name]})]


def digest(row: Row) -> str:
    """Return the digest of a row, equal on every database."""
    return hashlib.sha256(_form(row)).hexdigest()


def _ordered_subjects(unit: Unit, given: Given) -> list[Subject]:
    """Return the tables of these rows, each after the tables that its foreign keys refer to.

    Output tables are looked up in the database only if one is given.
    """
    known = subjects(())
    if not given.keys() <= {subject.name for subject in known}:
        known = subjects(output_tables(unit))
    if unknown := sorted(given.keys() - {subject.name for subject in known}):
        raise InvalidValue("table", f"unknown table {unknown[0]!r:.80}")
    return [subject for subject in known if subject.name in given]


def _new_rows(view: Unit, subject: Subject, rows: Sequence[Row], keeps: bool) -> list[Row]:
    by_key = _by_key(subject, rows)
    left = dict(by_key)
    for stored in _stored_rows(view, subject, by_key):
        key = _key(subject, stored)
        row = left.pop(key)
        if not keeps and _form({name: stored[name] for name in row}) != _form(row):
            raise AlreadyExists(subject.name, key[0] if len(key) == 1 else key, problem="is stored with other values")
    order = [str(column.name) for column in subject.order]
    return sorted(left.values(), key=lambda row: [row[name] for name in order])


def _stored_rows(view: Unit, subject: Subject, keys: Iterable[Key]) -> Iterator[Row]:
    asked = [_key_parameters(key) for key in keys]
    for at in range(0, len(asked), _TOGETHER):
        yield from view.rows(_lookup_statement(subject.table), {"keys": as_list(asked[at : at + _TOGETHER])})


def _insert(unit: Unit, subject: Subject, rows: Sequence[Row]) -> None:
    unit.insert(subject.table, *_prepare_insert(subject, rows))
    if subject.numbered_column is not None:  # let the database's next numbers be greater
        given = unit.backend.last_number(unit, subject.name, subject.numbered_column)
        unit.backend.advance(unit, subject.name, subject.numbered_column, given)


def _prepare_insert(subject: Subject, rows: Sequence[Row]) -> tuple[Statement, Iterator[Row]]:
    """Return the INSERT of rows into a table, and the parameters of each row."""
    names = tuple(column.name for column in subject.columns if column.name in rows[0])
    texts = [column.name for column in subject.columns if is_json(column) and column.name in names]
    return _insert_statement(subject.table, names), (_encode_row(subject, row, texts) for row in rows)


def _encode_row(subject: Subject, row: Row, texts: Iterable[str]) -> Row:
    """Return a row's parameters, with JSON as text. None becomes NULL, or JSON's null in a column that is NOT NULL."""
    made = dict(row)
    for name in texts:
        if made[name] is not None or not subject.table.c[name].nullable:
            made[name] = codec.encode(f"{subject.name}.{name}", made[name], max_bytes=_NO_LIMIT)
    return made


def _by_key(subject: Subject, rows: Sequence[Row]) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    for row in _sound(subject, rows):
        key = _key(subject, row)
        if _form(found.setdefault(key, row)) != _form(row):
            raise InvalidValue(subject.name, f"two different rows of the key {key_text(list(key))}")
    return found


def _sound(subject: Subject, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows after checking that each has exactly the columns of the first row."""
    names = set(rows[0]) if rows else set()
    if unknown := sorted(names.difference(subject.names)):
        raise InvalidValue(f"{subject.name}.{unknown[0]}"[:200], "unknown column")
    for row in rows:
        if row.keys() != names:
            raise InvalidValue(subject.name, "rows of one table must have the same columns")
        for column in subject.table.primary_key:
            _check_key(f"{subject.name}.{column.name}", row.get(column.name), column.type.python_type)
        yield row


def _check_key(where: str, value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise InvalidValue(where, f"expected {kind.__name__}, got {type(value).__name__}")
    if isinstance(value, str):
        codec.check_text(where, value)


def _key(subject: Subject, row: Row) -> Key:
    return tuple(row[column.name] for column in subject.table.primary_key)


def _form(row: Row) -> bytes:
    return canonical(dict(row))


def _key_parameters(key: Key) -> dict[str, Any]:
    return {f"key_{i}": value for i, value in enumerate(key)}


@cache_statements
def _lookup_statement(table: sa.Table) -> Statement:
    """Return a statement that reads the stored rows with these keys."""
    keys = elements_table("keys")
    same = [column == _key_value(keys, i, column) for i, column in enumerate(table.primary_key)]
    return statement_of(sa.select(*table.columns).select_from(keys.join(table, sa.and_(*same))))


def _key_value(keys: Any, place: int, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    found = member_of(keys.c.value, f"key_{place}")
    return sa.cast(found, column.type) if isinstance(column.type, sa.Integer) else found


@cache_statements
def _insert_statement(table: sa.Table, names: tuple[str, ...]) -> Statement:
    return statement_of(sa.insert(table).values({name: bind(name, table.c[name]) for name in names}))
