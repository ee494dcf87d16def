"""Read all that an engine needs to resume a run: the run, and its parts that have not ended, from one snapshot."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import bind, prepared
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows.approvals.records import Approval, WholeApprovalRow
from lastlight_state.workflows.executions.records import Execution, WholeExecutionRow
from lastlight_state.workflows.human_requests.records import HumanRequest, WholeRequestRow
from lastlight_state.workflows.kernel import rows
from lastlight_state.workflows.kernel.executions import COLUMNS, IN_FLIGHT
from lastlight_state.workflows.kernel.questions import PENDING_APPROVALS, PENDING_REQUESTS
from lastlight_state.workflows.questions.records import as_of
from lastlight_state.workflows.records import Loop, Node, WorkflowRun
from lastlight_state.workflows.rows import RunLoopRow, RunNodeRow
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS, shown

_run_id = bind("run_id", NODES.c.run_id)

NODES_OF_RUN = prepared(
    sa.select(*NODES.c).where(NODES.c.run_id == _run_id).order_by(NODES.c.node_id, NODES.c.iteration),
    RunNodeRow,
)
LOOPS_OF_RUN = prepared(sa.select(*LOOPS.c).where(LOOPS.c.run_id == _run_id).order_by(LOOPS.c.loop_id), RunLoopRow)
IN_FLIGHT_OF_RUN = prepared(
    through(sa.select(*COLUMNS), EXECUTIONS, "ix_executions_signs")
    .where(EXECUTIONS.c.workflow_run_id == _run_id, IN_FLIGHT)
    .order_by(EXECUTIONS.c.started_at, EXECUTIONS.c.id),
    WholeExecutionRow,
)
GATES_OF_RUN = prepared(
    sa.select(*shown(APPROVALS.c)).where(*PENDING_APPROVALS).order_by(APPROVALS.c.created_at, APPROVALS.c.id),
    WholeApprovalRow,
)
REQUESTS_OF_RUN = prepared(
    sa.select(*shown(REQUESTS.c)).where(*PENDING_REQUESTS).order_by(REQUESTS.c.requested_at, REQUESTS.c.id),
    WholeRequestRow,
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
    """Return all that an engine needs to resume a run. Raises `NotFound`."""
    run, here = rows.get(unit, run_id), {"run_id": run_id}
    return ResumeView.of(
        {
            "run": run,
            "nodes": tuple(unit.all(Node.of, NODES_OF_RUN, here)),
            "loops": tuple(unit.all(Loop.of, LOOPS_OF_RUN, here)),
            "executions": tuple(unit.all(Execution.of, IN_FLIGHT_OF_RUN, here)),
            "approvals": tuple(Approval.of(as_of(row, now)) for row in unit.rows(GATES_OF_RUN, here)),
            "human_requests": tuple(HumanRequest.of(as_of(row, now)) for row in unit.rows(REQUESTS_OF_RUN, here)),
        }
    )
