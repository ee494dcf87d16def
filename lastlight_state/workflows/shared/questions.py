"""The pending questions of a run, of both kinds: approvals and human requests.

All code that looks for open questions of a run uses this module, so that neither kind is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import Family, bind, constant, number, statement_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows.tables import APPROVALS, REQUESTS

_KINDS = ((APPROVALS, APPROVALS.c.workflow_run_id), (REQUESTS, REQUESTS.c.run_id))
_MOST_NAMED = 20

#: The SQLite indexes that hold the columns by which questions of a run are selected.
_OF_RUN = {APPROVALS: "ix_approvals_run", REQUESTS: "ix_human_requests_summary"}


def is_pending(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a question is pending, for statements that find questions by run or by id.

    The ``coalesce`` keeps SQLite from choosing the index on status, which would read every pending question.
    """
    return sa.func.coalesce(table.c.status, constant("unknown")) == constant("pending")


_this_run = bind("run_id", REQUESTS.c.run_id)

#: The conditions of the pending questions of ``:run_id``; they use the index on the run.
PENDING_APPROVALS, PENDING_REQUESTS = ((run == _this_run, is_pending(table)) for table, run in _KINDS)


def is_blocked(run_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a pending question blocks the run; ``run_id`` is a column of the outer query.

    A write with this condition must lock the run's row in an earlier statement. A statement that waits for the lock
    itself would read a snapshot from before its wait.
    """
    return sa.or_(
        *(
            sa.exists(through(sa.select(table.c.id), table, _OF_RUN[table])).where(
                run == run_id, is_pending(table), table.c.blocks_run == sa.true()
            )
            for table, run in _KINDS
        )
    )


_blocking = sa.union_all(
    *(
        sa.select(table.c.id).where(run == _this_run, is_pending(table), table.c.blocks_run == sa.true())
        for table, run in _KINDS
    )
).subquery()
#: Some of the questions that block ``:run_id``: whether there are any decides, and an error names these.
BLOCKING = statement_of(sa.select(_blocking.c.id).order_by(_blocking.c.id).limit(number(_MOST_NAMED)))


def _select_pending(ids: Sequence[sa.BindParameter[Any]]) -> sa.CompoundSelect[Any]:
    return sa.union_all(
        *(
            sa.select(table.c.id).where(table.c.id.in_(ids), run == _this_run, is_pending(table))
            for table, run in _KINDS
        )
    )


_OPEN: Family = Family("question", _select_pending)

_CLOSE = tuple(
    statement_of(
        sa.update(table)
        .where(run == _this_run, is_pending(table))
        .values(status="cancelled", closed_reason=sa.bindparam("reason"))
    )
    for table, run in _KINDS
)


def blocking_ids(unit: Unit, run_id: str) -> list[str]:
    """Return the ids of questions that block a locked run, at most 20."""
    return unit.values(BLOCKING, {"run_id": run_id})


def open_among(unit: Unit, run_id: str, ids: Iterable[str]) -> set[str]:
    """Return the ids of those given questions (1 to 500) of a locked run that are pending."""
    statement, values = _OPEN.of(list(ids))
    return {*unit.values(statement, {**values, "run_id": run_id})}


def close_all(unit: Unit, run_id: str, reason: str) -> None:
    """Cancel every pending question of a run that has ended."""
    for statement in _CLOSE:
        unit.change(statement, {"run_id": run_id, "reason": reason})
