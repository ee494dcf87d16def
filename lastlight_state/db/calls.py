"""Units that are one call each, which threads may make for one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.db.unit import Unit

T = TypeVar("T")
Work = Callable[[Unit], T]


class Call(Checkout, Generic[T]):
    """A unit that is one call, which another thread that has the writer's turn may make with its own."""

    shares = True
    hooks: Sequence[Callable[[], object]] = ()
    result: T

    def __init__(self, mode: Mode, backend: Backend, work: Work[T]) -> None:
        self.mode = mode
        self.backend = backend
        self._work = work

    def make(self) -> None:
        unit = Unit(self.backend, self)
        self.hooks = unit.hooks
        self.result = self._work(unit)
