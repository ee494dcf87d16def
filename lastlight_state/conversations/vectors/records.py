"""Records of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from lastlight_state.backends.vector_indexes import IndexState
from lastlight_state.conversations import similarity
from lastlight_state.db.rows.records import Record

# Argument groups of vectors.


@dataclass(frozen=True)
class NewChunk:
    """A chunk of text to store, with its embedding: a sequence of numbers, or their bytes.

    ``document_id`` names the document to which it belongs, ``chunk_index`` its place in the document.
    """

    id: str
    content: str
    embedding: Sequence[float] | bytes
    chunk_metadata: dict[str, Any] | None = None
    document_id: str | None = None
    chunk_index: int = 0


class VectorNamespace(Record):
    """A set of chunks whose embeddings have ``dimensions`` numbers. ``model`` names their model, None if unknown."""

    namespace: str
    dimensions: int
    model: str | None
    created_at: datetime


class ChunkSummary(Record):
    """A chunk as lists show it: without text, metadata and embedding."""

    namespace: str
    id: str
    document_id: str | None
    chunk_index: int
    dimensions: int
    created_at: datetime
    updated_at: datetime | None


class ChunkText(ChunkSummary):
    """A chunk with its text and metadata."""

    chunk_metadata: dict[str, Any] | None
    content: str


class Chunk(ChunkText):
    """A whole chunk. ``embedding`` is a tuple of 32-bit floats."""

    embedding: tuple[float, ...]

    @classmethod
    def of(cls, values: Any) -> Self:
        values["embedding"] = similarity.unpack(values.pop("embedding"))
        return super().of(values)


class VectorHit(Record):
    """A chunk that a search found, and how near it is.

    ``approximate``: an index chose the chunks that were compared, so that nearer ones may be missing.
    """

    chunk: ChunkText
    score: float
    approximate: bool


class VectorIndex(Record):
    """An index of a namespace's embeddings, on Postgres.

    ``state`` is ``ready``, ``building``, ``failed`` (a call of `Vectors.index` was cut off) or ``unused`` (the
    namespace was deleted, or has another length now). ``namespace`` is None where no namespace has its name any more.
    """

    name: str
    namespace: str | None
    dimensions: int
    state: IndexState
    size_bytes: int
