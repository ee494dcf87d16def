"""The states of ADK's sessions in ``store.states``: one state per key, in scopes for application, user and session."""

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

with suppress(ImportError):  # without ADK the module can still be imported
    from google.adk.sessions.state import State as Prefixes

#: States that one query reads.
PAGE = 500
#: Most bytes of each column of a state.
STATE_LIMITS = limits_of(STATES)
#: Prefix of a stored key that is the digest of an ADK key. ADK keys that begin with it are digested too.
_DIGEST = "%"


class Place(NamedTuple):
    """The scopes that hold a session and its states."""

    app: str
    user: str
    sessions: str
    session: str


class Deltas(NamedTuple):
    """Changes of ADK state, split by scope. Temporary keys are left out."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]


def jsonable(state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a state to JSON types as ADK's own services do, but keep NaN and infinities."""
    made: dict[str, Any] = to_jsonable_python(dict(state), serialize_unknown=True)
    return made


def deltas(state: Mapping[str, Any]) -> Deltas:
    """Split changes of state by scope, and remove the prefixes from their keys."""
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
    """Write changes of state, each key separately, so that writers of other keys never wait."""
    whose = user_id or None
    for scope, delta, user in (
        (place.app, changes.app, None),
        (place.user, changes.user, whose),
        (place.session, changes.session, whose),
    ):
        tx.states.merge(dict(_stored_entry(key, value) for key, value in delta.items()), scope=scope, user=user)


def by_scope(view: View | Transaction, **within: Any) -> Mapping[str, dict[str, Any]]:
    """Return the values of states by scope and key. A scope without states maps to an empty dictionary."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for one in iterate(view.states.items, limit=PAGE, **within):
        key, value = one.key, runtime.unpack_item(one.value)
        if key.startswith(_DIGEST):
            key, value = value
        found[one.scope][key] = value
    return found


def _stored_entry(key: str, value: Any) -> tuple[str, Any]:
    """Return the key and value under which an ADK state entry is stored.

    An ADK key may be any text. If it is not valid as the key of a state, the stored key is a digest of it, and the
    value contains both key and value.
    """
    if valid.is_identifier(key, STATE_LIMITS.key) and not key.startswith(_DIGEST):
        return key, runtime.pack_item(value)
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return _DIGEST + digest, runtime.pack_item([key, value])
