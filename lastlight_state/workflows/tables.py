"""The tables of this domain for use in statements, and the names that their columns have in records."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.records import Record, needed_columns
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


def columns_for(
    record: type[Record], table: sa.Table, **instead: sa.ColumnElement[Any]
) -> tuple[sa.ColumnElement[Any], ...]:
    """Return the columns of the table that the record shows, under the names of the record.

    ``instead`` are expressions to select in place of columns, by the names of the record.
    """
    shown = needed_columns(record)
    names = [(column, RECORD_NAMES.get(column.name, column.name)) for column in table.columns]
    return tuple(
        instead.get(name, column).label(name) if name in instead or name != column.name else column
        for column, name in names
        if name in shown
    )


def every_column_for(
    record: type[Record], table: sa.Table, *, hidden: Collection[str] = ()
) -> tuple[sa.ColumnElement[Any], ...]:
    """Return `columns_for`, of the record that shows the whole table.

    Raises TypeError if the table has a column that neither the record shows nor ``hidden`` names.
    """
    names = {RECORD_NAMES.get(column.name, column.name) for column in table.columns}
    missing = names - needed_columns(record) - {*hidden}
    if missing:
        raise TypeError(f"{record.__name__} has no field for {', '.join(sorted(missing))} of {table.name}")
    return columns_for(record, table)
