"""How the stories of a run are told: several statements of one moment, each from an index on the run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.indexes import through
from lastlight_state.db.statements import bind, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.approvals.records import Approval
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.executions.records import Execution, ExecutionSummary
from lastlight_state.workflows.executions.statements import SUMMARY
from lastlight_state.workflows.human_requests.records import HumanRequest
from lastlight_state.workflows.kernel import rows as run_rows
from lastlight_state.workflows.kernel.executions import COLUMNS, IN_FLIGHT
from lastlight_state.workflows.kernel.questions import PENDING_GATES, PENDING_REQUESTS
from lastlight_state.workflows.lookups.records import ResumeView, TaskStory, TaskWait
from lastlight_state.workflows.nodes import checks as node_checks
from lastlight_state.workflows.nodes.records import Node
from lastlight_state.workflows.nodes.statements import FIND
from lastlight_state.workflows.records import Loop
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS

_e = EXECUTIONS.c
_run_id = bind("run_id", NODES.c.run_id)
_node = (bind("node_id", NODES.c.node_id), bind("iteration", NODES.c.iteration))

ATTEMPTS = prepared(
    sa.select(*SUMMARY, sa.func.count().over().label("attempt_count"))
    .where(_e.workflow_run_id == _run_id, _e.node_id == _node[0], _e.iteration == _node[1])
    .order_by(_e.attempt.desc())
    .limit(sa.literal_column("500"))
)
LATEST_ITERATION = prepared(
    sa.select(sa.func.max(NODES.c.iteration).label("iteration")).where(
        NODES.c.run_id == _run_id, NODES.c.node_id == _node[0]
    )
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
    sa.select(*_waits.c).order_by(_waits.c.asked_at.desc(), _waits.c.id.desc()).limit(sa.literal_column("100"))
)

NODES_OF_RUN = prepared(
    sa.select(*NODES.c).where(NODES.c.run_id == _run_id).order_by(NODES.c.node_id, NODES.c.iteration)
)
LOOPS_OF_RUN = prepared(sa.select(*LOOPS.c).where(LOOPS.c.run_id == _run_id).order_by(LOOPS.c.loop_id))
IN_FLIGHT_OF_RUN = prepared(
    through(sa.select(*COLUMNS), EXECUTIONS, "ix_executions_in_flight")
    .where(_e.workflow_run_id == _run_id, IN_FLIGHT)
    .order_by(_e.started_at, _e.id)
)
GATES_OF_RUN = prepared(sa.select(*APPROVALS.c).where(*PENDING_GATES).order_by(APPROVALS.c.created_at, APPROVALS.c.id))
REQUESTS_OF_RUN = prepared(
    sa.select(*REQUESTS.c).where(*PENDING_REQUESTS).order_by(REQUESTS.c.requested_at, REQUESTS.c.id)
)


def task(unit: Unit, run_id: str, ref: NodeRef) -> TaskStory:
    """The story of a node. Raises `NotFound`."""
    key = node_checks.key(run_id, ref)
    node = unit.find(Node, FIND, key)
    attempts = unit.rows(ATTEMPTS, key)
    if node is None and not attempts:
        run_rows.expect_one(unit, run_id)
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
        latest_iteration=unit.value(LATEST_ITERATION, key),
        attempts=tuple(told),
        attempt_count=count,
        cached=bool(told) and told[-1].cached,
        started_at=told[0].started_at if told else None,
        finished_at=told[-1].finished_at if told else None,
        waits=tuple(reversed(unit.all(TaskWait, WAITS, key))),
    )


def resume(unit: Unit, run_id: str) -> ResumeView:
    """What resuming a run begins with. Raises `NotFound`."""
    run, here = run_rows.get(unit, run_id), {"run_id": run_id}
    return ResumeView.of(
        {
            "run": run,
            "nodes": tuple(unit.all(Node, NODES_OF_RUN, here)),
            "loops": tuple(unit.all(Loop, LOOPS_OF_RUN, here)),
            "executions": tuple(unit.all(Execution, IN_FLIGHT_OF_RUN, here)),
            "approvals": tuple(unit.all(Approval, GATES_OF_RUN, here)),
            "human_requests": tuple(unit.all(HumanRequest, REQUESTS_OF_RUN, here)),
        }
    )
