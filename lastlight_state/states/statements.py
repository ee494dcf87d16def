"""The SQL statements of states. An expired state is not returned, and is replaced as if it did not exist."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import has_members, member_of
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Statement, bind, number, prepared
from lastlight_state.db.rows.writes import listed
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import later_of
from lastlight_state.states.models import STATES
from lastlight_state.states.records import StateSummaryRow
from lastlight_state.states.rows import StateRow


class ScopeRow(TypedDict):
    """A scope that has keys."""

    scope: str
    key: str


class BodyRow(TypedDict):
    """Where a state is, and its bytes."""

    scope: str
    key: str
    body: bytes | None


class ExpiryRow(TypedDict):
    """When a state that was removed had expired, or would have."""

    expires_at: datetime | None


_c = STATES.c
_SUMMARY = [_c[name] for name in StateSummaryRow.__annotations__]
_WHOLE = list(STATES.columns)

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


def _putting(where: sa.ColumnElement[bool] | None) -> Statement[StateSummaryRow]:
    stored = _new.on_conflict_do_update(index_elements=[_c.scope, _c.key], set_=_REPLACED, where=where)
    return prepared(stored.returning(*_SUMMARY), StateSummaryRow)


#: Store a value, whether the key exists or not.
PUT = _putting(None)
#: Store a value if the key does not exist or has expired.
ADD = _putting(_IS_OVER)
#: Replace a value that has the version ``expected``.
REPLACE = prepared(
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
    StateSummaryRow,
)


def _expiring(*also: sa.ColumnElement[bool]) -> Statement[StateSummaryRow]:
    """Return a statement that sets when a state expires.

    A state that expired at exactly the new time also matches, so that a retry after a lost commit answer finds it.
    """
    end = bind("expires_at", _c.expires_at)
    changed = sa.update(STATES).where(_HERE, *also, sa.or_(_VALID, _c.expires_at == end)).values(expires_at=end)
    return prepared(changed.returning(*_SUMMARY), StateSummaryRow)


#: Set when a state expires.
EXPIRE = _expiring()
#: Set when a state with the version ``expected`` expires.
EXPIRE_VERSION = _expiring(_c.version == bind("expected", _c.version))
REMOVE = prepared(sa.delete(STATES).where(_HERE).returning(_c.expires_at), ExpiryRow)
#: Remove a state that has the version ``expected``.
REMOVE_VERSION = prepared(
    sa.delete(STATES).where(_HERE, _c.version == bind("expected", _c.version), _VALID).returning(_c.expires_at),
    ExpiryRow,
)

# Reads.

SUMMARY = prepared(sa.select(*_SUMMARY).where(_HERE, _VALID), StateSummaryRow)
GET = prepared(sa.select(*_WHOLE).where(_HERE, _VALID), StateRow)
#: A state by its internal id, even if expired.
GET_OF = prepared(sa.select(*_WHOLE).where(_c.id == bind("id", _c.id)), StateRow)

_wanted = listed("wanted")
_by_key = sa.select(
    member_of(_wanted.c.value, "scope").label("scope"), member_of(_wanted.c.value, "key").label("key")
).subquery("w")
#: The stored states of several keys.
GET_MANY = prepared(
    sa.select(*_WHOLE)
    .select_from(_by_key)
    .join(STATES, sa.and_(_c.scope == _by_key.c.scope, _c.key == _by_key.c.key))
    .where(_VALID),
    StateRow,
)


def _between(name: str, column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a text has a prefix: it lies in the range that ``_range`` of `face` computes."""
    return sa.and_(column >= bind(f"{name}_first", column), column < bind(f"{name}_end", column))


_FILTERS = {
    "scope": _c.scope == bind("scope", _c.scope),
    "under": _between("under", _c.scope),
    "prefix": _between("prefix", _c.key),
    "user": _c.user == bind("user", _c.user),
    "where": has_members(_c.value, sa.bindparam("where", type_=columns.Text)),
}
_ORDER = (_c.scope, _c.key)


def _list(name: str, shown: list[sa.Column[Any]], row: Any, *always: sa.ColumnElement[bool]) -> Listing[Any]:
    return Listing(name, shown, order=_ORDER, filters=_FILTERS, always=(_VALID, *always), descending=False, row=row)


LIST: Listing[StateSummaryRow] = _list("states", _SUMMARY, StateSummaryRow)
ITEMS: Listing[StateRow] = _list("states.items", _WHOLE, StateRow)

_before = STATES.alias("before")
_is_first = ~sa.exists(
    sa.select(number(1)).where(_before.c.scope == _c.scope, _before.c.key < _c.key, _is_valid(_before))
)
#: Scopes, each found by its first key.
SCOPES: Listing[ScopeRow] = _list("states.scopes", [_c.scope, _c.key], ScopeRow, _is_first)

#: The bytes of states in a range of scopes, after a scope and key.
BODIES = prepared(
    sa.select(_c.scope, _c.key, _c.body)
    .where(
        sa.tuple_(*_ORDER) > sa.tuple_(*(bind(f"after_{column.name}", column) for column in _ORDER)),
        _c.scope < bind("under_end", _c.scope),
        _VALID,
    )
    .order_by(*_ORDER)
    .limit(sa.bindparam("limit", type_=sa.Integer)),
    BodyRow,
)

#: The last changed states in a range of scopes.
LATEST = prepared(
    sa.select(*_SUMMARY)
    .where(_between("under", _c.scope), _VALID)
    .order_by(_c.updated_at.desc(), *_ORDER)
    .limit(sa.bindparam("limit", type_=sa.Integer)),
    StateSummaryRow,
)

_in_scope = _c.scope == bind("scope", _c.scope)
#: Remove the states of a scope, by whether a prefix of keys is given. Removes expired states too.
CLEAR = {
    True: prepared(sa.delete(STATES).where(_in_scope, _between("prefix", _c.key))),
    False: prepared(sa.delete(STATES).where(_in_scope)),
}
