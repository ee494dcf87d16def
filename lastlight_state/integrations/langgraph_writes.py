"""Writes of LangGraph's tasks that come before their checkpoints, kept in memory until those are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from lastlight_state.checkpoints import NewWrite
from lastlight_state.checkpoints.models import Taken
from lastlight_state.locks import Lock

#: A thread, a namespace, and the id of a checkpoint.
Place: TypeAlias = tuple[str, str, str]
#: For how many checkpoints writes are kept.
_MOST_EARLY = 1_000


class Writes(NamedTuple):
    """What a task wrote, as the store takes it."""

    task: str
    writes: list[NewWrite]
    taken: Taken


class EarlyWrites:
    """Writes whose checkpoints are not stored yet, and without which they mean nothing. The oldest are forgotten."""

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
        """Forget writes that are stored."""
        with self._lock:
            left = [one for one in self._kept.pop(place, ()) if one is not made]
            if left:
                self._kept[place] = left

    def taken(self, place: Place) -> Sequence[Writes]:
        """Return the writes of a checkpoint, and forget them."""
        if not self._kept:
            return ()
        with self._lock:
            return self._kept.pop(place, ())

    def forget(self, thread: str) -> None:
        """Forget all writes of a thread."""
        with self._lock:
            for place in [one for one in self._kept if one[0] == thread]:
                del self._kept[place]
