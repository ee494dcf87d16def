"""The rows of the tables of checkpoints, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class CheckpointThreadRow(TypedDict):
    """A row of ``checkpoint_threads``."""

    id: str
    scope: str
    key: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    user: str | None


class CheckpointRow(TypedDict):
    """A row of ``checkpoints``."""

    thread_id: str
    namespace: str
    id: str
    seq: int
    parent_id: str | None
    run_ref: str | None
    created_at: datetime
    format: str
    metadata: Any
    versions: Any
    body: bytes


class CheckpointValueRow(TypedDict):
    """A row of ``checkpoint_values``."""

    thread_id: str
    namespace: str
    channel: str
    version: str
    number: int
    anchor: int
    encoding: str
    format: str
    size: int
    digest: str
    body: bytes


class CheckpointWriteRow(TypedDict):
    """A row of ``checkpoint_writes``."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    task: str
    idx: int
    path: str
    channel: str
    format: str
    body: bytes
