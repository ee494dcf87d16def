"""Checks the arguments of awaited calls while they wait for a thread, so that a wrong argument is reported early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sized
from contextlib import suppress
from functools import partial
from typing import Any

from lastlight_state.aio.lanes import Lane
from lastlight_state.aio.outcomes import Outcome
from lastlight_state.db.repository import Context
from lastlight_state.db.units.rehearsal import Reached, RehearsalScope
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.domains import Domains
from lastlight_state.errors import StoreClosed
from lastlight_state.lazy import Part

_DOMAINS = [name for name, part in vars(Domains).items() if isinstance(part, Part)]


class Judge:
    """Runs waiting calls on a separate thread, up to the point where they would use the database.

    It does not run calls of maintenance and files, because they may have effects before they reach the database.
    """

    def __init__(self, target: Domains, context: Context, scope: StoreScope) -> None:
        self._target = target
        self._context = context
        self._scope = scope
        self.lane = Lane("judge")

    def __call__(self, outcome: Outcome) -> None:
        """Check the arguments of a call that no thread has begun.

        If they are wrong, the caller's await raises the error.
        """
        asked = _method_call(next(iter(outcome.call), None))
        if asked is None or any(map(_is_used_up, [*asked.args, *asked.keywords.values()])):
            return

        def report_problem(judged: asyncio.Future[Exception | None]) -> None:
            problem = None if judged.cancelled() else judged.result()
            if problem is not None:
                outcome.refuse(problem)

        with suppress(StoreClosed):
            self.lane.run(partial(self._problem, asked)).add_done_callback(report_problem)

    def _problem(self, asked: partial[Any]) -> Exception | None:
        """Return the error that the call raises for its arguments.

        Return None if the call reaches the database without an error.
        """
        try:
            self._rehearse(asked)
        except Reached:
            return None
        except Exception as error:  # noqa: BLE001 - it is raised where the call is awaited
            return error
        return None

    def _rehearse(self, asked: partial[Any]) -> None:
        path = self._path(getattr(asked.func, "__self__", None))
        if path is None:
            return
        twin: Any = Domains(self._context.within(RehearsalScope(self._scope)))
        for name in path:
            twin = getattr(twin, name)
        found = getattr(twin, asked.func.__name__)(*asked.args, **asked.keywords)
        enter = getattr(found, "__enter__", None)
        if enter is not None:  # a context manager checks its arguments when it is entered
            enter()

    def _path(self, repository: object) -> tuple[str, ...] | None:
        """Return the attribute names that lead from the store to a repository.

        Return None if it belongs to no domain.
        """
        loaded = vars(self._target)
        for name in _DOMAINS:
            domain = loaded.get(name)
            if domain is repository:
                return (name,)
            parts = {} if domain is None else vars(domain).copy()
            inner = next((inner for inner, part in parts.items() if part is repository), None)
            if inner is not None:
                return name, inner
        return None


def _method_call(call: Callable[[], object] | None) -> partial[Any] | None:
    """Return a call's method and arguments as a ``partial``. Return None if they are unknown."""
    while isinstance(call, partial):
        if hasattr(call.func, "__self__") and not isinstance(call.args[0] if call.args else None, partial):
            return call
        call = next((given for given in call.args if isinstance(given, partial)), None)
    return None


def _is_used_up(argument: object) -> bool:
    """True if an argument, such as a generator, can be iterated only once."""
    return isinstance(argument, Iterable) and not isinstance(argument, Sized)
