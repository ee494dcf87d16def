"""Progress of long work: maintenance reports it, and a listener in the same context shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Progress(NamedTuple):
    """How much of a piece of work is done. ``total`` is None if it is unknown before the end."""

    what: str
    done: int
    total: int | None
    unit: str


Listener = Callable[[Progress], object]
_listener: ContextVar[Listener | None] = ContextVar("lastlight_state_progress", default=None)


def tell(what: str, done: int, total: int | None = None, *, unit: str = "rows") -> None:
    """Report how much of ``what`` is done. Costs almost nothing without a listener."""
    listener = _listener.get()
    if listener is not None:
        listener(Progress(what, done, total, unit))


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report progress to this listener inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
