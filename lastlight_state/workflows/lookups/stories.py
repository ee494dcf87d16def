"""Reads of several statements about one run, all of one moment: the history of a task, and what a resume needs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.statements import bind, constant, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.executions.records import ExecutionSummary, ExecutionSummaryRow
from lastlight_state.workflows.executions.statements import SUMMARY
from lastlight_state.workflows.kernel import rows
from lastlight_state.workflows.lookups.records import TaskStory, TaskWait, WaitRow
from lastlight_state.workflows.nodes.checks import key
from lastlight_state.workflows.nodes.records import Node
from lastlight_state.workflows.nodes.statements import FIND
from lastlight_state.workflows.questions.records import as_of
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, NODES, REQUESTS

_e = EXECUTIONS.c
_run_id = bind("run_id", NODES.c.run_id)
_node = (bind("node_id", NODES.c.node_id), bind("iteration", NODES.c.iteration))


class AttemptRow(ExecutionSummaryRow, total=False):
    """An attempt at a node, and the number of all."""

    attempt_count: int


class IterationRow(TypedDict):
    """The latest iteration of a node."""

    iteration: int | None


ATTEMPTS = prepared(
    sa.select(*SUMMARY, sa.func.count().over().label("attempt_count"))
    .where(_e.workflow_run_id == _run_id, _e.node_id == _node[0], _e.iteration == _node[1])
    .order_by(_e.attempt.desc())
    .limit(number(500)),
    AttemptRow,
)
LATEST_ITERATION = prepared(
    sa.select(sa.func.max(NODES.c.iteration).label("iteration")).where(
        NODES.c.run_id == _run_id, NODES.c.node_id == _node[0]
    ),
    IterationRow,
)


def _asked(table: sa.Table, kind: str, run_id: str, asked_at: str, answered: tuple[str, str]) -> sa.Select[Any]:
    c = table.c
    columns = {"id": c.id, "status": c.status, "asked_at": c[asked_at], "expires_at": c.expires_at}
    columns |= {"answered_at": c[answered[0]], "answered_by": c[answered[1]]}
    shown = (column.label(name) for name, column in columns.items())
    return sa.select(constant(kind).label("kind"), *shown).where(
        c[run_id] == _run_id, c.node_id == _node[0], c.iteration == _node[1]
    )


_waits = sa.union_all(
    _asked(APPROVALS, "approval", "workflow_run_id", "created_at", ("responded_at", "responded_by")),
    _asked(REQUESTS, "human_request", "run_id", "requested_at", ("answered_at", "answered_by")),
).subquery()
WAITS = prepared(
    sa.select(*_waits.c).order_by(_waits.c.asked_at.desc(), _waits.c.id.desc()).limit(number(100)), WaitRow
)


def task(unit: Unit, run_id: str, ref: NodeRef, now: datetime) -> TaskStory:
    """The history of a node. Raises `NotFound`."""
    here = key(run_id, ref)
    node = unit.find(Node.of, FIND, here)
    attempts = unit.rows(ATTEMPTS, here)
    if node is None and not attempts:
        rows.expect_one(unit, run_id)
        raise valid.not_found("run_node", ref.node_id)
    count = attempts[0]["attempt_count"] if attempts else 0
    for row in attempts:
        del row["attempt_count"]
    told = [ExecutionSummary.of(row) for row in reversed(attempts)]
    return TaskStory(
        run_id=run_id,
        node_id=ref.node_id,
        iteration=ref.iteration,
        node=node,
        latest_iteration=unit.value(LATEST_ITERATION, here),
        attempts=tuple(told),
        attempt_count=count,
        cached=bool(told) and told[-1].cached,
        started_at=told[0].started_at if told else None,
        finished_at=told[-1].finished_at if told else None,
        waits=tuple(TaskWait.of(as_of(row, now)) for row in reversed(unit.rows(WAITS, here))),
    )
