"""Argument groups of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NewChunk:
    """A chunk of text to store, with its embedding: a sequence of numbers, or their bytes.

    ``document_id`` and ``chunk_index`` say which part of which document it is.
    """

    id: str
    content: str
    embedding: Sequence[float] | bytes
    chunk_metadata: dict[str, Any] | None = None
    document_id: str | None = None
    chunk_index: int = 0
