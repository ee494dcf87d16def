"""Waiting for work: the questions of all who wait in a store are asked by one thread, again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from lastlight_state.db import valid
from lastlight_state.db.arrivals import Arrivals, arrivals, refuse_in_transaction
from lastlight_state.db.scope import Scope
from lastlight_state.db.unit import Unit
from lastlight_state.db.watch import Watch, watch_of
from lastlight_state.workflows.kernel.overdue import Overdue

#: Seconds between two looks for work while there is some: a run starts within 50 ms. Unless an interval is given, they
#: become fewer while nothing happens.
POLL = 0.03
#: After a look at questions that are overdue and cannot be expired, such as one of a damaged run, who waits tries no
#: other for so long: each try is logged.
STUCK_SECONDS = 60.0


class Sought(Protocol):
    """What somebody waits for, in these workflows, or in all for None. Equal ones are asked for once."""

    @property
    def names(self) -> tuple[str, ...] | None: ...

    def is_there(self, unit: Unit, now: datetime) -> bool:
        """Whether there is such work at this moment."""

    def __hash__(self) -> int: ...


class Awaited:
    """One wait for work, of at most ``timeout`` seconds."""

    def __init__(
        self,
        scope: Scope,
        now: Callable[[], datetime],
        overdue: Overdue,
        sought: Sought,
        timeout: float,
        poll_interval: float | None,
    ) -> None:
        refuse_in_transaction(scope)
        self._scope = scope
        self._now = now
        self._overdue = overdue
        self._sought = sought
        self._timeout = valid.seconds("timeout", timeout)
        self._slows_down = poll_interval is None
        self._poll_interval = POLL if poll_interval is None else valid.seconds("poll_interval", poll_interval)
        self._known = time.monotonic_ns()

    def wait(self) -> bool:
        """Wait, and return whether there is work. Raises `StoreClosed`."""
        if self.look():
            return True
        with self.arrivals() as arrived:
            return arrived.wait(arrived.seconds_left)

    def look(self) -> bool:
        """Whether there is work at this moment. Overdue questions are expired first."""
        self._overdue.expire_at_once(self._sought.names)
        return self._scope.reading(lambda unit: self._sought.is_there(unit, self._now()))

    def arrivals(self, woken: Callable[[], object] | None = None) -> AbstractContextManager[Arrivals[Sought]]:
        """Watch for work that comes after this object was made."""
        watch = _watch_for(self._scope, self._now, self._overdue)
        return arrivals(
            watch,
            self._sought,
            self._timeout,
            self._poll_interval,
            known=self._known,
            woken=woken,
            slows_down=self._slows_down,
        )


def _watch_for(scope: Scope, now: Callable[[], datetime], overdue: Overdue) -> Watch[Sought]:
    """The store's watch over work. Its values are the times of the looks that found some, so that they only grow."""
    stuck_until = 0.0

    def read(sought: Collection[Sought]) -> dict[Sought, int]:
        nonlocal stuck_until
        for names in {each.names for each in sought}:
            if time.monotonic() >= stuck_until and not overdue.expire_at_once(names):
                stuck_until = time.monotonic() + STUCK_SECONDS
        began, moment = time.monotonic_ns(), now()
        found = scope.reading(lambda unit: [each for each in sought if each.is_there(unit, moment)])
        return dict.fromkeys(found, began)

    return watch_of(scope, "work", read)
