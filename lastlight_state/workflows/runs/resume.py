"""Read everything that an engine needs to resume a run, from one snapshot: the run and its unfinished parts."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import bind, columns_of, statement_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows.approvals.records import Approval
from lastlight_state.workflows.executions.records import Execution
from lastlight_state.workflows.executions.statements import COLUMNS
from lastlight_state.workflows.human_requests.records import HumanRequest
from lastlight_state.workflows.questions.records import as_of
from lastlight_state.workflows.records import Loop, Node, WorkflowRun
from lastlight_state.workflows.shared import run_rows
from lastlight_state.workflows.shared.executions import IN_FLIGHT
from lastlight_state.workflows.shared.questions import PENDING_APPROVALS, PENDING_REQUESTS
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS, columns_for

_run_id = bind("run_id", NODES.c.run_id)

NODES_OF_RUN = statement_of(
    sa.select(*columns_of(Node, NODES)).where(NODES.c.run_id == _run_id).order_by(NODES.c.node_id, NODES.c.iteration),
    Node,
)
LOOPS_OF_RUN = statement_of(
    sa.select(*columns_of(Loop, LOOPS)).where(LOOPS.c.run_id == _run_id).order_by(LOOPS.c.loop_id), Loop
)
IN_FLIGHT_OF_RUN = statement_of(
    through(sa.select(*COLUMNS), EXECUTIONS, "ix_executions_signs")
    .where(EXECUTIONS.c.workflow_run_id == _run_id, IN_FLIGHT)
    .order_by(EXECUTIONS.c.started_at, EXECUTIONS.c.id),
    Execution,
)
GATES_OF_RUN = statement_of(
    sa.select(*columns_for(Approval, APPROVALS))
    .where(*PENDING_APPROVALS)
    .order_by(APPROVALS.c.created_at, APPROVALS.c.id),
    Approval,
)
REQUESTS_OF_RUN = statement_of(
    sa.select(*columns_for(HumanRequest, REQUESTS))
    .where(*PENDING_REQUESTS)
    .order_by(REQUESTS.c.requested_at, REQUESTS.c.id),
    HumanRequest,
)


class ResumeView(Record):
    """A run with its nodes and loops, its executions in flight with their checkpoints, and its pending questions.

    A pending question that is overdue reads as expired.
    """

    run: WorkflowRun
    nodes: tuple[Node, ...]
    loops: tuple[Loop, ...]
    executions: tuple[Execution, ...]
    approvals: tuple[Approval, ...]
    human_requests: tuple[HumanRequest, ...]


def read(unit: Unit, run_id: str, now: datetime) -> ResumeView:
    """Return everything that an engine needs to resume a run. Raises `NotFound`."""
    run, here = run_rows.get(unit, run_id), {"run_id": run_id}
    return ResumeView.of(
        {
            "run": run,
            "nodes": tuple(unit.rows(NODES_OF_RUN, here)),
            "loops": tuple(unit.rows(LOOPS_OF_RUN, here)),
            "executions": tuple(unit.rows(IN_FLIGHT_OF_RUN, here)),
            "approvals": tuple(as_of(gate, now) for gate in unit.rows(GATES_OF_RUN, here)),
            "human_requests": tuple(as_of(request, now) for request in unit.rows(REQUESTS_OF_RUN, here)),
        }
    )
