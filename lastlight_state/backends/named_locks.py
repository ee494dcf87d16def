"""What a backend does for locks that have a name and no row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lastlight_state.errors import NotSupported


class NamedLocks(ABC):
    """The part of a backend that holds such locks for units."""

    #: Whether `locked` is there: a lock, a statement and the commit reach the server together.
    locks_in_one_trip = False

    @abstractmethod
    def named_lock(self, checkout: Any, name: str) -> None:
        """Hold ``name`` until the unit ends; others who ask for it wait."""

    def locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        """Run one statement while ``name`` is held, and return its cursor. It sees what earlier holders committed.

        Outside a transaction the same message commits it, so that the lock is held for the time of the statement alone,
        and not for a client's round trips.
        """
        raise NotSupported("locks of this database are taken by statements of their own")
