"""How far long work has come: maintenance tells it, and whoever listens in this context shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Progress(NamedTuple):
    """How much of a piece of work is done. ``total`` is None where nobody knows it before the end."""

    what: str
    done: int
    total: int | None
    unit: str


Listener = Callable[[Progress], object]
_listener: ContextVar[Listener | None] = ContextVar("lastlight_state_progress", default=None)


def tell(what: str, done: int, total: int | None = None, *, unit: str = "rows") -> None:
    """Say how much of ``what`` is done. Costs a look where nobody listens."""
    listener = _listener.get()
    if listener is not None:
        listener(Progress(what, done, total, unit))


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let the listener be told what is done inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
