"""Expire overdue questions before each search for runs (workflows W-141), wait for work, and sweep over due runs.

A run whose question expired is due, like a run paused until a time that has come. But the expiry must be stored before
the run goes on, so each search for runs first stores the expiries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import sqlalchemy as sa

from lastlight_state.backends import waiting
from lastlight_state.db import valid
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.news.watch import Arrivals, TimeLimit, Watch, arrivals, refuse_in_transaction, watch_of
from lastlight_state.db.rows.statements import Statement, Values, bind, constant, number, statement_of
from lastlight_state.db.schema.indexes import hide_from_indexes, through
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendBusy, CorruptData
from lastlight_state.workflows.shared import questions
from lastlight_state.workflows.tables import APPROVALS, REQUESTS, RUNS

#: The names of workflows; None for all.
Names: TypeAlias = "Sequence[str] | None"

_KINDS = (
    (APPROVALS, APPROVALS.c.workflow_run_id, "ix_approvals_due"),
    (REQUESTS, REQUESTS.c.run_id, "ix_human_requests_due"),
)
_at = bind("at", APPROVALS.c.expires_at)


def _there(named: Sequence[sa.ColumnElement[bool]]) -> sa.Select[tuple[int]]:
    first = [
        through(sa.select(number(1).label("one")).select_from(table), table, index)
        .where(table.c.status == constant("pending"), table.c.expires_at <= _at)
        .where(sa.exists().where(RUNS.c.id == run_id, *map(hide_from_indexes, named)))
        .limit(number(1))
        .subquery()
        for table, run_id, index in _KINDS
    ]
    return sa.select(sa.union_all(*(sa.select(each.c.one) for each in first)).subquery().c.one).limit(number(1))


#: Returns one row if a question is overdue, of all runs or of the runs of some workflows. A question whose run is
#: missing is left out. The question itself is not read, so that a damaged question does not fail a search for runs.
THERE = Filtered(_there, workflow_name=RUNS.c.workflow_name.in_)

#: The workflow of ``:run_id``, if the run is paused and has an overdue question.
WORKFLOW = statement_of(
    sa.select(RUNS.c.workflow_name).where(
        RUNS.c.id == sa.bindparam("run_id"),
        RUNS.c.status == constant("paused"),
        sa.or_(
            *(
                sa.exists().where(run_id == RUNS.c.id, questions.is_pending(table), table.c.expires_at <= _at)
                for table, run_id, _ in _KINDS
            )
        ),
    )
)


class Overdue:
    """Expires the overdue questions of a store or transaction.

    The callback ``expire`` expires those of some workflows, of all for None, and returns the ids of changed questions.
    """

    def __init__(self, scope: Scope, now: Callable[[], datetime], expire: Callable[[Names], Sequence[str]]) -> None:
        self._scope = scope
        self._now = now
        self._expire = expire

    def expire_at_once(self, names: Names) -> bool:
        """Expire overdue questions as `expire` does, but never wait for a lock.

        If another process holds one, leave the questions to a later call.
        """
        try:
            with waiting.NoPatience():
                return self.expire(names)
        except BackendBusy:
            return True

    def expire(self, names: Names) -> bool:
        """Expire overdue questions of these workflows. Returns False if there are some but none could be expired.

        A view or a read-only store leaves them as they are.
        """
        if names is not None and not names:
            return True
        statement, given = THERE.of({"workflow_name": names})
        if not self._scope.may_write or self._value(statement, given) is None:
            return True
        return bool(self._expire(names))

    def expire_of(self, run_id: str) -> None:
        """Expire the overdue questions of a run's workflow, if the run is paused and has an overdue question."""
        workflow_name = self._value(WORKFLOW, {"run_id": run_id})
        if workflow_name is not None:
            self._expire([workflow_name])

    def _value(self, statement: Statement, given: Values) -> Any:
        return self._scope.read(lambda unit: unit.value(statement, {**given, "at": self._now()}))


# Waits for work: one thread polls the database for all callers that wait in a store.

#: Seconds between two polls for work while there is some: a run starts within 50 ms. Unless an interval is given, polls
#: become rarer while nothing happens.
POLL = 0.03
#: Seconds in which waits expire nothing, after overdue questions could not be expired, such as one of a damaged run:
#: each try is logged.
STUCK_SECONDS = 60.0


class WaitTarget(Protocol):
    """The work that a caller waits for: work of these workflows, or of all if ``names`` is None.

    Callers with equal targets share one poll.
    """

    @property
    def names(self) -> tuple[str, ...] | None: ...

    def is_there(self, unit: Unit, now: datetime) -> bool:
        """True if there is work of this kind now."""

    def __hash__(self) -> int: ...


