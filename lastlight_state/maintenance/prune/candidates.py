"""Finds the records of a kind that a prune may remove, and the rows that belong to each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db import reconcile
from lastlight_state.db.rows.statements import Family, Row, Statement, bind, constant, exactly, number, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.prune import arguments
from lastlight_state.maintenance.prune.arguments import START, Place
from lastlight_state.maintenance.prune.kinds import KINDS, Kind
from lastlight_state.maintenance.shared import jobs
from lastlight_state.migrations.offline import rights
from lastlight_state.outputs.models import REGISTRY
from lastlight_state.receipts.models import TOMBSTONES

# The statements of a prune, for each kind. Each finds its rows by an index, so that remaining rows cost nothing.

#: How many records one statement finds.
LOOK = 200

#: Inserts the tombstone of a record with the digest of its bundle. An existing tombstone stays.
BURY_ARCHIVED = statement_of(
    insert(TOMBSTONES)
    .values({column.name: bind(column.name, column) for column in TOMBSTONES.columns})
    .on_conflict_do_nothing()
)


#: Finds the registered output tables, attached ones included.
OUTPUTS = statement_of(sa.select(REGISTRY.c.table_name).order_by(REGISTRY.c.table_name))


#: A record that was found: its key, and the time by which it is ordered.
AgedKey = tuple[str, datetime]


class Statements:
    """The statements of one kind.

    ``look`` and ``lock`` find the next records that ended before a moment; ``lock`` skips locked records. ``chosen``
    and ``lock_chosen`` do the same for given keys.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        key, age = kind.key, kind.age
        walked = (
            through(self._candidate_query(self._after), kind.table, kind.index).order_by(age, key).limit(number(LOOK))
        )
        self.look: Statement[AgedKey] = statement_of(walked, tuple)
        self.lock: Statement[AgedKey] = statement_of(_locking_select(walked), tuple)
        self.chosen: Family[AgedKey] = Family("key", self._among, tuple)
        self.lock_chosen: Family[AgedKey] = Family("key", lambda keys: _locking_select(self._among(keys)), tuple)
        #: Locks records that will stay. Other calls can still insert rows that refer to them.
        self.hold_chosen = Family(
            "key", lambda keys: self._among(keys).with_for_update(key_share=True, skip_locked=True)
        )
        #: Finds the record that has ``keep_n`` records with a later end.
        self.boundary: Statement[Place] = statement_of(
            through(sa.select(age.label("age"), key.label("key")), kind.table, kind.index)
            .where(kind.ended)
            .order_by(age.desc(), key.desc())
            .limit(number(1))
            .offset(sa.bindparam("kept", type_=sa.Integer())),
            tuple,
        )
        self.open = None if kind.open is None else statement_of(_open(kind, kind.open))
        self.known = Family("key", lambda keys: sa.select(key.label("key")).where(key.in_(keys)))
        self.protected = Family("key", self._protection_query)
        #: The number of rows of a record in a table: the table, the record's key, the number.
        self.measured: Family[tuple[str, str, int]] = Family("key", self._count_query, tuple)
        self.children = {str(child.table.name): _removal(child) for child in kind.children}
        #: Locks the rows of a record in tables that any caller may change.
        self.held = [_hold_family(child) for child in kind.children if "UPDATE" in rights()[str(child.table.name)]]
        self.own = _removal(key)
        self.bury = Family("key", self._bury)

    @property
    def _after(self) -> sa.ColumnElement[bool]:
        key, age = self._kind.key, self._kind.age
        after_age, after_key = exactly("after_age", age), bind("after_key", key)
        return sa.and_(age >= after_age, sa.tuple_(age, key) > sa.tuple_(after_age, after_key))

    def _candidate_query(self, condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
        key, age = self._kind.key, self._kind.age
        until_age, until_key = exactly("until_age", age), bind("until_key", key)
        before = sa.and_(age <= until_age, sa.tuple_(age, key) < sa.tuple_(until_age, until_key))
        return sa.select(key.label("key"), age.label("age")).where(self._kind.ended, condition, before)

    def _among(self, keys: Any) -> sa.Select[Any]:
        key = self._kind.key
        condition = sa.and_(key.in_(keys), key > bind("after_key", key))
        return self._candidate_query(condition).order_by(key).limit(number(LOOK))

    def _protection_query(self, keys: Any) -> sa.Select[Any]:
        reasons = [condition.label(reason) for reason, condition in self._kind.protections.items()]
        return sa.select(self._kind.key.label("key"), *reasons).where(self._kind.key.in_(keys))

    def _count_query(self, keys: Any) -> Any:
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


@lru_cache(maxsize=256)
def output_counts(table: str) -> Family[tuple[str, int]]:
    """Return a `Family` that counts the rows of each of these runs in an output table."""
    run_id = _run_id_of(table)
    return Family(
        "key",
        lambda keys: (
            sa.select(run_id.label("key"), sa.func.count().label("rows")).where(run_id.in_(keys)).group_by(run_id)
        ),
        tuple,
    )


@lru_cache(maxsize=256)
def output_holding(table: str) -> Family:
    """Return a `Family` of statements that lock the rows of these runs in an output table."""
    return _hold_family(_run_id_of(table))


@lru_cache(maxsize=256)
def output_removal(table: str) -> Family:
    """Return a `Family` of statements that remove the rows of these runs from an output table."""
    return _removal(_run_id_of(table))


def _run_id_of(table: str) -> sa.Column[Any]:
    return sa.Table(table, sa.MetaData(), sa.Column("run_id", columns.Text)).c.run_id


def _hold_family(column: sa.Column[Any]) -> Family:
    order = tuple(column.table.primary_key) or (column,)
    return Family("key", lambda keys: sa.select(column).where(column.in_(keys)).order_by(*order).with_for_update())


def _removal(column: sa.Column[Any]) -> Family:
    return Family("key", lambda keys: sa.delete(column.table).where(column.in_(keys)))


def _open(kind: Kind, condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    age = kind.age if kind.open_age is None else kind.open_age
    return sa.select(sa.func.count().label("rows")).select_from(kind.table).where(condition, age < bind("cutoff", age))


def _locking_select(statement: sa.Select[Any]) -> sa.Select[Any]:
    return statement.with_for_update(skip_locked=True)


#: The statements, by name of the kind.
STATEMENTS = {name: Statements(kind) for name, kind in KINDS.items()}


@dataclass(frozen=True)
class Range:
    """The records that a prune reads: the records before ``until``, or those among them that ``keys`` names."""

    kind: Kind
    until: Place
    keys: tuple[str, ...] | None

    @classmethod
    def of(cls, kind: Kind, terms: Mapping[str, Any]) -> Range:
        """Return the range that belongs to terms returned by `bounded_terms`."""
        return cls(kind, arguments.read(terms["until"]), None if terms["ids"] is None else tuple(terms["ids"]))

    @property
    def statements(self) -> Statements:
        """Return the prepared statements for this kind of records."""
        return STATEMENTS[self.kind.name]

    def next(self, unit: Unit, after: Place, *, locked: bool) -> list[Place]:
        """Return the next records after a place, at most `LOOK`.

        With ``locked``, the records are locked, and records that another call has locked are skipped.
        """
        if self.keys == ():
            return []
        values = {"after_age": after[0], "after_key": after[1], "until_age": self.until[0], "until_key": self.until[1]}
        if self.keys is None:
            found = unit.rows(self.statements.lock if locked else self.statements.look, values)
        else:
            family = self.statements.lock_chosen if locked else self.statements.chosen
            statement, keys = family.of(self.keys)
            found = unit.rows(statement, {**values, **keys})
        following = [(age, key) for key, age in found]
        if following and self.keys is None:
            jobs.confirm_after(following[-1], after)
        return following

    def hold_keys(self, unit: Unit) -> list[str]:
        """Lock the given records (at most `LOOK`) that are in the range, and return them.

        Other calls can still insert rows that refer to them. Records that another call has locked are skipped.
        """
        if not self.keys:
            return []
        statement, keys = self.statements.hold_chosen.of(self.keys)
        values = {"after_key": "", "until_age": self.until[0], "until_key": self.until[1]}
        return unit.values(statement, {**values, **keys})


def bounded_terms(unit: Unit, kind: Kind, terms: Mapping[str, Any]) -> Row:
    """Return the terms with ``until`` added, the place at which the range of records ends."""
    return arguments.bounded_terms(unit, STATEMENTS[kind.name].boundary, terms)


def not_ended(unit: Unit, kind: Kind, cutoff: datetime) -> int:
    """Return how many records are old enough but have not ended."""
    found = STATEMENTS[kind.name].open
    return 0 if found is None else int(unit.value(found, {"cutoff": cutoff}))


def protected_records(unit: Unit, kind: Kind, keys: Sequence[str], in_use: frozenset[str]) -> dict[str, str]:
    """Return the records among these that must stay, each with the first reason that applies."""
    found = {key: "in_use" for key in keys if key in in_use}
    if kind.protections:
        for row in unit.rows(*STATEMENTS[kind.name].protected.of(keys)):
            key = row.pop("key")
            reason = next((reason for reason, holds in row.items() if holds), None)
            if reason is not None:
                found[key] = reason
    return found


def sizes(unit: Unit, kind: Kind, keys: Sequence[str], outputs: Sequence[str]) -> dict[str, Counter[str]]:
    """Return, for each record, the number of its rows in each table."""
    found = {key: Counter({kind.table_name: 1}) for key in keys}
    for at in range(0, len(keys), LOOK):
        some = keys[at : at + LOOK]
        if kind.children:
            for name, key, count in unit.rows(*STATEMENTS[kind.name].measured.of(some)):
                found[key][name] += count
        for table in outputs:
            for key, count in unit.rows(*output_counts(table).of(some)):
                found[key][table] += count
    return found


def waits(unit: Unit, kind: Kind, keys: Sequence[str]) -> dict[str, set[str]]:
    """Return, for each record, the other records that must be removed before it."""
    return kind.shared.waits(unit, keys) if kind.shared is not None else {}


def free(keys: Sequence[str], waits: dict[str, set[str]]) -> list[str]:
    """Return the records for which all records that must be removed before are among these, in the given order.

    Records that wait for one another are left out.
    """
    left = {key: set(waits.get(key, ())) for key in keys}
    waiting: dict[str, list[str]] = {}
    for key, others in left.items():
        for other in others:
            waiting.setdefault(other, []).append(key)
    ready = [key for key, others in left.items() if not others]
    for gone in ready:  # ready grows in this loop
        for key in waiting.get(gone, ()):
            left[key].discard(gone)
            if not left[key]:
                ready.append(key)
    found = set(ready)
    return [key for key in keys if key in found]


def hold(unit: Unit, kind: Kind, keys: Sequence[str], outputs: Sequence[str]) -> None:
    """Lock all rows that belong to these records, so that the rows do not change until the unit ends."""
    if not keys:
        return
    for family in STATEMENTS[kind.name].held:
        unit.rows(*family.of(keys))
    for table in outputs:
        unit.rows(*output_holding(table).of(keys))
    if kind.shared is not None:
        kind.shared.hold(unit, keys)


def outputs_of(unit: Unit, kind: Kind) -> list[str]:
    """Return the output tables whose rows are removed with the records.

    A registered table that was dropped is skipped.
    """
    if not kind.has_outputs:
        return []
    names = unit.values(OUTPUTS)
    return reconcile.existing_tables(unit, names) if names else []


def in_use(unit: Unit, kind: Kind) -> frozenset[str]:
    """Return the records that are in use by references that are not foreign keys, such as a run's scratch."""
    return kind.in_use(unit) if kind.in_use is not None else frozenset()


def walk(unit: Unit, found: Range) -> Iterator[list[Place]]:
    """Yield the places of all records in the range, in batches."""
    after = START
    while following := found.next(unit, after, locked=False):
        yield following
        after = following[-1]
