"""Where calls of repositories and waits can be watched, by whoever asks for that in `lastlight_state.telemetry`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: What is waited for: a connection of the pool, the write lock of a SQLite file, a named lock of Postgres.
Awaited = Literal["pool", "file", "named"]


class Observer(Protocol):
    """Makes the call that it is told of, and returns what the call returned."""

    def __call__(self, method: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> Any: ...


#: Who watches each call of a repository. None: nobody.
observer: Observer | None = None
#: Returns the trace and the span that the caller is in, as a run stores them. None: nobody knows.
current_span: Callable[[], tuple[str, str] | None] | None = None
#: Told of what was waited for, and how many seconds. None: nobody asks.
waits: Callable[[Awaited, float], None] | None = None


def timed(awaited: Awaited, call: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Make a call that may wait, and tell how long it took, also where it failed.

    What each unit waits for looks for `waits` first, so that a store without telemetry does not come here.
    """
    told = waits
    if told is None:
        return call(*given, **named)
    began = time.perf_counter()
    try:
        return call(*given, **named)
    finally:
        told(awaited, time.perf_counter() - began)
