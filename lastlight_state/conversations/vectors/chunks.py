"""Chunks as callers give them, checked and as statements name them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations import checks, packing, words
from lastlight_state.conversations.shown import ChunkDraft
from lastlight_state.conversations.tables import VECTORS
from lastlight_state.conversations.vectors.arguments import NewChunk
from lastlight_state.conversations.vectors.statements import ScannedChunk
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue, PayloadTooLarge

_MOST = limits_of(VECTORS)


def rows(namespace: str, chunks: Any, now: datetime) -> list[ChunkDraft]:
    """Return the parameters of chunks, all with embeddings of one length and ids of their own."""
    found = [
        _row(f"chunks[{i}]", namespace, one, now) for i, one in enumerate(checks.batch("chunks", chunks, words.BATCH))
    ]
    size = sum(len(one["content"].encode()) + len(one["embedding"]) for one in found)
    if size > words.BATCH_BYTES:
        raise PayloadTooLarge("chunks", limit=words.BATCH_BYTES, actual=size)
    seen: set[str] = set()
    for i, one in enumerate(found):
        refuse_other_length(f"chunks[{i}].embedding", one["dimensions"], found[0]["dimensions"], "the first chunk")
        if one["id"] in seen:
            raise InvalidValue(f"chunks[{i}].id", "stands twice in one call")
        seen.add(one["id"])
    return found


def refuse_other_length(where: str, found: int, expected: int, whose: str) -> None:
    """Refuse an embedding that cannot be compared with others."""
    if found != expected:
        raise InvalidValue(where, f"{found} numbers, but {whose} has {expected}", expected=expected, found=found)


def passing(where: Any) -> Callable[[ScannedChunk], bool] | None:
    """Return whether the metadata of a row have these values at their top level; None for whichever."""
    if where is None:
        return None
    codec.encode("where", valid.group("where", where, dict), max_bytes=_MOST.chunk_metadata)
    wanted = {key: codec.canonical(value) for key, value in where.items()}

    def passes(row: ScannedChunk) -> bool:
        stored = row.get("chunk_metadata") or {}
        return all(key in stored and codec.canonical(stored[key]) == value for key, value in wanted.items())

    return passes


def _row(where: str, namespace: str, chunk: Any, now: datetime) -> ChunkDraft:
    given = valid.group(where, chunk, NewChunk)
    embedding = checks.vector(f"{where}.embedding", given.embedding)
    return {
        "namespace": namespace,
        "id": valid.identifier(f"{where}.id", given.id, _MOST.id),
        "document_id": checks.name(f"{where}.document_id", given.document_id, _MOST.document_id),
        "chunk_index": valid.number(f"{where}.chunk_index", given.chunk_index),
        "dimensions": len(embedding) // 4,
        "norm": packing.norm(packing.unpack(embedding)),
        "created_at": now,
        "updated_at": None,
        "embedding": embedding,
        "chunk_metadata": checks.encoded(f"{where}.chunk_metadata", given.chunk_metadata, _MOST.chunk_metadata),
        "content": valid.content(f"{where}.content", given.content, _MOST.content),
    }
