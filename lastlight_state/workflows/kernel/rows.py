"""The run's row: locked before anything is decided, and fenced against claims that do not hold it.

*Lock, then look*: a unit that decides from several rows locks the run's row in a statement of its own and only then
reads. A statement that locks and counts at once would count with a snapshot older than its wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page
from lastlight_state.db.statements import Statement, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.workflows.kernel.nodes import states_of
from lastlight_state.workflows.records import WorkflowRun
from lastlight_state.workflows.tables import RUNS

T = TypeVar("T")

#: Columns that only statements use: what a release puts back, and what tells equal calls of `ensure` apart.
_INNER = ("previous_", "create_digest")
#: The columns of a `WorkflowRun`.
COLUMNS = tuple(column for column in RUNS.c if not column.name.startswith(_INNER))

STATE = (
    RUNS.c.id,
    RUNS.c.status,
    RUNS.c.claim_owner,
    RUNS.c.claim_epoch,
    RUNS.c.transition_seq,
    RUNS.c.phase_count,
    RUNS.c.current_phase,
    RUNS.c.pause_reason,
    RUNS.c.restart_count,
    RUNS.c.max_restarts,
    RUNS.c.cancel_requested_at,
    RUNS.c.updated_at,
)


def locking(*more: sa.ColumnElement[Any], run: sa.ColumnElement[Any] | None = None) -> Statement:
    """A statement that locks the row of ``:run_id`` (or ``run``) and returns its state and these columns."""
    run_id = sa.bindparam("run_id") if run is None else run
    return prepared(sa.select(*STATE, *more).where(RUNS.c.id == run_id).with_for_update(key_share=True))


LOCK = locking()
#: A whole run, its nodes included.
DETAIL = (*COLUMNS, states_of(RUNS.c.id))
GET = prepared(sa.select(*DETAIL).where(RUNS.c.id == sa.bindparam("run_id")))
EXISTS = prepared(sa.select(RUNS.c.id).where(RUNS.c.id == sa.bindparam("run_id")))


def lock(unit: Unit, run_id: str, statement: Statement = LOCK) -> dict[str, Any]:
    """The locked row's state. Raises `NotFound`."""
    row = unit.row(statement, {"run_id": run_id})
    if row is None:
        raise valid.not_found("workflow_run", run_id)
    return row


def expect_one(unit: Unit, run_id: str) -> None:
    """Raise `NotFound` unless there is such a run."""
    if unit.row(EXISTS, {"run_id": run_id}) is None:
        raise valid.not_found("workflow_run", run_id)


def page_of(
    unit: Unit,
    listing: Listing,
    make: Callable[[dict[str, Any]], T],
    limit: int,
    page_token: str | None,
    *,
    run_id: str,
    **also: Any,
) -> Page[T]:
    """A page of what belongs to one run, by the filter ``run_id`` of the list. Raises `NotFound` for an unknown run.

    What is no text is `InvalidValue`: to a list, None would be no filter.
    """
    given = {"run_id": valid.sought("run_id", run_id), **also}
    page = listing.page(unit, make, limit=limit, page_token=page_token, given=given)
    if not page.items:
        expect_one(unit, run_id)
    return page


def get(unit: Unit, run_id: str) -> WorkflowRun:
    """The whole run. Raises `NotFound`."""
    run = unit.find(WorkflowRun, GET, {"run_id": run_id})
    if run is None:
        raise valid.not_found("workflow_run", run_id)
    return run


def expect(row: dict[str, Any], allowed: Sequence[str]) -> None:
    """Raise `Conflict` ``run_status`` unless the run has one of these statuses."""
    if row["status"] not in allowed:
        raise wrong_status(row["id"], row["status"], allowed)


def wrong_status(run_id: str, found: str, allowed: Sequence[str]) -> Conflict:
    """The error for a run whose status does not allow what was asked."""
    return Conflict(
        f"run {run_id!r} is {found}; this needs {' or '.join(allowed)}",
        code="run_status",
        found=found,
        allowed=tuple(allowed),
    )


def restart_limit(row: dict[str, Any]) -> Conflict:
    """The error for a run that was restarted as often as it may be."""
    count, most = row["restart_count"], row["max_restarts"]
    return Conflict(
        f"run {row['id']!r} was restarted {count} times, of {most} allowed",
        code="restart_limit",
        restart_count=count,
        max_restarts=most,
    )
