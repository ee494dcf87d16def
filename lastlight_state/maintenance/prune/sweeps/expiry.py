"""Sweeps of results and threads of checkpoints that may expire: expired records of any age, and old records.

States are removed only if they have expired: a state without an expiry stays, however old it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lastlight_state.checkpoints.models import THREADS
from lastlight_state.checkpoints.statements import TABLES
from lastlight_state.db.lists.filters import family, first_column
from lastlight_state.db.rows.statements import Family, Row, Statement, bind, exactly, number, statement_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.maintenance.prune import arguments
from lastlight_state.maintenance.prune.sweeps.sweep import LOOK, CandidatePage, OneStage, Removal, Tally, Terms, cutoff
from lastlight_state.outputs.models import CACHE
from lastlight_state.states.models import STATES
from lastlight_state.workflows.tables import WORKERS


@dataclass(frozen=True)
class Source:
    """A table of records that may expire, with its columns and indexes.

    ``newest`` is the index by age, and ``expiry`` the index by expiry. ``children`` are columns of other tables with
    the record's key: their rows are removed with the record.
    """

    key: sa.Column[Any]
    age: sa.Column[Any]
    expires_at: sa.Column[Any]
    newest: str
    expiry: str
    children: tuple[sa.Column[Any], ...] = ()

    @property
    def has_expired(self) -> sa.ColumnElement[bool]:
        """Return the condition that a record has expired."""
        return sa.and_(self.expires_at.is_not(None), self.expires_at <= bind("now", self.expires_at))

    @property
    def valid(self) -> sa.ColumnElement[bool]:
        """Return the condition that a record has not expired."""
        return sa.or_(self.expires_at.is_(None), self.expires_at > bind("now", self.expires_at))

    @property
    def old(self) -> sa.ColumnElement[bool]:
        """Return the condition that a record is old enough, and not among the newest."""
        until_age, until_key = exactly("until_age", self.age), bind("until_key", self.key)
        return sa.and_(self.age <= until_age, sa.tuple_(self.age, self.key) < sa.tuple_(until_age, until_key))

    def by_expiry(self, statement: sa.Select[Any]) -> sa.Select[Any]:
        """Return the statement restricted to expired records, using the index by expiry."""
        return through(statement.where(self.has_expired), self.key.table, self.expiry)

    def by_age(self, statement: sa.Select[Any], *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
        """Return the statement with these conditions, using the index by age."""
        return through(statement.where(*conditions), self.key.table, self.newest)


class Statements:
    """The statements for one table. Every expired record is found by its expiry, even if it is also old."""

    def __init__(self, source: Source) -> None:
        key, age = source.key, source.age
        keys = sa.select(key.label("key"))
        expired = source.by_expiry(keys).order_by(source.expires_at).limit(number(LOOK))
        old = source.by_age(keys, source.old).order_by(age, key).limit(number(LOOK))
        either = sa.or_(source.has_expired, source.old)

        def among(several: Any) -> sa.Select[Any]:
            return keys.where(key.in_(several), either).order_by(key)

        self.known = family(lambda several: keys.where(key.in_(several)))
        #: Finds the last of the valid records to keep. It also reads expired records between them, which are all
        #: removed.
        self.boundary: Statement[arguments.Place] = statement_of(
            source.by_age(sa.select(age.label("age"), key.label("key")), source.valid)
            .order_by(age.desc(), key.desc())
            .limit(number(1))
            .offset(sa.bindparam("kept", type_=sa.Integer())),
            tuple,
        )
        self.look_expired, self.look_old = statement_of(expired), statement_of(old)
        self.lock_expired, self.lock_old = statement_of(_locking_select(expired)), statement_of(_locking_select(old))
        self.chosen = family(among)
        self.lock_chosen = family(lambda several: _locking_select(among(several)))
        self._count(source)

    def _count(self, source: Source) -> None:
        key, amount = source.key, sa.select(sa.func.count().label("rows"))
        own, keys = amount.select_from(key.table), sa.select(key)
        going = (source.by_expiry(keys), source.by_age(keys, source.old, source.valid))
        self.count_expired = statement_of(source.by_expiry(own))
        self.count_old = statement_of(source.by_age(own, source.old, source.valid))
        #: Counts the rows removed with expired records, and with old records, by table.
        self.count_children = {
            str(child.table.name): [
                statement_of(amount.select_from(child.table).where(child.in_(one))) for one in going
            ]
            for child in source.children
        }
        self.measure = {str(child.table.name): _count_family(child) for child in source.children}
        self.remove = {str(one.table.name): _removal(one) for one in (*source.children, key)}


def _count_family(column: sa.Column[Any]) -> Family:
    return family(lambda keys: sa.select(sa.func.count().label("rows")).where(column.in_(keys)))


def _removal(column: sa.Column[Any]) -> Family:
    return family(lambda keys: sa.delete(column.table).where(column.in_(keys)))


def _locking_select(statement: sa.Select[Any]) -> sa.Select[Any]:
    return statement.with_for_update(skip_locked=True)


class Expiring(OneStage):
    """A kind of records that may expire. If a caller replaces an expired record meanwhile, the new record stays."""

    keep_days = 30
    keep_n = 100

    def __init__(self, name: str, record: str, source: Source) -> None:
        self.name = name
        self.record = record
        self.statements = Statements(source)
        self.tables = tuple(self.statements.remove)
        self._table = self.tables[-1]

    def existing_keys(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return the keys among these that exist."""
        return set(first_column(unit, self.statements.known, keys))

    def bounded_terms(self, unit: Unit, terms: Terms) -> Terms:
        """Return the terms with ``until`` added.

        Records before this place are old enough, and not among the newest valid records.
        """
        return arguments.bounded_terms(unit, self.statements.boundary, terms, now=_now(terms))

    def look(self, unit: Unit, terms: Terms, _after: Any) -> CandidatePage:
        """Return the next batch of removable records. Needs no cursor, because removed records are not found again."""
        s = self.statements
        return CandidatePage(_next(unit, terms, s.look_expired, s.look_old, s.chosen), None)

    def remove(self, unit: Unit, terms: Terms, _keys: list[str], most: int) -> Removal:
        """Remove about ``most`` rows of records that may be removed now. Locked records are skipped.

        A record is removed completely, even if it has more rows than that.
        """
        s, gone = self.statements, Counter[str]()
        whole = len(self.tables) > 1
        while gone.total() < most:
            keys = _next(unit, terms, s.lock_expired, s.lock_old, s.lock_chosen)
            if not keys:
                break
            for some in ([key] for key in keys) if whole else (keys[: most - gone.total()],):
                for table, family_of in s.remove.items():
                    gone[table] += unit.change(*family_of.of(some))
                if gone.total() >= most:
                    break
        return Removal(+gone, more=gone.total() >= most)

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """Return the records that would be removed, with their rows by table."""
        found, s, values = Tally(), self.statements, _values(terms)
        if terms["ids"] is None:
            looks = (s.look_expired, s.look_old)
            found.add(dict.fromkeys(key for look in looks for key in unit.values(look, values)))
            found.records = sum(unit.value(count, values) for count in (s.count_expired, s.count_old))
            for table, counts in s.count_children.items():
                found.counts[table] = sum(unit.value(count, values) for count in counts)
        else:
            keys = [*first_column(unit, s.chosen, terms["ids"], values)]
            found.add(keys)
            for table, counting in s.measure.items():
                found.counts[table] = sum(first_column(unit, counting, keys))
        found.counts[self._table] = found.records
        return found


