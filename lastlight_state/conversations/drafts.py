"""The rows of messages and chunks to store."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class MessageDraft(TypedDict):
    """The row of a message to store, with its class by its name."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    sender: str | None
    recipient: str | None
    channel: str | None
    role: str
    lion_class: str
    revision: int
    revised_at: datetime | None
    embedding_model: str | None
    node_metadata: str | None
    extra: str | None
    content: str
    embedding: bytes | None


class ChunkDraft(TypedDict):
    """The row of a chunk to store."""

    namespace: str
    id: str
    document_id: str | None
    chunk_index: int
    dimensions: int
    norm: float
    created_at: datetime
    updated_at: datetime | None
    embedding: bytes
    chunk_metadata: Any
    content: str
