"""Rehearsed calls: they check their arguments and stop before their first unit, so that no statement is sent.

A repository checks its arguments before it starts a unit. So a call of a repository with a `RehearsalScope` ends either
with an error about its arguments, or with `Reached`.
"""

from __future__ import annotations

from typing import NoReturn

from lastlight_state.backends.base import Mode
from lastlight_state.db.units.active_blocks import Blocks
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.db.units.unit import Work


class Reached(BaseException):
    """Raised instead of running a call's first unit.

    It is not an Exception, so that no call handles it as a failure.
    """


class RehearsalScope(StoreScope):
    """A scope in which calls of a store only check their arguments."""

    def __init__(self, scope: StoreScope) -> None:
        self.backend = scope.backend
        self.retry = scope.retry
        self.metrics = scope.metrics
        self.may_write = scope.may_write
        self.blocks = Blocks()
        self._unusable = None
        self.before_close = []
        self.after_commits = []
        self.watches = {}

    def open_unit(self, mode: Mode, label: str | None = None) -> NoReturn:
        """Raise `Reached` instead of beginning a block of the store."""
        raise Reached

    def _run(self, mode: Mode, work: Work[object], *, repeatable: bool, shares: bool = True) -> NoReturn:
        raise Reached
