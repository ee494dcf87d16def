"""States: values by key within a scope, for what a program keeps and changes in place.

A scope is a name of the caller's for what belongs together: an application, a user, a session, a namespace. A value is
JSON or bytes. Each write gives it another version, so that whoever read it can write only what nobody else changed
meanwhile. One that has expired counts as not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
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

#: What `NotFound` calls a state.
STATE = "state"
#: The most keys of one call, and the most bytes of its values together.
MANY, TOGETHER_BYTES = 10_000, 128 * 1024 * 1024

_MOST = limits_of(STATES)
_SCALARS = (str, int, float, bool, type(None))
#: More characters of four bytes than a key or a scope can have.
_LONGEST = 300
_LAST, _BEFORE_SURROGATES, _BEHIND_SURROGATES = "\U0010ffff", "\ud7ff", "\ue000"


class _Change(NamedTuple):
    """What is to happen to a key: its new row, None for a removal, and the version that it must have."""

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
        """Put a value, JSON or bytes, in the place of the one that is there.

        With ``expected`` that must have this version, or there must be none for None: else `StaleVersion`. ``ttl`` is
        how long the state lives from now on, and ``user`` whose it is, for erasure; without them both stay. Raises
        `InvalidValue` and `PayloadTooLarge`.
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
        """Put many values, and remove the keys whose value is ``REMOVED``: all of it or nothing. Other keys stay.

        Returns the version of each key that was put, which is one for all of them. ``expected`` names versions that
        some of the keys must have, as in `put`; a key that is to be removed may be gone already. Raises as `put`.
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
        given = self._sought(key, scope)
        return self._one_as(State.of, sql.GET, given, kind=STATE, key=(scope, key))

    def find(self, key: str, *, scope: str = "") -> State | None:
        """Return the state with its value, or None."""
        return self._find_as(State.of, sql.GET, self._sought(key, scope))

    def find_many(self, keys: Collection[str], *, scope: str = "") -> dict[str, State]:
        """Return those of these keys that are there, in the given order, by one statement.

        One that cannot be read is passed over and logged; `get` names it.
        """
        valid.at_most("keys", listed := valid.several("keys", keys), MANY)
        name = valid.sought("scope", scope)
        wanted = [{"scope": name, "key": valid.sought("keys", one)} for one in dict.fromkeys(listed)]
        if not wanted:
            return {}
        given = {"wanted": as_list(wanted), **self._at()}
        rows, _ = self._reading(lambda unit: unit.sound(sql.GET_MANY, given))
        found = {row["key"]: State.of(row) for row in rows}
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
        """Return a page of states without their values, by scope and key: all, or those that pass these filters.

        ``scope`` is a scope and ``under`` the beginning of scopes; ``prefix`` is the beginning of keys. ``where`` are
        members that a value must have, with texts, numbers, flags or None: a walk along the list, as for ``user``, and
        for ``prefix`` without a scope. A store with a codec refuses ``where``; one without passes over sealed values.
        """
        given = self._filters(scope, under, prefix, user, where)
        return self._page_as(sql.LIST, StateSummary.of, given, limit, page_token, also=self._at())

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
        """Return a page of states with their values, as `list`."""
        given = self._filters(scope, under, prefix, user, where)
        return self._page_as(sql.ITEMS, State.of, given, limit, page_token, also=self._at())

    def scopes(self, *, under: str | None = None, limit: int = 50, page_token: str | None = None) -> Page[str]:
        """Return a page of the scopes that have keys, or of those that begin with ``under``: a walk along all keys."""
        given = self._filters(None, under, None, None, None)
        return self._page_as(sql.SCOPES, lambda row: row["scope"], given, limit, page_token, also=self._at())

    def expire(
        self, key: str, at: datetime | None, *, scope: str = "", expected: str | UnsetType = UNSET
    ) -> StateSummary:
        """Set when a state expires, None for never. Its version stays.

        With ``expected`` one of another version stays as it is, and is `StaleVersion`. Raises `NotFound`.
        """
        version = expected if expected is UNSET else valid.identifier("expected", expected)
        end = None if at is None else aware_utc("at", at)
        given = {**self._sought(key, scope), "expires_at": end, "expected": version}
        statement = sql.EXPIRE if version is UNSET else sql.EXPIRE_VERSION
        found = self._changed_as(StateSummary.of, statement, given, repeatable=True)
        if found is not None:
            return found
        other = None if version is UNSET else self._find_as(StateSummary.of, sql.SUMMARY, given)
        if other is None:
            raise valid.not_found(STATE, (scope, key))
        raise StaleVersion(STATE, (scope, key), expected=version, found=other.version)

    def remove(self, key: str, *, scope: str = "", expected: str | UnsetType = UNSET) -> bool:
        """Remove a state. Returns True if it was there.

        With ``expected`` one of another version stays, and is `StaleVersion`. False also where this very call removed
        it, and was repeated because the answer to its commit got lost.
        """
        sought = self._sought(key, scope)
        common = {**self._common("", None, None), **sought}
        change = _Change(sought["key"], None, _removable(expected))
        return self._writing(lambda unit: _remove(unit, common, change), repeatable=True)

    def clear(self, scope: str, *, prefix: str = "") -> int:
        """Remove all states of a scope, or those whose keys have this beginning, in one statement.

        Returns how many rows there were, also of states that had expired; 0 after an answer that got lost, as `remove`.
        """
        given = {"scope": valid.sought("scope", scope), **_range("prefix", prefix)}
        return self._once(lambda unit: unit.change(sql.CLEAR[bool(prefix)], given), repeatable=True)

    def state_of(self, state_id: str) -> State:
        """Return the state of an ``id``, as plans name it, also one that has expired. Raises `NotFound`."""
        return self._one_as(State.of, sql.GET_OF, {"id": valid.sought("state_id", state_id)}, kind=STATE, key=state_id)

    def _bodies(self, under: str) -> Callable[[Values], FoundRows[sql.BodyRow]]:
        """Return a function that reads the bytes of scopes that begin with ``under``, behind a scope and a key.

        For the searches of adapters: in the order of lists, with no other column.
        """
        given = {**_range("under", under), **self._at()}
        return lambda values: self._reading(lambda unit: unit.readable(sql.BODIES, {**given, **values}))

    def _latest(self, under: str, limit: int) -> Sequence[StateSummary]:
        """Return the states of scopes that begin with ``under`` that were changed last, for the searches of adapters.

        All of them are compared, and as many as the limit kept.
        """
        given = {**_range("under", under), **self._at()}
        return self._reading(lambda unit: [*map(StateSummary.of, unit.first_sound(sql.LATEST, given, limit))])

    def _at(self) -> Row:
        return {"now": self._now()}

    def _sought(self, key: Any, scope: Any) -> Row:
        return {"key": valid.sought("key", key), "scope": valid.sought("scope", scope), **self._at()}

    def _filters(self, scope: Any, under: Any, prefix: Any, user: Any, where: Any) -> Row:
        if where is not None and self._backend.sealing is not None:
            raise InvalidValue("where", "values are sealed by a codec, and no statement can look into them")
        return {
            "scope": None if scope is None else valid.sought("scope", scope),
            "under": None if under is None else _range("under", under),
            "prefix": None if prefix is None else _range("prefix", prefix),
            "user": None if user is None else valid.sought("user", user),
            "where": _members(where),
        }

    def _common(self, scope: Any, ttl: Any, user: Any) -> Row:
        """Return what the rows of one call have in common."""
        now = self._now()
        return {
            "scope": valid.content("scope", scope, _MOST.scope),
            "version": new_id(),
            "created_at": now,
            "updated_at": now,
            "now": now,
            "expires_at": _end(now, ttl),
            "user": valid.optional("user", user, _MOST.user),
        }


def _changes(common: Row, given: Any, expected: Any) -> list[_Change]:
    """Return the changes of one call in the order of their keys, so that two calls never wait for one another."""
    named = valid.group("changes", given, Mapping)  # type: ignore[type-abstract]
    versions = {} if expected is None else valid.group("expected", expected, Mapping)  # type: ignore[type-abstract]
    valid.at_most("changes", named, MANY)
    for key in versions:
        if key not in named:
            raise InvalidValue(f"expected.{key!s:.80}", "must be a key of changes")
    keys = sorted(valid.identifier("changes", key, _MOST.key) for key in named)
    drafts = [_change(common, key, named[key], versions.get(key, UNSET), where=f"changes.{key:.80}") for key in keys]
    size = sum(len(one.row["body"] or one.row["value"] or "") for one in drafts if one.row is not None)
    if size > TOGETHER_BYTES:
        raise PayloadTooLarge("changes", limit=TOGETHER_BYTES, actual=size)
    return drafts


def _change(common: Row, key: Any, value: Any, expected: Any, *, where: str = "value") -> _Change:
    name = valid.identifier("key", key, _MOST.key)
    if value is REMOVED:
        return _Change(name, None, _removable(expected))
    version = expected if expected is UNSET else valid.optional("expected", expected)
    row = {**common, "id": new_id(), "key": name, "value": None, "body": None, "expected": version}
    if isinstance(value, bytes | bytearray | memoryview):
        if len(value) > _MOST.body:
            raise PayloadTooLarge(where, limit=_MOST.body, actual=len(value))
        row["body"] = bytes(value)
    else:
        row["value"] = codec.encode(where, value, max_bytes=_MOST.value)
    return _Change(name, row, version)


def _removable(expected: Any) -> Any:
    """Return the version that a state must have which is removed."""
    if expected is None:
        raise InvalidValue("expected", "must be a version: what is not there cannot be removed")
    return expected if expected is UNSET else valid.identifier("expected", expected)


def _put(unit: Unit, common: Row, change: _Change) -> StateSummary:
    assert change.row is not None  # noqa: S101 - for mypy
    if change.expected is UNSET:
        [stored] = unit.all(StateSummary.of, sql.PUT, change.row)
        return stored
    statement = sql.ADD if change.expected is None else sql.REPLACE
    stored_or_none = unit.find(StateSummary.of, statement, change.row)
    if stored_or_none is not None:
        return stored_or_none
    found = _found(unit, common, change)
    if found is None or found.version != common["version"]:  # else this very call has been committed already
        raise _stale(common, change, found)
    return found


def _remove(unit: Unit, common: Row, change: _Change) -> bool:
    """Remove a key. Return True if it was there."""
    given = {**common, "key": change.key, "expected": change.expected}
    removed = unit.row(sql.REMOVE if change.expected is UNSET else sql.REMOVE_VERSION, given)
    if removed is None and change.expected is not UNSET and (found := _found(unit, common, change)) is not None:
        raise _stale(common, change, found)
    return removed is not None and (removed["expires_at"] is None or removed["expires_at"] > common["now"])


def _found(unit: Unit, common: Row, change: _Change) -> StateSummary | None:
    return unit.find(StateSummary.of, sql.SUMMARY, {**common, "key": change.key})


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


def _range(name: str, prefix: Any) -> Row:
    """Return the first text with this beginning, and the first behind all of them, in the order of code points."""
    first = valid.sought(name, prefix)
    kept = first.rstrip(_LAST)
    if not kept:
        end = _LAST * _LONGEST
    elif kept[-1] == _BEFORE_SURROGATES:
        end = kept[:-1] + _BEHIND_SURROGATES
    else:
        end = kept[:-1] + chr(ord(kept[-1]) + 1)
    return {f"{name}_first": first, f"{name}_end": end}


def _members(given: Any) -> str | None:
    """Return what a value must have, as JSON; None for nothing."""
    if given is None or valid.group("where", given, dict) == {}:
        return None
    for name, value in given.items():
        if not isinstance(value, _SCALARS):
            raise InvalidValue(f"where.{name!s:.80}", "expected text, a number, True, False or None")
    return codec.encode("where", given, max_bytes=_MOST.value)
