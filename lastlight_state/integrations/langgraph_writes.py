"""LangGraph tasks' writes that arrive before their checkpoints.

They are kept in memory until the checkpoints are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from lastlight_state.checkpoints import NewWrite
from lastlight_state.checkpoints.models import WriteConflictRule
from lastlight_state.locks import Lock

#: A thread, a namespace, and a checkpoint id.
Place: TypeAlias = tuple[str, str, str]
#: Most checkpoints whose writes are kept.
_MOST_EARLY = 1_000


class Writes(NamedTuple):
    """A task's writes, in the form in which the store takes them."""

    task: str
    writes: list[NewWrite]
    taken: WriteConflictRule


class EarlyWrites:
    """Writes whose checkpoints are not stored yet. If there are too many, the oldest are dropped."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[Place, list[Writes]] = {}

    def add(self, place: Place, made: Writes) -> None:
        """Keep writes until their checkpoint is stored."""
        with self._lock:
            self._kept.setdefault(place, []).append(made)
            if len(self._kept) > _MOST_EARLY:
                del self._kept[next(iter(self._kept))]

    def remove(self, place: Place, made: Writes) -> None:
        """Drop writes that were stored."""
        with self._lock:
            left = [one for one in self._kept.pop(place, ()) if one is not made]
            if left:
                self._kept[place] = left

    def take(self, place: Place) -> Sequence[Writes]:
        """Remove and return the writes of a checkpoint."""
        if not self._kept:
            return ()
        with self._lock:
            return self._kept.pop(place, ())

    def forget(self, thread: str) -> None:
        """Drop all writes of a thread."""
        with self._lock:
            for place in [one for one in self._kept if one[0] == thread]:
                del self._kept[place]
