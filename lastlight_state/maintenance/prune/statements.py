"""The statements of a prune, for each kind. Each finds its rows by an index, whatever the number of those that stay."""

from __future__ import annotations

from functools import cache
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db import columns
from lastlight_state.db.indexes import through
from lastlight_state.db.keyed import CountOf, KeyRow
from lastlight_state.db.statements import Family, bind, constant, exactly, number, prepared
from lastlight_state.maintenance.prune.kinds import KINDS
from lastlight_state.maintenance.prune.kinds.kind import Kind
from lastlight_state.maintenance.prune.places import Ended
from lastlight_state.migrations.roles import rights
from lastlight_state.outputs.tables import REGISTRY
from lastlight_state.receipts.tables import TOMBSTONES

#: How many records one look finds.
LOOK = 200

#: The tombstone of a record with the digest of its bundle. One that is there already, of an earlier prune, stays.
BURY_ARCHIVED = prepared(
    insert(TOMBSTONES)
    .values({column.name: bind(column.name, column) for column in TOMBSTONES.columns})
    .on_conflict_do_nothing()
)


class OutputName(TypedDict):
    """An output table."""

    table_name: str


#: The output tables that there are, attached ones included.
OUTPUTS = prepared(sa.select(REGISTRY.c.table_name).order_by(REGISTRY.c.table_name), OutputName)


class Measured(CountOf):
    """How many rows a record has in a table."""

    name: str


class Statements:
    """The statements of one kind.

    ``look`` and ``lock`` find the next records that ended before a moment; the latter passes over locked ones.
    ``chosen`` and ``lock_chosen`` find them among given keys.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        key, age = kind.key, kind.age
        walked = through(self._found(self._after), kind.table, kind.index).order_by(age, key).limit(number(LOOK))
        self.look = prepared(walked, Ended)
        self.lock = prepared(_locking(walked), Ended)
        self.chosen = Family("key", self._among, Ended)
        self.lock_chosen = Family("key", lambda keys: _locking(self._among(keys)), Ended)
        #: Locks what stays: others may go on referring to it.
        self.hold_chosen = Family(
            "key", lambda keys: self._among(keys).with_for_update(key_share=True, skip_locked=True), Ended
        )
        #: The record before which ``keep_n`` others have ended later.
        self.boundary = prepared(
            through(sa.select(age.label("age"), key.label("key")), kind.table, kind.index)
            .where(kind.ended)
            .order_by(age.desc(), key.desc())
            .limit(number(1))
            .offset(sa.bindparam("kept", type_=sa.Integer())),
            Ended,
        )
        self.open = None if kind.open is None else prepared(_open(kind, kind.open))
        self.known = Family("key", lambda keys: sa.select(key.label("key")).where(key.in_(keys)), KeyRow)
        self.protected = Family("key", self._protected)
        self.measured = Family("key", self._measured, Measured)
        self.children = {str(child.table.name): _removal(child) for child in kind.children}
        #: Lock those of the rows that go with a record which anybody may change.
        self.held = [_holding(child) for child in kind.children if "UPDATE" in rights()[str(child.table.name)]]
        self.own = _removal(key)
        self.bury = Family("key", self._bury)

    @property
    def _after(self) -> sa.ColumnElement[bool]:
        key, age = self._kind.key, self._kind.age
        after_age, after_key = exactly("after_age", age), bind("after_key", key)
        return sa.and_(age >= after_age, sa.tuple_(age, key) > sa.tuple_(after_age, after_key))

    def _found(self, condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
        key, age = self._kind.key, self._kind.age
        until_age, until_key = exactly("until_age", age), bind("until_key", key)
        before = sa.and_(age <= until_age, sa.tuple_(age, key) < sa.tuple_(until_age, until_key))
        return sa.select(key.label("key"), age.label("age")).where(self._kind.ended, condition, before)

    def _among(self, keys: Any) -> sa.Select[Any]:
        key = self._kind.key
        condition = sa.and_(key.in_(keys), key > bind("after_key", key))
        return self._found(condition).order_by(key).limit(number(LOOK))

    def _protected(self, keys: Any) -> sa.Select[Any]:
        reasons = [condition.label(reason) for reason, condition in self._kind.protections.items()]
        return sa.select(self._kind.key.label("key"), *reasons).where(self._kind.key.in_(keys))

    def _measured(self, keys: Any) -> Any:
        counts = [
            sa.select(constant(child.table.name).label("name"), child.label("key"), sa.func.count().label("rows"))
            .where(child.in_(keys))
            .group_by(child)
            for child in self._kind.children
        ]
        return sa.union_all(*counts)

    def _bury(self, keys: Any) -> Any:
        kind = self._kind
        row = {
            "kind": constant(kind.record),
            "id": kind.key,
            "receipt_id": bind("receipt_id", TOMBSTONES.c.receipt_id),
            "deleted_at": bind("at", TOMBSTONES.c.deleted_at),
        }
        found = sa.select(*row.values()).where(kind.key.in_(keys))
        return insert(TOMBSTONES).from_select(list(row), found, include_defaults=False).on_conflict_do_nothing()


@cache
def output_counts(table: str) -> Family[CountOf]:
    """Return how many rows of an output table each of these runs has."""
    run_id = _run_id_of(table)
    return Family(
        "key",
        lambda keys: (
            sa.select(run_id.label("key"), sa.func.count().label("rows")).where(run_id.in_(keys)).group_by(run_id)
        ),
        CountOf,
    )


@cache
def output_holding(table: str) -> Family:
    """Lock the rows of these runs in an output table."""
    return _holding(_run_id_of(table))


@cache
def output_removal(table: str) -> Family:
    """Remove the rows of these runs from an output table."""
    return _removal(_run_id_of(table))


def _run_id_of(table: str) -> sa.Column[Any]:
    return sa.Table(table, sa.MetaData(), sa.Column("run_id", columns.Text)).c.run_id


def _holding(column: sa.Column[Any]) -> Family:
    order = tuple(column.table.primary_key) or (column,)
    return Family("key", lambda keys: sa.select(column).where(column.in_(keys)).order_by(*order).with_for_update())


def _removal(column: sa.Column[Any]) -> Family:
    return Family("key", lambda keys: sa.delete(column.table).where(column.in_(keys)))


def _open(kind: Kind, condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    age = kind.age if kind.open_age is None else kind.open_age
    return sa.select(sa.func.count().label("rows")).select_from(kind.table).where(condition, age < bind("cutoff", age))


def _locking(statement: sa.Select[Any]) -> sa.Select[Any]:
    return statement.with_for_update(skip_locked=True)


#: By the name of the kind.
STATEMENTS = {name: Statements(kind) for name, kind in KINDS.items()}
