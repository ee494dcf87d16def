"""Progress of long work. Maintenance reports it, and a listener in the same context can show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Progress(NamedTuple):
    """How much of a task is done. ``total`` is None if it is unknown before the end."""

    what: str
    done: int
    total: int | None
    unit: str


Listener = Callable[[Progress], object]
_listener: ContextVar[Listener | None] = ContextVar("lastlight_state_progress", default=None)


def tell(what: str, done: int, total: int | None = None, *, unit: str = "rows") -> None:
    """Report how much of ``what`` is done. Costs almost nothing if there is no listener."""
    listener = _listener.get()
    if listener is not None:
        listener(Progress(what, done, total, unit))


@contextmanager
def report_to(listener: Listener) -> Iterator[None]:
    """Pass all progress that is reported inside the block to this listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
