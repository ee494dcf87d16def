"""The rows of the tables of outputs, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class RunInputRow(TypedDict):
    """A row of ``run_inputs``."""

    run_id: str
    revision: int
    created_at: datetime
    created_by: str | None
    reason: str | None
    payload: Any
    given: Any


class OutputTableRow(TypedDict):
    """A row of ``output_tables``."""

    key: str
    table_name: str
    kind: str
    signature: str
    model_digest: str | None
    created_at: datetime
    updated_at: datetime
    columns: Any
    json_schema: Any


class OutputHistoryRow(TypedDict):
    """A row of ``output_history``."""

    run_id: str
    table_name: str
    node_id: str
    iteration: int
    revision: int
    signature: str
    cause: str
    written_at: datetime
    removed_at: datetime
    reason: str | None
    value: Any


class OutputCacheRow(TypedDict):
    """A row of ``output_cache``."""

    cache_key: str
    workflow_name: str
    node_id: str
    output_key: str
    table_name: str
    schema_signature: str
    model_digest: str | None
    agent_signature: str | None
    source_run_id: str | None
    created_at: datetime
    expires_at: datetime | None
    payload: Any
