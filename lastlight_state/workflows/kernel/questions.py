"""The questions of a run that are still open, of both kinds: gates and requests to people.

Everything that asks "what is left?" asks here, so that nothing counts one kind and forgets the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.statements import Family, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.tables import APPROVALS, REQUESTS

_KINDS = ((APPROVALS, APPROVALS.c.workflow_run_id), (REQUESTS, REQUESTS.c.run_id))
_MOST_NAMED = 20


def pending(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether it is pending, for statements that go by the run or the id. Not by an index on status, which SQLite,
    without statistics, takes as gladly as theirs: then it reads every pending question there is."""
    return sa.func.coalesce(table.c.status, constant("unknown")) == constant("pending")


_this_run = sa.bindparam("run_id", type_=REQUESTS.c.run_id.type)
#: The conditions of the pending questions of ``:run_id``, by the index on the run.
PENDING_GATES, PENDING_REQUESTS = ((run == _this_run, pending(table)) for table, run in _KINDS)


def blocked(run_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether a pending question holds the run of this id, given as a column of the statement around it.

    A write that decides by it locks the run's row in a statement before, or it would see what was pending before its
    wait for that lock.
    """
    return sa.or_(
        *(sa.exists().where(run == run_id, pending(table), table.c.blocks_run == sa.true()) for table, run in _KINDS)
    )


_holding = sa.union_all(
    *(
        sa.select(table.c.id).where(run == _this_run, pending(table), table.c.blocks_run == sa.true())
        for table, run in _KINDS
    )
).subquery()
#: The questions that hold ``:run_id``: all that matters is whether there are any, and an error names some.
BLOCKING = prepared(sa.select(_holding.c.id).order_by(_holding.c.id).limit(sa.literal_column(str(_MOST_NAMED))))


def _named(ids: Sequence[sa.BindParameter[Any]]) -> sa.CompoundSelect[Any]:
    return sa.union_all(
        *(sa.select(table.c.id).where(table.c.id.in_(ids), run == _this_run, pending(table)) for table, run in _KINDS)
    )


_OPEN = Family("question", _named)

_CLOSE = tuple(
    prepared(
        sa.update(table)
        .where(run == _this_run, pending(table))
        .values(status="cancelled", closed_reason=sa.bindparam("reason"))
    )
    for table, run in _KINDS
)


def blocking(unit: Unit, run_id: str) -> list[str]:
    """The ids of questions that hold a locked run, at most 20 of them."""
    return [row["id"] for row in unit.rows(BLOCKING, {"run_id": run_id})]


def open_among(unit: Unit, run_id: str, ids: Iterable[str]) -> set[str]:
    """Those of these (1 to 500) questions of a locked run that are pending."""
    statement, values = _OPEN.of(list(ids))
    return {row["id"] for row in unit.rows(statement, {**values, "run_id": run_id})}


def close_all(unit: Unit, run_id: str, reason: str) -> None:
    """Cancel every pending question of a run that has ended."""
    for statement in _CLOSE:
        unit.change(statement, {"run_id": run_id, "reason": reason})
