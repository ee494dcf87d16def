"""Entries of the cache of results: those that have expired, at any age, and those that were stored long ago."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.indexes import through
from lastlight_state.db.statements import Family, Row, Statement, bind, exactly, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune import places
from lastlight_state.maintenance.prune.sweeps.sweep import LOOK, Look, OneStage, Removal, Tally, Terms, cutoff
from lastlight_state.maintenance.references import KeyRow, family, rows
from lastlight_state.outputs.tables import CACHE

_c = CACHE.c
_TABLE = str(CACHE.name)
_ORDER = (_c.created_at, _c.cache_key)

_expired = sa.and_(_c.expires_at.is_not(None), _c.expires_at <= bind("now", _c.expires_at))
_valid = sa.or_(_c.expires_at.is_(None), _c.expires_at > bind("now", _c.expires_at))
_until_age, _until_key = exactly("until_age", _c.created_at), bind("until_key", _c.cache_key)
_old = sa.and_(_c.created_at <= _until_age, sa.tuple_(*_ORDER) < sa.tuple_(_until_age, _until_key))

_keys = sa.select(_c.cache_key.label("key"))
_amount = sa.select(sa.func.count().label("rows")).select_from(CACHE)


def _by_expiry(statement: sa.Select[Any]) -> sa.Select[Any]:
    return through(statement.where(_expired), CACHE, "ix_output_cache_expiry")


def _by_age(statement: sa.Select[Any], condition: sa.ColumnElement[bool] = _old) -> sa.Select[Any]:
    return through(statement.where(condition), CACHE, "ix_output_cache_newest")


def _among(keys: Any) -> sa.Select[Any]:
    return _keys.where(_c.cache_key.in_(keys), sa.or_(_expired, _old)).order_by(_c.cache_key)


def _locking(statement: sa.Select[Any]) -> sa.Select[Any]:
    return statement.with_for_update(skip_locked=True)


class Statements:
    """The statements. An entry that has expired counts as such, however old it is."""

    known = family(lambda keys: _keys.where(_c.cache_key.in_(keys)), KeyRow)
    #: The last of the valid entries that are kept. It reads the expired ones between them, too, which all go.
    boundary = prepared(
        _by_age(sa.select(_c.created_at.label("age"), _c.cache_key.label("key")), _valid)
        .order_by(_c.created_at.desc(), _c.cache_key.desc())
        .limit(number(1))
        .offset(sa.bindparam("kept", type_=sa.Integer())),
        places.Ended,
    )
    expired = _by_expiry(_keys).order_by(_c.expires_at).limit(number(LOOK))
    old = _by_age(_keys).order_by(*_ORDER).limit(number(LOOK))
    look_expired, look_old = prepared(expired, KeyRow), prepared(old, KeyRow)
    lock_expired, lock_old = prepared(_locking(expired), KeyRow), prepared(_locking(old), KeyRow)
    chosen = family(_among, KeyRow)
    lock_chosen = family(lambda keys: _locking(_among(keys)), KeyRow)
    count_expired, count_old = prepared(_by_expiry(_amount)), prepared(_by_age(_amount, sa.and_(_old, _valid)))
    remove = family(lambda keys: sa.delete(CACHE).where(_c.cache_key.in_(keys)))


class Cache(OneStage):
    """The kind ``cache``. Whoever puts a new result in place of an expired one meanwhile keeps it."""

    name = "cache"
    record = "cached_output"
    tables = (_TABLE,)
    keep_days = 30
    keep_n = 100
    statements = Statements

    def known(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return those of these entries that there are."""
        return {row["key"] for row in rows(unit, Statements.known, keys)}

    def bounded(self, unit: Unit, terms: Terms) -> Terms:
        """The terms with the place before which entries are old enough, and not among the newest valid ones."""
        return places.bounded(unit, Statements.boundary, terms, now=_now(terms))

    def look(self, unit: Unit, terms: Terms, _after: Any) -> Look:
        """Return the next batch of removable entries. It needs no cursor: removed entries are not found again."""
        return Look(_next(unit, terms, Statements.look_expired, Statements.look_old, Statements.chosen), None)

    def remove(self, unit: Unit, terms: Terms, _keys: list[str], most: int) -> Removal:
        """Remove about ``most`` entries that may go now. Those that somebody has locked are passed over."""
        gone = 0
        while gone < most:
            keys = _next(unit, terms, Statements.lock_expired, Statements.lock_old, Statements.lock_chosen)
            if not keys:
                break
            gone += unit.change(*Statements.remove.of(keys[: most - gone]))
        return Removal(+Counter({_TABLE: gone}), more=gone >= most)

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """The entries that would go."""
        found = Tally()
        if terms["ids"] is None:
            looks = (Statements.look_expired, Statements.look_old)
            found.add(dict.fromkeys(row["key"] for look in looks for row in unit.rows(look, _values(terms))))
            counts = (Statements.count_expired, Statements.count_old)
            found.records = sum(unit.value(count, _values(terms)) for count in counts)
        else:
            found.add(row["key"] for row in rows(unit, Statements.chosen, terms["ids"], _values(terms)))
        found.counts[_TABLE] = found.records
        return found


def _next(
    unit: Unit, terms: Terms, expired: Statement[KeyRow], old: Statement[KeyRow], chosen: Family[KeyRow]
) -> list[str]:
    """Return some entries that may go, those that have expired first."""
    values = _values(terms)
    if terms["ids"] is not None:
        return [row["key"] for row in rows(unit, chosen, terms["ids"], values)][:LOOK]
    return [row["key"] for row in unit.rows(expired, values) or unit.rows(old, values)]


def _values(terms: Terms) -> Row:
    age, key = places.read(terms["until"])
    return {"now": _now(terms), "until_age": age, "until_key": key}


def _now(terms: Terms) -> datetime:
    """Return the time at which the prune began."""
    return cutoff(terms) + timedelta(days=terms["keep_days"])


CACHE_SWEEP = Cache()
