"""Overdue questions are work that is due: whoever looks for runs has them expired first (workflows W-141).

Time wakes a run whose question nobody answered, as it wakes a run that was paused until now. But what an expiry does to
a run is written, so somebody has to write it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa

from lastlight_state.backends import patience
from lastlight_state.db.filtered import Filtered
from lastlight_state.db.indexes import through, unindexed
from lastlight_state.db.scope import Scope
from lastlight_state.db.statements import Statement, Values, bind, constant, number, prepared
from lastlight_state.errors import BackendBusy
from lastlight_state.workflows.kernel import questions
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
        .where(sa.exists().where(RUNS.c.id == run_id, *map(unindexed, named)))
        .limit(number(1))
        .subquery()
        for table, run_id, index in _KINDS
    ]
    return sa.select(sa.union_all(*(sa.select(each.c.one) for each in first)).subquery().c.one).limit(number(1))


#: One row if a question is overdue, of all runs or of those of some workflows. A question whose run is missing is left
#: out. The question itself is not read: a look for runs does not fail for a question that cannot be read.
THERE = Filtered(_there, workflow_name=RUNS.c.workflow_name.in_)

#: The workflow of ``:run_id``, if the run is paused and has an overdue question.
WORKFLOW = prepared(
    sa.select(RUNS.c.workflow_name).where(
        RUNS.c.id == sa.bindparam("run_id"),
        RUNS.c.status == constant("paused"),
        sa.or_(
            *(
                sa.exists().where(run_id == RUNS.c.id, questions.pending(table), table.c.expires_at <= _at)
                for table, run_id, _ in _KINDS
            )
        ),
    )
)


class Overdue:
    """The overdue questions of a store or transaction. ``expire`` expires those of some workflows, of all for None.

    It returns the ids of what it has changed.
    """

    def __init__(self, scope: Scope, now: Callable[[], datetime], expire: Callable[[Names], Sequence[str]]) -> None:
        self._scope = scope
        self._now = now
        self._expire = expire

    def expire_at_once(self, names: Names) -> bool:
        """Expire what is overdue as `expire` does, but wait for nobody who writes: the next look does it then."""
        try:
            with patience.none():
                return self.expire(names)
        except BackendBusy:
            return True

    def expire(self, names: Names) -> bool:
        """Expire what is overdue. Returns False if something is, and could not be expired.

        A view and a store that only reads leave it as it is.
        """
        if names is not None and not names:
            return True
        statement, given = THERE.of({"workflow_name": names})
        if not self._scope.may_write or self._value(statement, given) is None:
            return True
        return bool(self._expire(names))

    def expire_of(self, run_id: str) -> None:
        """Expire what is overdue in the workflow of this run, if a question is overdue for which it is paused."""
        workflow_name = self._value(WORKFLOW, {"run_id": run_id})
        if workflow_name is not None:
            self._expire([workflow_name])

    def _value(self, statement: Statement, given: Values) -> Any:
        return self._scope.reading(lambda unit: unit.value(statement, {**given, "at": self._now()}))
