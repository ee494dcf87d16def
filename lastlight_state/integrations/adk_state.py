"""The state of ADK's sessions as ``store.states`` keeps it: a state for each key, in scopes of its application, user
and session."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic_core import to_jsonable_python

from lastlight_state.conversations import runtime
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import iterate
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.domains import Transaction, View
from lastlight_state.states.models import STATES

with suppress(ImportError):  # the module can be looked at without ADK
    from google.adk.sessions.state import State as Prefixes

#: How many states are read at once.
PAGE = 500
#: How many bytes the columns of a state take.
STATE_LIMITS = limits_of(STATES)
#: The beginning of a key that stands for another one, by its digest. Keys of ADK that begin so are replaced, too.
_DIGEST = "%"


class Place(NamedTuple):
    """Where the states of a session are: scopes."""

    app: str
    user: str
    sessions: str
    session: str


class Deltas(NamedTuple):
    """Changes of state by where they belong, without what is temporary."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]


def jsonable(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as JSON types, as ADK's own services store it. NaN and infinities stay what they are."""
    made: dict[str, Any] = to_jsonable_python(dict(state), serialize_unknown=True)
    return made


def deltas(state: Mapping[str, Any]) -> Deltas:
    """Return changes of state by where they belong, with keys that have no prefix."""
    found = Deltas({}, {}, {})
    for key, value in state.items():
        if key.startswith(Prefixes.APP_PREFIX):
            found.app[key.removeprefix(Prefixes.APP_PREFIX)] = value
        elif key.startswith(Prefixes.USER_PREFIX):
            found.user[key.removeprefix(Prefixes.USER_PREFIX)] = value
        elif not key.startswith(Prefixes.TEMP_PREFIX):
            found.session[key] = value
    return found


def merge(tx: Transaction, place: Place, user_id: str, changes: Deltas) -> None:
    """Put changes of state, key by key: so nobody waits for another key."""
    whose = user_id or None
    for scope, delta, user in (
        (place.app, changes.app, None),
        (place.user, changes.user, whose),
        (place.session, changes.session, whose),
    ):
        tx.states.merge(dict(_stored(key, value) for key, value in delta.items()), scope=scope, user=user)


def by_scope(view: View | Transaction, **within: Any) -> Mapping[str, dict[str, Any]]:
    """Return the values of states by scope and key. A scope without states has an empty one."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for one in iterate(view.states.items, limit=PAGE, **within):
        key, value = one.key, runtime.unpacked(one.value)
        if key.startswith(_DIGEST):
            key, value = value
        found[one.scope][key] = value
    return found


def _stored(key: str, value: Any) -> tuple[str, Any]:
    """Return the key and the value of a state.

    A key of ADK may be any text. One that is no key of a state is replaced by its digest, and stands in the value.
    """
    if valid.is_identifier(key, STATE_LIMITS.key) and not key.startswith(_DIGEST):
        return key, runtime.packed(value)
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return _DIGEST + digest, runtime.packed([key, value])
