"""Retries for steps while the database is unreachable.

An outage counts as no failed try and loses no finished result.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.worker.calls import result_of

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

#: Errors of a database that may soon be reachable again. Any other error would recur at each retry.
AWAY = (BackendBusy, BackendUnavailable)


async def outlast_outage(held: Any, call: Callable[[], Awaitable[T] | T], *, repeatable: bool = True) -> T:
    """Return the result of a call. Retry while the database is unreachable and this worker may still hold the run.

    If ``repeatable`` is False, an error of unknown outcome is raised, because the call may have been carried out.
    """
    while True:
        begun = time.monotonic()
        try:
            return await result_of(call())
        except AWAY as away:
            if away.outcome == "unknown" and not repeatable:
                raise
            await held.outlast(away, begun)


def retry_in_outage(
    step: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorate a step so that it is retried while the database is unreachable.

    Leaves the function if the worker stops.
    """

    @wraps(step)
    async def repeat_step(self: S, *given: P.args, **named: P.kwargs) -> T:
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

    return cast(Callable[Concatenate[S, P], Coroutine[Any, Any, T]], repeat_step)