class OverStatements:
    """The statements for records that are removed only because of their expiry."""

    def __init__(self, key: sa.Column[Any], expires_at: sa.Column[Any], expiry: str) -> None:
        over = sa.and_(expires_at.is_not(None), expires_at <= bind("cutoff", expires_at))
        keys = sa.select(key.label("key"))

        def through_expiry(statement: sa.Select[Any]) -> sa.Select[Any]:
            return through(statement.where(over), key.table, expiry)

        def among(several: Any) -> sa.Select[Any]:
            return keys.where(key.in_(several), over).order_by(key)

        found = through_expiry(keys).order_by(expires_at).limit(number(LOOK))
        self.known = family(lambda several: keys.where(key.in_(several)))
        self.look, self.lock = statement_of(found), statement_of(_locking_select(found))
        self.chosen = family(among)
        self.lock_chosen = family(lambda several: _locking_select(among(several)))
        self.count = statement_of(through_expiry(sa.select(sa.func.count().label("rows")).select_from(key.table)))
        self.remove = _removal(key)


class Over(OneStage):
    """A kind whose records are removed ``keep_days`` after they have expired. Each is one row."""

    keep_days = 0
    keep_n = None

    def __init__(self, name: str, record: str, table: str, statements: OverStatements) -> None:
        self.name = name
        self.record = record
        self.tables = (table,)
        self.statements = statements

    def existing_keys(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return the keys among these that exist."""
        return set(first_column(unit, self.statements.known, keys))

    def bounded_terms(self, unit: Unit, terms: Terms) -> Terms:
        """Return the terms unchanged. This kind needs no values that are fixed when the prune begins."""
        return terms

    def look(self, unit: Unit, terms: Terms, _after: Any) -> CandidatePage:
        """Return the next batch of removable records. Needs no cursor, because removed records are not found again."""
        return CandidatePage(self._keys(unit, terms, self.statements.look, self.statements.chosen), None)

    def remove(self, unit: Unit, terms: Terms, _keys: list[str], most: int) -> Removal:
        """Remove up to ``most`` records that may be removed now. Locked records are skipped."""
        gone = 0
        while gone < most and (keys := self._keys(unit, terms, self.statements.lock, self.statements.lock_chosen)):
            gone += unit.change(*self.statements.remove.of(keys[: most - gone]))
        return Removal(+Counter({self.tables[0]: gone}), more=gone >= most)

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """Return the records that would be removed."""
        found = Tally()
        if terms["ids"] is None:
            found.add(self._keys(unit, terms, self.statements.look, self.statements.chosen))
            found.records = unit.value(self.statements.count, {"cutoff": cutoff(terms)})
        else:
            found.add(first_column(unit, self.statements.chosen, terms["ids"], {"cutoff": cutoff(terms)}))
        found.counts[self.tables[0]] = found.records
        return found

    def _keys(self, unit: Unit, terms: Terms, found: Statement, chosen: Family) -> list[str]:
        values = {"cutoff": cutoff(terms)}
        if terms["ids"] is not None:
            return [*first_column(unit, chosen, terms["ids"], values)][:LOOK]
        return unit.values(found, values)


def _next(unit: Unit, terms: Terms, expired: Statement, old: Statement, chosen: Family) -> list[str]:
    """Return the next removable records, expired ones first."""
    values = _values(terms)
    if terms["ids"] is not None:
        return [*first_column(unit, chosen, terms["ids"], values)][:LOOK]
    return unit.values(expired, values) or unit.values(old, values)


def _values(terms: Terms) -> Row:
    age, key = arguments.read(terms["until"])
    return {"now": _now(terms), "until_age": age, "until_key": key}


def _now(terms: Terms) -> datetime:
    """Return the time at which the prune began."""
    return cutoff(terms) + timedelta(days=terms["keep_days"])


CACHE_SWEEP = Expiring(
    "cache",
    "cached_output",
    Source(
        CACHE.c.cache_key,
        CACHE.c.created_at,
        CACHE.c.expires_at,
        newest="ix_output_cache_newest",
        expiry="ix_output_cache_expiry",
    ),
)
CHECKPOINTS_SWEEP = Expiring(
    "checkpoints",
    "checkpoint_thread",
    Source(
        THREADS.c.id,
        THREADS.c.updated_at,
        THREADS.c.expires_at,
        newest="ix_checkpoint_threads_newest",
        expiry="ix_checkpoint_threads_expiry",
        children=tuple(table.c.thread_id for table in TABLES),
    ),
)
STATES_SWEEP = Over(
    "states", "state", str(STATES.name), OverStatements(STATES.c.id, STATES.c.expires_at, "ix_states_expiry")
)
WORKERS_SWEEP = Over(
    "workers",
    "worker",
    str(WORKERS.name),
    OverStatements(WORKERS.c.name, WORKERS.c.expires_at, "ix_workflow_workers_expiry"),
)
