"""Records of vectors."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.conversations import packing
from lastlight_state.conversations.rows import VectorNamespaceRow
from lastlight_state.conversations.shown import ChunkRow, ChunkSummaryRow, ChunkTextRow
from lastlight_state.db.records import Record


class VectorNamespace(Record):
    """A set of chunks whose embeddings have ``dimensions`` numbers, and the model that made them, if it was told."""

    namespace: str
    dimensions: int
    model: str | None
    created_at: datetime

    @classmethod
    def of(cls, values: VectorNamespaceRow) -> Self:
        return super().of(values)


class ChunkSummary(Record):
    """A chunk as lists show it: without text, metadata and embedding."""

    namespace: str
    id: str
    document_id: str | None
    chunk_index: int
    dimensions: int
    created_at: datetime
    updated_at: datetime | None

    @classmethod
    def of(cls, values: ChunkSummaryRow) -> Self:
        return super().of(values)


class ChunkText(ChunkSummary):
    """A chunk with its text and metadata."""

    chunk_metadata: dict[str, Any] | None
    content: str

    @classmethod
    def of(cls, values: ChunkTextRow) -> Self:  # type: ignore[override]
        return super().of(values)


class Chunk(ChunkText):
    """A whole chunk. ``embedding`` is a tuple of numbers of 32 bits."""

    embedding: tuple[float, ...]

    @classmethod
    def of(cls, values: ChunkRow) -> Self:  # type: ignore[override]
        values["embedding"] = packing.unpack(values["embedding"])
        return super().of(values)


class VectorHit(Record):
    """A chunk that a search found. ``approximate`` says that an index may have missed nearer ones."""

    chunk: ChunkText
    score: float
    approximate: bool
