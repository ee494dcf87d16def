"""Waiting for one value of a `Watch`, for a limited time."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from lastlight_state.db.scope import Scope, TransactionScope
from lastlight_state.db.watch import NOTHING_YET, Watch
from lastlight_state.errors import MisuseError
from lastlight_state.unwinding import block

K = TypeVar("K", bound=Hashable)


class Arrivals(Generic[K]):
    """Tells whether the value of a key has grown since it was asked last; at first, since it was ``known``."""

    def __init__(self, watch: Watch[K], key: K, seconds: float, known: int) -> None:
        self._watch = watch
        self._known = {key: known}
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """How much of the time is left."""
        return max(0.0, self._end - time.monotonic())

    def wait(self, seconds: float) -> bool:
        """Wait until the value has grown, and return whether it has. Raises `StoreClosed`."""
        grown = self._watch.grown(self._known, seconds)
        self._known.update(grown)
        return bool(grown)


def refuse_in_transaction(scope: Scope) -> None:
    """Raise `MisuseError` in a transaction or view."""
    if isinstance(scope, TransactionScope):
        raise MisuseError("waiting takes longer than a transaction should: call it on the store")


@block
def arrivals(
    watch: Watch[K],
    key: K,
    seconds: float,
    poll_interval: float,
    *,
    known: int = NOTHING_YET,
    woken: Callable[[], object] | None = None,
    slows_down: bool = False,
) -> Iterator[Arrivals[K]]:
    """Watch a key. ``woken`` is called by the thread that looks when something has come."""
    with watch.waiting_for([key], poll_interval, woken, slows_down=slows_down):
        yield Arrivals(watch, key, seconds, known)
