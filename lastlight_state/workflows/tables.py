"""The tables of this domain, for use in statements, and the names of their columns in records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.schema.base import table_of
from lastlight_state.workflows.models import (
    ExecutionModel,
    HumanRequestModel,
    RunLeaseModel,
    RunLoopModel,
    RunNodeModel,
    RunTransitionModel,
    WorkflowApprovalModel,
    WorkflowOverrideModel,
    WorkflowRunModel,
    WorkflowWorkerModel,
)

RUNS = table_of(WorkflowRunModel)
LEASES = table_of(RunLeaseModel)
EXECUTIONS = table_of(ExecutionModel)
NODES = table_of(RunNodeModel)
TRANSITIONS = table_of(RunTransitionModel)
APPROVALS = table_of(WorkflowApprovalModel)
REQUESTS = table_of(HumanRequestModel)
LOOPS = table_of(RunLoopModel)
OVERRIDES = table_of(WorkflowOverrideModel)
WORKERS = table_of(WorkflowWorkerModel)

#: The name in records, by column, for columns that the original program's tables call by another name.
RECORD_NAMES = {
    "workflow_run_id": "run_id",
    "created_at": "asked_at",
    "requested_at": "asked_at",
    "responded_at": "answered_at",
    "responded_by": "answered_by",
}


def shown(columns: Iterable[sa.Column[Any]]) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns to select for a record, under the names of the record."""
    return tuple(
        column.label(RECORD_NAMES[column.name]) if column.name in RECORD_NAMES else column for column in columns
    )
