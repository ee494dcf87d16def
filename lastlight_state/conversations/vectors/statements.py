"""The SQL statements for vector chunks and namespaces, and the checks of chunks to store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NotRequired, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import checks, similarity, words
from lastlight_state.conversations.drafts import ChunkDraft
from lastlight_state.conversations.shared.searching import ComparedRow
from lastlight_state.conversations.tables import NAMESPACES, VECTORS
from lastlight_state.conversations.vectors.records import Chunk, ChunkSummary, ChunkText, NewChunk, VectorNamespace
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Statement, bind, columns_of, every_column_of, statement_of
from lastlight_state.db.rows.writes import elements_table
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.errors import InvalidValue, PayloadTooLarge


class ScannedChunk(ComparedRow):
    """What a search reads of a chunk; its metadata where they are asked for."""

    chunk_index: NotRequired[int]
    chunk_metadata: NotRequired[Any]


class SearchedNamespace(TypedDict):
    """What a search reads of a namespace."""

    dimensions: int
    content_tag: int | None


_n, _v = NAMESPACES.c, VECTORS.c
#: A namespace as callers know it: without the tag, which triggers set.
_NAMESPACE = every_column_of(VectorNamespace, NAMESPACES, hidden={"content_tag"})

_WHOLE = every_column_of(Chunk, VECTORS, hidden={"norm"})
_WITHIN = _v.namespace == bind("namespace", _v.namespace)
_OF_DOCUMENT = _v.document_id == bind("document_id", _v.document_id)
_AMONG = sa.and_(_WITHIN, AmongFew(_v.id, sa.select(member_of(elements_table("ids").c.value, "id"))))

#: Locks a namespace against deletion until the transaction ends. A shared lock, so that puts do not block one another.
NAMESPACE = statement_of(
    sa.select(*_NAMESPACE).where(_n.namespace == bind("namespace", _n.namespace)).with_for_update(read=True),
    VectorNamespace,
)
FIND_NAMESPACE = statement_of(
    sa.select(_n.dimensions, _n.content_tag).where(_n.namespace == bind("namespace", _n.namespace)), SearchedNamespace
)
ADD_NAMESPACE = statement_of(
    insert(NAMESPACES)
    .values({column.name: bind(column.name, column) for column in _NAMESPACE})
    .on_conflict_do_nothing()
)
DROP_NAMESPACE = statement_of(sa.delete(NAMESPACES).where(_n.namespace == bind("namespace", _n.namespace)))
LOCK_NAMESPACE = statement_of(
    sa.select(_n.namespace).where(_n.namespace == bind("namespace", _n.namespace)).with_for_update()
)

INSERT = statement_of(sa.insert(VECTORS).values({column.name: bind(column.name, column) for column in VECTORS.columns}))
_put = insert(VECTORS).values({column.name: bind(column.name, column) for column in VECTORS.columns})
#: Inserts a chunk, or replaces one that another transaction stored concurrently. The time of creation is kept.
PUT = statement_of(
    _put.on_conflict_do_update(
        index_elements=[_v.namespace, _v.id],
        set_={
            column.name: _put.excluded[column.name]
            for column in VECTORS.columns
            if column.name not in ("namespace", "id", "created_at", "updated_at")
        }
        | {"updated_at": _put.excluded.created_at},
    )
)
#: The chunks that a put replaces, in the order of their ids, in which every put locks and inserts.
LOCK: Statement[tuple[str, datetime]] = statement_of(
    sa.select(_v.id, _v.created_at).where(_AMONG).order_by(_v.id).with_for_update(), tuple
)
CLEAR_IDS = statement_of(sa.delete(VECTORS).where(_AMONG))
CLEAR_DOCUMENT = statement_of(sa.delete(VECTORS).where(_WITHIN, _OF_DOCUMENT))
CLEAR_ALL = statement_of(sa.delete(VECTORS).where(_WITHIN))

GET = statement_of(sa.select(*_WHOLE).where(_WITHIN, _v.id == bind("id", _v.id)), Chunk)
TEXTS = statement_of(sa.select(*columns_of(ChunkText, VECTORS)).where(_AMONG), ChunkText)
COUNT = statement_of(sa.select(sa.func.count()).select_from(VECTORS).where(_WITHIN))

NAMESPACE_LIST = Listing("vector_namespaces", _NAMESPACE, order=(_n.namespace,), descending=False, row=VectorNamespace)
LIST = Listing(
    "vectors",
    columns_of(ChunkSummary, VECTORS),
    order=(_v.id,),
    filters={"namespace": _WITHIN},
    descending=False,
    row=ChunkSummary,
)
OF_DOCUMENT = Listing(
    "vectors.document",
    columns_of(ChunkSummary, VECTORS),
    row=ChunkSummary,
    order=(_v.chunk_index, _v.id),
    filters={"namespace": _WITHIN, "document_id": _OF_DOCUMENT},
    descending=False,
)


def _scan(conditions: list[Any], order: list[Any], *, filtered: bool) -> Statement[ScannedChunk]:
    """Return a statement that reads ids and embeddings of chunks in batches. Texts are read later, only for results.

    With ``filtered``, it also reads the metadata.
    """
    shown = [_v.id, *(column for column in order if column is not _v.id), _v.norm, _v.embedding]
    after = sa.tuple_(*order) > sa.tuple_(*(bind(f"after_{column.name}", column) for column in order))
    scan = sa.select(*shown, *([_v.chunk_metadata] if filtered else [])).where(*conditions, after).order_by(*order)
    return statement_of(scan.limit(sa.bindparam("limit", type_=sa.Integer)), ScannedChunk)


#: The scan statements, by whether one document is searched, and whether metadata are compared.
SCANS = {
    (of_document, filtered): _scan(
        [_WITHIN, _OF_DOCUMENT] if of_document else [_WITHIN],
        [_v.chunk_index, _v.id] if of_document else [_v.id],
        filtered=filtered,
    )
    for of_document in (False, True)
    for filtered in (False, True)
}

#: What a search compares of chunks that an index found, by whether metadata are asked for.
COMPARED = {
    filtered: statement_of(
        sa.select(_v.id, _v.norm, _v.embedding, *([_v.chunk_metadata] if filtered else [])).where(_AMONG), ScannedChunk
    )
    for filtered in (False, True)
}


# Checks of the chunks that callers give, which return the columns to store.

_LIMITS = limits_of(VECTORS)


def rows(namespace: str, chunks: Any, now: datetime) -> list[ChunkDraft]:
    """Check a batch of chunks and return their columns. Ids must be distinct, embeddings of equal length.

    Raises `InvalidValue`, and `PayloadTooLarge` for a batch above `words.BATCH_BYTES`.
    """
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
            raise InvalidValue(f"chunks[{i}].id", "must not stand twice in one call")
        seen.add(one["id"])
    return found


def refuse_other_length(where: str, found: int, expected: int, whose: str) -> None:
    """Raise `InvalidValue` if an embedding has another length than expected."""
    if found != expected:
        raise InvalidValue(where, f"{found} numbers, but {whose} has {expected}", expected=expected, found=found)


def wanted_values(where: Any) -> dict[str, Any] | None:
    """Check a metadata filter, and return its values in canonical form, as they are compared. None is allowed."""
    if where is None:
        return None
    codec.encode("where", valid.argument_group("where", where, dict), max_bytes=_LIMITS.chunk_metadata)
    return {key: codec.canonical(value) for key, value in where.items()}


def has_values(metadata: Any, wanted: Mapping[str, Any]) -> bool:
    """True if metadata have these values at their top level."""
    stored = metadata or {}
    return all(key in stored and codec.canonical(stored[key]) == value for key, value in wanted.items())


def _row(where: str, namespace: str, chunk: Any, now: datetime) -> ChunkDraft:
    given = valid.argument_group(where, chunk, NewChunk)
    embedding = checks.vector(f"{where}.embedding", given.embedding)
    return {
        "namespace": namespace,
        "id": valid.identifier(f"{where}.id", given.id, _LIMITS.id),
        "document_id": checks.name(f"{where}.document_id", given.document_id, _LIMITS.document_id),
        "chunk_index": valid.number(f"{where}.chunk_index", given.chunk_index),
        "dimensions": len(embedding) // 4,
        "norm": similarity.norm(similarity.unpack(embedding)),
        "created_at": now,
        "updated_at": None,
        "embedding": embedding,
        "chunk_metadata": checks.encode_object(f"{where}.chunk_metadata", given.chunk_metadata, _LIMITS.chunk_metadata),
        "content": valid.content(f"{where}.content", given.content, _LIMITS.content),
    }
