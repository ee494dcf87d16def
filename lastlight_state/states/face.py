"""States: a key-value store within scopes, for data that a program keeps and changes in place.

A scope is the caller's name for a group of keys: an application, a user, a session, a namespace. A value is JSON or
bytes. Each write gives the value a new version. So a reader can write on the condition that no other writer has changed
the value in between. An expired value counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.lists.filters import prefix_range
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import FoundRows, Unit
from lastlight_state.errors import InvalidValue, PayloadTooLarge, StaleVersion
from lastlight_state.ids import new_id
from lastlight_state.states import statements as sql
from lastlight_state.states.models import STATES
from lastlight_state.states.records import REMOVED, State, StateSummary

#: The kind of record that `NotFound` names.
STATE = "state"
#: Most keys of one call, and most bytes of all its values together.
MANY, TOGETHER_BYTES = 10_000, 128 * 1024 * 1024

_LIMITS = limits_of(STATES)
_SCALARS = (str, int, float, bool, type(None))


class _Change(NamedTuple):
    """A change of a key: the new row (None for a removal), and the version that the stored state must have."""

    key: str
    row: Row | None
    expected: Any


class States(Repository):
    """``store.states``"""

    def put(
        self,
        key: str,
        value: Any,
        *,
        scope: str = "",
        expected: str | UnsetType | None = UNSET,
        ttl: timedelta | None = None,
        user: str | None = None,
    ) -> StateSummary:
        """Store a value, JSON or bytes, under a key. A stored value is replaced.

        ``expected`` is the version that the stored state must have (None: no state may exist); otherwise `StaleVersion`
        is raised. ``ttl`` is the time to live from now on, ``user`` the owner, for erasure; if not given, both stay.
        Raises `InvalidValue` and `PayloadTooLarge`.
        """
        common = self._common(scope, ttl, user)
        change = _change(common, key, value, expected)
        if value is REMOVED:
            raise InvalidValue("value", "REMOVED is for merge: use remove")
        return self._writing(lambda unit: _put(unit, common, change), repeatable=True)

    def merge(
        self,
        changes: Mapping[str, Any],
        *,
        scope: str = "",
        expected: Mapping[str, str | None] | None = None,
        ttl: timedelta | None = None,
        user: str | None = None,
    ) -> dict[str, str]:
        """Store many values, and remove the keys whose value is ``REMOVED``, all or nothing.

        Other keys are not changed. Returns the version of each stored key; all keys of a call get the same version.
        ``expected`` maps keys to required versions, as in `put`; a key to remove need not exist. Raises the errors of
        `put`.
        """
        common = self._common(scope, ttl, user)
        drafts = _changes(common, changes, expected)

        def work(unit: Unit) -> dict[str, str]:
            versions = {}
            for change in drafts:
                if change.row is None:
                    _remove(unit, common, change)
                else:
                    versions[change.key] = _put(unit, common, change).version
            return versions

        return self._writing(work, repeatable=True) if drafts else {}

    def get(self, key: str, *, scope: str = "") -> State:
        """Return the state with its value. Raises `NotFound`."""
        given = self._key_parameters(key, scope)
        return self._get_row(sql.GET, given, kind=STATE, key=(scope, key))

    def find(self, key: str, *, scope: str = "") -> State | None:
        """Return the state with its value, or None."""
        return self._find(sql.GET, self._key_parameters(key, scope))

    def find_many(self, keys: Collection[str], *, scope: str = "") -> dict[str, State]:
        """Return the stored states of the given keys, by key, in the given order, with one statement.

        Missing keys are left out. An unreadable state is logged and left out; `get` raises its error.
        """
        valid.at_most("keys", listed := valid.several("keys", keys), MANY)
        name = valid.lookup_text("scope", scope)
        wanted = [{"scope": name, "key": valid.lookup_text("keys", one)} for one in dict.fromkeys(listed)]
        if not wanted:
            return {}
        given = {"wanted": as_list(wanted), **self._at()}
        rows, _ = self._reading(lambda unit: unit.readable_rows(sql.GET_MANY, given))
        found = {state.key: state for state in rows}
        return {one["key"]: found[one["key"]] for one in wanted if one["key"] in found}

    def list(
        self,
        *,
        scope: str | None = None,
        under: str | None = None,
        prefix: str | None = None,
        user: str | None = None,
        where: dict[str, Any] | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[StateSummary]:
        """Return a page of states without their values, ordered by scope and key.

        ``scope`` selects one scope, ``under`` all scopes with this prefix, ``prefix`` all keys with this prefix.
        ``where`` has keys and values (text, numbers, bools or None) that a JSON value must contain. ``where``,
        ``user``, and ``prefix`` without a scope need a scan of the list. A store with a codec refuses ``where``; a
        store without one leaves out sealed values.
        """
        given = self._filters(scope, under, prefix, user, where)
        return self._page(sql.LIST, given, limit, page_token, also=self._at())

    def items(
        self,
        *,
        scope: str | None = None,
        under: str | None = None,
        prefix: str | None = None,
        user: str | None = None,
        where: dict[str, Any] | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[State]:
        """Return a page of states with their values, selected as in `list`."""
        given = self._filters(scope, under, prefix, user, where)
        return self._page(sql.ITEMS, given, limit, page_token, also=self._at())

    def scopes(self, *, under: str | None = None, limit: int = 50, page_token: str | None = None) -> Page[str]:
        """Return a page of the scopes that have keys, or of those with the prefix ``under``. Scans all keys."""
        given = self._filters(None, under, None, None, None)
        return self._page_as(sql.SCOPES, lambda row: row[0], given, limit, page_token, also=self._at())

    def expire(
        self, key: str, at: datetime | None, *, scope: str = "", expected: str | UnsetType = UNSET
    ) -> StateSummary:
        """Set the time at which a state expires (None: never). The state keeps its version.

        Raises `NotFound`, and `StaleVersion` if the state does not have the version ``expected``.
        """
        version = expected if expected is UNSET else valid.identifier("expected", expected)
        end = None if at is None else aware_utc("at", at)
        given = {**self._key_parameters(key, scope), "expires_at": end, "expected": version}
        statement = sql.EXPIRE if version is UNSET else sql.EXPIRE_VERSION
        found = self._change_row(statement, given, repeatable=True)
        if found is not None:
            return found
        other = None if version is UNSET else self._find(sql.SUMMARY, given)
        if other is None:
            raise valid.not_found(STATE, (scope, key))
        raise StaleVersion(STATE, (scope, key), expected=version, found=other.version)

    def remove(self, key: str, *, scope: str = "", expected: str | UnsetType = UNSET) -> bool:
        """Remove a state. Return True if it existed.

        Raises `StaleVersion` if the state does not have the version ``expected``. If the answer to the commit is lost,
        the call is retried and then returns False although it removed the state.
        """
        sought = self._key_parameters(key, scope)
        common = {**self._common("", None, None), **sought}
        change = _Change(sought["key"], None, _removable(expected))
        return self._writing(lambda unit: _remove(unit, common, change), repeatable=True)

    def clear(self, scope: str, *, prefix: str = "") -> int:
        """Remove all states of a scope, or those whose keys have this prefix, in one statement.

        Returns the number of removed rows, expired states included. Returns 0 after a retry, for the reason given at
        `remove`.
        """
        given = {"scope": valid.lookup_text("scope", scope), **prefix_range("prefix", prefix)}
        return self._once(lambda unit: unit.change(sql.CLEAR[bool(prefix)], given), repeatable=True)

    def state_of(self, state_id: str) -> State:
        """Return the state of an ``id``, as plans name it, also one that has expired. Raises `NotFound`."""
        return self._get_row(sql.GET_OF, {"id": valid.lookup_text("state_id", state_id)}, kind=STATE, key=state_id)

    def _bodies(self, under: str) -> Callable[[Values], FoundRows[sql.Body]]:
        """Return a function that reads the bytes of scopes that begin with ``under``, behind a scope and a key.

        For searches of adapters: ordered by scope and key, without other columns.
        """
        given = {**prefix_range("under", under), **self._at()}
        return lambda values: self._reading(lambda unit: unit.rows_or_errors(sql.BODIES, {**given, **values}))

    def _latest(self, under: str, limit: int) -> Sequence[StateSummary]:
        """Return the last changed ``limit`` states in scopes with the prefix ``under``, by a scan of these scopes."""
        given = {**prefix_range("under", under), **self._at()}
        return self._reading(lambda unit: unit.first_readable_rows(sql.LATEST, given, limit))

    def _at(self) -> Row:
        return {"now": self._now()}

    def _key_parameters(self, key: Any, scope: Any) -> Row:
        return {"key": valid.lookup_text("key", key), "scope": valid.lookup_text("scope", scope), **self._at()}

    def _filters(self, scope: Any, under: Any, prefix: Any, user: Any, where: Any) -> Row:
        if where is not None and self._backend.sealing is not None:
            raise InvalidValue("where", "values are sealed by a codec, and no statement can look into them")
        return {
            "scope": None if scope is None else valid.lookup_text("scope", scope),
            "under": None if under is None else prefix_range("under", under),
            "prefix": None if prefix is None else prefix_range("prefix", prefix),
            "user": None if user is None else valid.lookup_text("user", user),
            "where": _members(where),
        }

    def _common(self, scope: Any, ttl: Any, user: Any) -> Row:
        """Return the columns that are the same in all rows of one call."""
        now = self._now()
        return {
            "scope": valid.content("scope", scope, _LIMITS.scope),
            "version": new_id(),
            "created_at": now,
            "updated_at": now,
            "now": now,
            "expires_at": _end(now, ttl),
            "user": valid.optional("user", user, _LIMITS.user),
        }


def _changes(common: Row, given: Any, expected: Any) -> list[_Change]:
    """Check the changes of one call, and return them ordered by key, so that two calls cannot deadlock."""
    named = valid.argument_group("changes", given, Mapping)  # type: ignore[type-abstract]
    versions = {} if expected is None else valid.argument_group("expected", expected, Mapping)  # type: ignore[type-abstract]
    valid.at_most("changes", named, MANY)
    for key in versions:
        if key not in named:
            raise InvalidValue(f"expected.{key!s:.80}", "must be a key of changes")
    keys = sorted(valid.identifier("changes", key, _LIMITS.key) for key in named)
    drafts = [_change(common, key, named[key], versions.get(key, UNSET), where=f"changes.{key:.80}") for key in keys]
    size = sum(len(one.row["body"] or one.row["value"] or "") for one in drafts if one.row is not None)
    if size > TOGETHER_BYTES:
        raise PayloadTooLarge("changes", limit=TOGETHER_BYTES, actual=size)
    return drafts


def _change(common: Row, key: Any, value: Any, expected: Any, *, where: str = "value") -> _Change:
    name = valid.identifier("key", key, _LIMITS.key)
    if value is REMOVED:
        return _Change(name, None, _removable(expected))
    version = expected if expected is UNSET else valid.optional("expected", expected)
    row = {**common, "id": new_id(), "key": name, "value": None, "body": None, "expected": version}
    if isinstance(value, bytes | bytearray | memoryview):
        if len(value) > _LIMITS.body:
            raise PayloadTooLarge(where, limit=_LIMITS.body, actual=len(value))
        row["body"] = bytes(value)
    else:
        row["value"] = codec.encode(where, value, max_bytes=_LIMITS.value)
    return _Change(name, row, version)


def _removable(expected: Any) -> Any:
    """Check the version that a state to remove must have, and return it. UNSET means any version."""
    if expected is None:
        raise InvalidValue("expected", "must be a version: a state that does not exist cannot be removed")
    return expected if expected is UNSET else valid.identifier("expected", expected)


def _put(unit: Unit, common: Row, change: _Change) -> StateSummary:
    assert change.row is not None  # noqa: S101 - for mypy
    if change.expected is UNSET:
        [stored] = unit.rows(sql.PUT, change.row)
        return stored
    statement = sql.ADD if change.expected is None else sql.REPLACE
    stored_or_none = unit.row(statement, change.row)
    if stored_or_none is not None:
        return stored_or_none
    found = _find_summary(unit, common, change)
    if found is None or found.version != common["version"]:  # else an earlier attempt of this call was committed
        raise _stale(common, change, found)
    return found


def _remove(unit: Unit, common: Row, change: _Change) -> bool:
    """Remove a state. Returns True if it existed and had not expired."""
    given = {**common, "key": change.key, "expected": change.expected}
    removed = unit.row(sql.REMOVE if change.expected is UNSET else sql.REMOVE_VERSION, given)
    if removed is None and change.expected is not UNSET and (found := _find_summary(unit, common, change)) is not None:
        raise _stale(common, change, found)
    if removed is None:
        return False
    (expires_at,) = removed
    return expires_at is None or expires_at > common["now"]


def _find_summary(unit: Unit, common: Row, change: _Change) -> StateSummary | None:
    return unit.row(sql.SUMMARY, {**common, "key": change.key})


def _stale(common: Row, change: _Change, found: StateSummary | None) -> StaleVersion:
    version = None if found is None else found.version
    return StaleVersion(STATE, (common["scope"], change.key), expected=change.expected, found=version)


def _end(now: datetime, ttl: Any) -> datetime | None:
    if ttl is None:
        return None
    lasting = valid.duration("ttl", ttl, least=timedelta(milliseconds=1))
    try:
        return now + lasting
    except OverflowError:
        raise InvalidValue("ttl", "must end before the year 10000") from None


def _members(given: Any) -> str | None:
    """Check the filter ``where`` on values, and return it as JSON text. None means no filter."""
    if given is None or valid.argument_group("where", given, dict) == {}:
        return None
    for name, value in given.items():
        if not isinstance(value, _SCALARS):
            raise InvalidValue(f"where.{name!s:.80}", "expected text, a number, True, False or None")
    return codec.encode("where", given, max_bytes=_LIMITS.value)
