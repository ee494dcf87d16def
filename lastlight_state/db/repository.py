"""What every repository has: a scope to run in, the clock, and the sentinel for "not given"."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

from lastlight_state.backends.base import Backend
from lastlight_state.clock import Clock
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.scope import Scope
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Settings


class _Unset(Enum):
    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


#: An argument that was not given, where None means "clear it".
UNSET: Final = _Unset.UNSET
UnsetType = Literal[_Unset.UNSET]


class Context:
    """What the repositories of one store or transaction share."""

    __slots__ = ("clock", "listeners", "scope", "settings")

    def __init__(self, scope: Scope, clock: Clock, settings: Settings, listeners: Listeners) -> None:
        self.scope = scope
        self.clock = clock
        self.settings = settings
        self.listeners = listeners

    def within(self, scope: Scope) -> Context:
        """The same store, with calls running in another scope."""
        return Context(scope, self.clock, self.settings, self.listeners)


class Face:
    """What ``store.<domain>`` is: the domain's repositories, each loaded and made when it is first asked for."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def _made(self, kind: type[Any], name: str) -> Any:
        return kind(self._context)


class Repository:
    """Base of all repositories: methods check their words, then hand a work to one of the four ways of running it."""

    def __init__(self, context: Context) -> None:
        scope = context.scope
        self._clock = context.clock
        self._settings = context.settings
        self._listeners = context.listeners
        self._scope = scope
        self._reading = scope.reading
        self._viewing = scope.viewing
        self._once = scope.once
        self._writing = scope.writing
        self._chained = scope.chained

    @property
    def _backend(self) -> Backend:
        return self._scope.backend

    @property
    def _metrics(self) -> Metrics:
        return self._scope.metrics

    def _now(self) -> datetime:
        return self._clock.now()
