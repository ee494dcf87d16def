"""Rows as statements show them that are not whole rows of one table (`rows`): what records are made of.

Rows of the tables that callers define have no type here: what columns they have is not known before they are defined.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class InputSummaryRow(TypedDict):
    """The columns of a `RunInputSummary`."""

    run_id: str
    revision: int
    created_at: datetime
    created_by: str | None
    reason: str | None


class InputRow(InputSummaryRow):
    """The columns of a `RunInput`."""

    payload: Any


class OutputTableSummaryRow(TypedDict):
    """The columns of an `OutputTableSummary`."""

    key: str
    table_name: str
    kind: str
    signature: str
    model_digest: str | None
    created_at: datetime
    updated_at: datetime


class RegisteredRow(OutputTableSummaryRow):
    """An output table as the registry has it, without the schema of its model."""

    columns: Any


class CacheSummaryRow(TypedDict):
    """The columns of a `CacheSummary`."""

    cache_key: str
    workflow_name: str
    node_id: str
    output_key: str
    table_name: str
    schema_signature: str
    agent_signature: str | None
    source_run_id: str | None
    created_at: datetime
    expires_at: datetime | None


class HitRow(TypedDict):
    """What an entry of the cache has for who uses it again."""

    cache_key: str
    source_run_id: str | None
    created_at: datetime
    expires_at: datetime | None
    payload: Any


class PackRow(TypedDict):
    """Rows of a table as one list of texts, and their size. ``source`` says of which table."""

    source: int
    data: Any
    size: int