#: Seconds between two calls of the ``ended`` callback of a wait.
_TELLING_SECONDS = 0.5


class WorkWait:
    """A single wait for work, which lasts at most ``timeout`` seconds."""

    def __init__(
        self,
        scope: Scope,
        now: Callable[[], datetime],
        overdue: Overdue,
        sought: WaitTarget,
        timeout: float,
        poll_interval: float | None,
    ) -> None:
        refuse_in_transaction(scope)
        self._scope = scope
        self._now = now
        self._overdue = overdue
        self._sought = sought
        self.limit = TimeLimit(valid.seconds("timeout", timeout))
        self._slows_down = poll_interval is None
        self._poll_interval = POLL if poll_interval is None else valid.seconds("poll_interval", poll_interval)
        self._known = time.monotonic_ns()

    def wait(self, ended: Callable[[], bool] | None = None) -> bool:
        """Block until there is work (return True), or until the timeout or ``ended()`` is true (return False).

        Raises `StoreClosed`.
        """
        if self.look():
            return True
        with self.arrivals() as arrived:
            if ended is None:
                return arrived.wait(arrived.seconds_left)
            while arrived.seconds_left and not ended():
                if arrived.wait(min(arrived.seconds_left, _TELLING_SECONDS)):
                    return True
        return False

    def look(self) -> bool:
        """True if there is work now. Overdue questions are expired first.

        Raises `BackendBusy` if a lock blocks the query for the whole time of this wait.
        """

        def look() -> bool:
            self._overdue.expire_at_once(self._sought.names)
            return self._scope.read(lambda unit: self._sought.is_there(unit, self._now()))

        return self.limit.look(look)

    def arrivals(self, woken: Callable[[], object] | None = None) -> AbstractContextManager[Arrivals[WaitTarget]]:
        """Return a block inside which the store watches for work that arrives after this object was created."""
        watch = _watch_for(self._scope, self._now, self._overdue)
        return arrivals(
            watch,
            self._sought,
            self.limit.seconds_left,
            self._poll_interval,
            known=self._known,
            woken=woken,
            slows_down=self._slows_down,
        )


def _watch_for(scope: Scope, now: Callable[[], datetime], overdue: Overdue) -> Watch[WaitTarget]:
    """Return the store's shared watch for work.

    For each target, the watch stores the time of the last poll that found work, so that its values only grow.
    """
    stuck_until = 0.0

    def read(sought: Collection[WaitTarget]) -> dict[WaitTarget, int]:
        nonlocal stuck_until
        for names in {each.names for each in sought}:
            if time.monotonic() >= stuck_until and not overdue.expire_at_once(names):
                stuck_until = time.monotonic() + STUCK_SECONDS
        began, moment = time.monotonic_ns(), now()
        found = scope.read(lambda unit: [each for each in sought if each.is_there(unit, moment)])
        return dict.fromkeys(found, began)

    return watch_of(scope, "work", read)


# Sweeps: work on many runs, one transaction for each.
#
# A run whose row cannot be read does not stop a sweep: it is logged and skipped, and stays as it is. Until somebody
# repairs its row, every call that returns the whole run raises `CorruptData`, also a call that would end the run.

T = TypeVar("T")

_log = logging.getLogger("lastlight_state.workflows")


class DueRuns(NamedTuple):
    """The runs that a sweep handles, and the number of rows read to find them. The number includes unreadable rows."""

    run_ids: Sequence[str]
    rows: int


def expire_in_batches(read: Callable[[int], DueRuns], limit: int, work: Callable[[str], T]) -> Iterator[tuple[str, T]]:
    """Call ``work`` for up to ``limit`` due runs; yield each run id with the result, in ascending order of ids.

    ``read(size)`` returns the first ``size`` rows. If ``work`` fails for all of the first ``limit`` rows, the next rows
    are read: unreadable rows never stop a sweep for good.
    """
    tried: set[str] = set()
    size, done = limit, False
    while True:
        found = read(size)
        fresh = [run_id for run_id in found.run_ids if run_id not in tried][:limit]
        for run_id in sorted(fresh):
            try:
                worked = work(run_id)
            except CorruptData as error:
                _log.error("a sweep skipped run %s: %s", run_id, error)
            else:
                done = True
                yield run_id, worked
        if done or found.rows < size:
            return
        tried.update(fresh)
        size *= 2
