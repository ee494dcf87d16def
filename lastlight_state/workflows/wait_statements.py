"""The statements of `waits`."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.base import table_of
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import constant, prepared
from lastlight_state.workflows.models import HumanRequestModel, WorkflowApprovalModel
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.run_statements import SUMMARY
from lastlight_state.workflows.transitions import bind

_APPROVALS = table_of(WorkflowApprovalModel)
_REQUESTS = table_of(HumanRequestModel)

QUESTION = prepared(
    sa.union_all(
        *(
            sa.select(constant(kind).label("kind"), table.c.status).where(
                table.c.id == bind("question_id", table.c.id), run == bind("run_id", run)
            )
            for kind, table, run in (
                ("approval", _APPROVALS, _APPROVALS.c.workflow_run_id),
                ("human_request", _REQUESTS, _REQUESTS.c.run_id),
            )
        )
    )
)
"""How a question of a run stands, whichever kind it is of."""

WAITING = Listing(
    "waiting",
    (*SUMMARY, RUNS.c.waiting_for),
    order=(RUNS.c.waiting_for, RUNS.c.id),
    descending=False,
    always=(RUNS.c.status == constant("paused"), RUNS.c.waiting_for.is_not(None)),
    filters={
        "signal": RUNS.c.waiting_for == bind("signal", RUNS.c.waiting_for),
        "correlation_id": RUNS.c.correlation_id == bind("correlation_id", RUNS.c.correlation_id),
    },
    through="ix_workflow_runs_waiting",
)
