"""The tables of this domain, as statements name them."""

from __future__ import annotations

from lastlight_state.db.base import table_of
from lastlight_state.workflows.models import (
    ExecutionModel,
    HumanRequestModel,
    RunLoopModel,
    RunNodeModel,
    RunTransitionModel,
    WorkflowApprovalModel,
    WorkflowOverrideModel,
    WorkflowRunModel,
)

RUNS = table_of(WorkflowRunModel)

EXECUTIONS = table_of(ExecutionModel)

NODES = table_of(RunNodeModel)

TRANSITIONS = table_of(RunTransitionModel)

APPROVALS = table_of(WorkflowApprovalModel)

REQUESTS = table_of(HumanRequestModel)

LOOPS = table_of(RunLoopModel)

OVERRIDES = table_of(WorkflowOverrideModel)
