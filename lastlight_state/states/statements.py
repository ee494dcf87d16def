"""The SQL statements of states. Expired states are never returned, and are replaced as if they did not exist."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import has_members, member_of
from lastlight_state.db.lists.filters import begins_with
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Statement, bind, columns_of, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import elements_table
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import later_of
from lastlight_state.states.models import STATES
from lastlight_state.states.records import State, StateSummary

_c = STATES.c
_SUMMARY = columns_of(StateSummary, STATES)
_WHOLE = every_column_of(State, STATES)

_HERE = sa.and_(_c.scope == bind("scope", _c.scope), _c.key == bind("key", _c.key))


def _is_valid(table: Any) -> sa.ColumnElement[bool]:
    return sa.or_(table.c.expires_at.is_(None), table.c.expires_at > bind("now", _c.expires_at))


_VALID = _is_valid(STATES)

# Writes. All rows of one call get the same version, time and expiry.

_new = insert(STATES).values({column.name: bind(column.name, column) for column in STATES.columns})
_given = _new.excluded
_IS_OVER = sa.and_(_c.expires_at.is_not(None), _c.expires_at <= _given.updated_at)


def _unless_over(kept: Any, given: Any) -> Any:
    return sa.case((_IS_OVER, given), else_=kept)


_REPLACED = {
    "version": _given.version,
    "created_at": _unless_over(_c.created_at, _given.created_at),
    "updated_at": later_of(_c.updated_at, _given.updated_at),
    "expires_at": _unless_over(sa.func.coalesce(_given.expires_at, _c.expires_at), _given.expires_at),
    "user": _unless_over(sa.func.coalesce(_given.user, _c.user), _given.user),
    "value": _given.value,
    "body": _given.body,
}


def _put_statement(where: sa.ColumnElement[bool] | None) -> Statement[StateSummary]:
    stored = _new.on_conflict_do_update(index_elements=[_c.scope, _c.key], set_=_REPLACED, where=where)
    return statement_of(stored.returning(*_SUMMARY), StateSummary)


#: Store a value, whether the key exists or not.
PUT = _put_statement(None)
#: Store a value if the key does not exist or has expired.
ADD = _put_statement(_IS_OVER)
#: Replace a value that has the version ``expected``.
REPLACE = statement_of(
    sa.update(STATES)
    .where(_HERE, _c.version == bind("expected", _c.version), _VALID)
    .values(
        version=bind("version", _c.version),
        updated_at=later_of(_c.updated_at, bind("updated_at", _c.updated_at)),
        expires_at=sa.func.coalesce(bind("expires_at", _c.expires_at), _c.expires_at),
        user=sa.func.coalesce(bind("user", _c.user), _c.user),
        value=bind("value", _c.value),
        body=bind("body", _c.body),
    )
    .returning(*_SUMMARY),
    StateSummary,
)


def _expire_statement(*also: sa.ColumnElement[bool]) -> Statement[StateSummary]:
    """Return what sets an expiry. A state that has expired at that very time is found by a call that is repeated."""
    end = bind("expires_at", _c.expires_at)
    changed = sa.update(STATES).where(_HERE, *also, sa.or_(_VALID, _c.expires_at == end)).values(expires_at=end)
    return statement_of(changed.returning(*_SUMMARY), StateSummary)


#: Set when a state expires.
EXPIRE = _expire_statement()
#: Set when a state with the version ``expected`` expires.
EXPIRE_VERSION = _expire_statement(_c.version == bind("expected", _c.version))
#: Remove a state, and return when it expires or has expired.
REMOVE: Statement[tuple[datetime | None]] = statement_of(sa.delete(STATES).where(_HERE).returning(_c.expires_at), tuple)
#: Remove the one with the version ``expected``.
REMOVE_VERSION: Statement[tuple[datetime | None]] = statement_of(
    sa.delete(STATES).where(_HERE, _c.version == bind("expected", _c.version), _VALID).returning(_c.expires_at), tuple
)

# Reads.

SUMMARY = statement_of(sa.select(*_SUMMARY).where(_HERE, _VALID), StateSummary)
GET = statement_of(sa.select(*_WHOLE).where(_HERE, _VALID), State)
#: By its id, also one that has expired.
GET_OF = statement_of(sa.select(*_WHOLE).where(_c.id == bind("id", _c.id)), State)

_wanted = elements_table("wanted")
_by_key = sa.select(
    member_of(_wanted.c.value, "scope").label("scope"), member_of(_wanted.c.value, "key").label("key")
).subquery("w")
#: The stored states of several keys.
GET_MANY = statement_of(
    sa.select(*_WHOLE)
    .select_from(_by_key)
    .join(STATES, sa.and_(_c.scope == _by_key.c.scope, _c.key == _by_key.c.key))
    .where(_VALID),
    State,
)


_FILTERS = {
    "scope": _c.scope == bind("scope", _c.scope),
    "under": begins_with("under", _c.scope),
    "prefix": begins_with("prefix", _c.key),
    "user": _c.user == bind("user", _c.user),
    "where": has_members(_c.value, sa.bindparam("where", type_=columns.Text)),
}
_ORDER = (_c.scope, _c.key)


def _list(name: str, shown: Sequence[sa.Column[Any]], row: Any, *always: sa.ColumnElement[bool]) -> Listing[Any]:
    return Listing(name, shown, order=_ORDER, filters=_FILTERS, always=(_VALID, *always), descending=False, row=row)


LIST: Listing[StateSummary] = _list("states", _SUMMARY, StateSummary)
ITEMS: Listing[State] = _list("states.items", _WHOLE, State)

_before = STATES.alias("before")
_is_first = ~sa.exists(
    sa.select(number(1)).where(_before.c.scope == _c.scope, _before.c.key < _c.key, _is_valid(_before))
)
#: Scopes, each with its first key.
SCOPES: Listing[tuple[str, str]] = _list("states.scopes", [_c.scope, _c.key], tuple, _is_first)

#: A scope, a key and the bytes of the state there.
Body: TypeAlias = tuple[str, str, bytes | None]
#: The bytes of states of a range of scopes, behind a scope and a key.
BODIES: Statement[Body] = statement_of(
    sa.select(_c.scope, _c.key, _c.body)
    .where(
        sa.tuple_(*_ORDER) > sa.tuple_(*(bind(f"after_{column.name}", column) for column in _ORDER)),
        _c.scope < bind("under_end", _c.scope),
        _VALID,
    )
    .order_by(*_ORDER)
    .limit(sa.bindparam("limit", type_=sa.Integer)),
    tuple,
)

#: The last changed states in a range of scopes.
LATEST = statement_of(
    sa.select(*_SUMMARY)
    .where(begins_with("under", _c.scope), _VALID)
    .order_by(_c.updated_at.desc(), *_ORDER)
    .limit(sa.bindparam("limit", type_=sa.Integer)),
    StateSummary,
)

_in_scope = _c.scope == bind("scope", _c.scope)
#: Remove the states of a scope, by whether a prefix of keys is given. Removes expired states too.
CLEAR = {
    True: statement_of(sa.delete(STATES).where(_in_scope, begins_with("prefix", _c.key))),
    False: statement_of(sa.delete(STATES).where(_in_scope)),
}
