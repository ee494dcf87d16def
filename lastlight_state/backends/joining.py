"""Whether a caller's transaction that is to be joined is one of the store's own database."""

from __future__ import annotations

from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy.engine import Connection, Engine

from lastlight_state.backends.base import Backend, Checkout
from lastlight_state.errors import MisuseError

#: The engines whose connections lead to the database of a backend.
_known: WeakKeyDictionary[Backend, WeakSet[Engine]] = WeakKeyDictionary()


def refuse_elsewhere(backend: Backend, connection: Connection, checkout: Checkout) -> None:
    """Leave a joined checkout of another database than the backend's, and raise `MisuseError`. Asks once per engine."""
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
