"""Checks that a caller's transaction belongs to the store's own database before it is joined."""

from __future__ import annotations

from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy.engine import Connection, Engine

from lastlight_state.backends.base import Backend, Checkout
from lastlight_state.errors import MisuseError

#: The engines known to connect to the database of a backend.
_known: WeakKeyDictionary[Backend, WeakSet[Engine]] = WeakKeyDictionary()


def refuse_elsewhere(backend: Backend, connection: Connection, checkout: Checkout) -> None:
    """Raise `MisuseError` if a joined checkout belongs to another database, after leaving it.

    Queries each engine only once.
    """
    engines = _known.setdefault(backend, WeakSet())
    if connection.engine in engines:
        return
    theirs, ours = "", "?"
    try:
        theirs, ours = backend.places(checkout)
    finally:
        if theirs != ours:
            backend.leave(checkout)
    if theirs != ours:
        raise MisuseError(f"connection= is to another database than the store: {theirs}, not {ours}")
    engines.add(connection.engine)
