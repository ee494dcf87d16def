"""Steps outlast a database that is away: an outage is no failed try, and no result that was paid for is thrown away."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.worker.calls import settled

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

#: The errors of a database that may be back soon. Others come again with each repetition.
AWAY = (BackendBusy, BackendUnavailable)


async def outlasted(held: Any, call: Callable[[], Awaitable[T] | T], *, repeatable: bool = True) -> T:
    """Return what a call returned, repeated while the database is away and the run may still be this worker's.

    A call that is not ``repeatable`` raises where nobody knows whether it was carried out.
    """
    while True:
        begun = time.monotonic()
        try:
            return await settled(call())
        except AWAY as away:
            if away.outcome == "unknown" and not repeatable:
                raise
            await held.outlast(away, begun)


def outlasting(
    step: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Repeat a step of a place while the database is away. Leaves the function where the worker stops meanwhile."""

    @wraps(step)
    async def repeated(self: S, *given: P.args, **named: P.kwargs) -> T:
        steps: Any = self
        names = set(steps._place.used)
        while True:
            begun = time.monotonic()
            try:
                return await step(self, *given, **named)
            except AWAY as away:
                steps._held.check()
                await steps._held.outlast(away, begun)
                steps._place.used.intersection_update(names)

    return cast(Callable[Concatenate[S, P], Coroutine[Any, Any, T]], repeated)
