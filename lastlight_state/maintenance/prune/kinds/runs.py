"""Runs with all that belongs to them, and executions that belong to no run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db.indexes import unindexed
from lastlight_state.db.keyed import IdRow
from lastlight_state.db.statements import Family, among, constant, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.prune.kinds.kind import Kind
from lastlight_state.maintenance.run_tables import RUN_TABLES
from lastlight_state.workflows.executions.outputs import POINTER
from lastlight_state.workflows.indexes import EXECUTION_ENDED_AT, RUN_ENDED_AT
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, REQUESTS, RUNS
from lastlight_state.workflows.words import LIVE, TERMINAL

_child, _parent = RUNS.alias("child"), RUNS.alias("parent")
_is_live = among(RUNS.c.status, LIVE)
_alone = EXECUTIONS.c.workflow_run_id.is_(None)
_finished = sa.or_(EXECUTIONS.c.finished_at.is_not(None), EXECUTIONS.c.success.is_not(None))
_pending = constant("pending")


class Pointing(IdRow):
    """A live run, and its scratch."""

    scratch: Any


class RunOf(IdRow):
    """The run of an execution."""

    workflow_run_id: str | None


#: Live runs whose scratch names an execution whose output they read.
_POINTING = prepared(
    sa.select(RUNS.c.id, RUNS.c.scratch).where(
        _is_live, sa.cast(RUNS.c.scratch, sa.Text).like(sa.literal_column(f"'%{POINTER}%'"))
    ),
    Pointing,
)
_RUN_OF = Family(
    "execution",
    lambda ids: sa.select(EXECUTIONS.c.id, EXECUTIONS.c.workflow_run_id).where(EXECUTIONS.c.id.in_(ids)),
    RunOf,
)


def pointers(unit: Unit) -> dict[str, list[str]]:
    """Return the executions whose output live runs will read, as their scratch says. A damaged scratch names none."""
    found: dict[str, list[str]] = {}
    for row in unit.sound(_POINTING)[0]:
        scratch = row["scratch"]
        for value in scratch.values() if isinstance(scratch, dict) else ():
            pointer = value.get(POINTER) if isinstance(value, dict) else None
            if isinstance(pointer, str):
                found.setdefault(row["id"], []).append(pointer)
    return found


def executions_in_use(unit: Unit) -> frozenset[str]:
    """Return the executions whose output live runs will read."""
    return frozenset(name for names in pointers(unit).values() for name in names)


def runs_in_use(unit: Unit) -> frozenset[str]:
    """Return the runs of these executions."""
    names = sorted(executions_in_use(unit))
    found: set[Any] = set()
    for at in range(0, len(names), 200):
        found.update(row["workflow_run_id"] for row in unit.rows(*_RUN_OF.of(names[at : at + 200])))
    return frozenset(found - {None})


def _exists(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(number(1)).where(*conditions))


RUNS_KIND = Kind(
    name="runs",
    record="workflow_run",
    key=RUNS.c.id,
    age=RUN_ENDED_AT,
    ended=among(RUNS.c.status, TERMINAL),
    open=_is_live,
    open_age=RUNS.c.started_at,
    index="ix_workflow_runs_ended",
    children=RUN_TABLES,
    has_outputs=True,
    protections={
        "live_child": _exists(_child.c.parent_run_id == RUNS.c.id, unindexed(among(_child.c.status, LIVE))),
        "live_parent": _exists(_parent.c.id == RUNS.c.parent_run_id, unindexed(among(_parent.c.status, LIVE))),
        "pending_approval": _exists(
            APPROVALS.c.workflow_run_id == RUNS.c.id, unindexed(APPROVALS.c.status == _pending)
        ),
        "pending_question": _exists(REQUESTS.c.run_id == RUNS.c.id, unindexed(REQUESTS.c.status == _pending)),
    },
    in_use=runs_in_use,
)

EXECUTIONS_KIND = Kind(
    name="executions",
    record="execution",
    key=EXECUTIONS.c.id,
    age=EXECUTION_ENDED_AT,
    ended=sa.and_(_alone, _finished),
    open=sa.and_(_alone, EXECUTIONS.c.finished_at.is_(None), EXECUTIONS.c.success.is_(None)),
    open_age=EXECUTIONS.c.started_at,
    index="ix_executions_alone",
    in_use=executions_in_use,
)
