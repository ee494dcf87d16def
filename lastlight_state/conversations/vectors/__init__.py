"""Vectors: chunks of text with their embeddings, in namespaces, and search for the nearest.

All embeddings of a namespace have the length of its first chunk's. Chunks are derived data: they may be deleted.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import Search
from lastlight_state.conversations.drafts import ChunkDraft
from lastlight_state.conversations.shared import searching, storing
from lastlight_state.conversations.tables import NAMESPACES, VECTORS
from lastlight_state.conversations.vectors import statements as own, statements as sql
from lastlight_state.conversations.vectors.held import HeldNamespaces
from lastlight_state.conversations.vectors.records import (
    Chunk,
    ChunkSummary,
    NewChunk,
    VectorHit,
    VectorIndex,
    VectorNamespace,
)
from lastlight_state.conversations.vectors.searches import ChunkSearch
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue

_LIMITS = limits_of(NAMESPACES)

_USUAL = Search()


class Vectors(Repository):
    """``store.conversations.vectors``"""

    def put(self, namespace: str, chunks: Sequence[NewChunk], *, model: str | None = None) -> int:
        """Store at most 1,000 chunks, or replace stored chunks of the same ids; all or none. Returns their number.

        The first chunk of a namespace fixes the length of its embeddings, and the model if one is named. A replaced
        chunk keeps its time of creation. Raises `InvalidValue` for another length or model.
        """
        now = self._now()
        name = valid.identifier("namespace", namespace, _LIMITS.namespace)
        told = checks.name("model", model, _LIMITS.model)
        rows = sorted(own.rows(name, chunks, now), key=lambda row: str(row["id"]))
        if not rows:
            return 0
        first = {"namespace": name, "dimensions": rows[0]["dimensions"], "model": told, "created_at": now}
        ways = iter([_together])  # and one by one where another put stored one of these ids at the same time

        def put() -> int:
            insert = next(ways, _one_by_one)
            return self._writing(lambda unit: _put(unit, first, rows, insert), repeatable=True)

        return storing.retry_storing(put)

    def get(self, namespace: str, chunk_id: str) -> Chunk:
        """Return the chunk. Raises `NotFound`."""
        key = (namespace, chunk_id)
        return self._get_row(sql.GET, _key(namespace, chunk_id), kind=words.CHUNK_KIND, key=key)

    def find(self, namespace: str, chunk_id: str) -> Chunk | None:
        """Return the chunk, or None."""
        return self._find(sql.GET, _key(namespace, chunk_id))

    def list(
        self, namespace: str, *, document_id: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[ChunkSummary]:
        """Return a page of a namespace's chunks, ordered by id, without texts.

        With ``document_id``, return that document's chunks, ordered by ``chunk_index``.
        """
        given = {"namespace": valid.lookup_text("namespace", namespace)}
        if document_id is None:
            return self._page(sql.LIST, given, limit, page_token)
        of_document = {**given, "document_id": valid.lookup_text("document_id", document_id)}
        return self._page(sql.OF_DOCUMENT, of_document, limit, page_token)

    def search(
        self,
        namespace: str,
        vector: Sequence[float] | bytes,
        *,
        top_k: int = 10,
        where: dict[str, Any] | None = None,
        document_id: str | None = None,
        how: Search = _USUAL,
        approximate: bool = False,
    ) -> builtins.list[VectorHit]:
        """Return the ``top_k`` (1 to 1,000) chunks nearest to a vector, best first. Equal scores sort by id.

        Compares all chunks of the namespace. With ``document_id`` only those of that document, and with ``where`` only
        those whose metadata have its values at their top level. An unknown namespace has no chunks. Raises
        `InvalidValue` for a vector of another length than the namespace's, and for a zero vector under cosine; under
        cosine stored zero vectors are left out.

        With ``approximate`` only the chunks that an index of the namespace finds (`index`) are compared, and each hit
        has ``approximate`` set. The search stays exact if the namespace has no index, for another metric than cosine,
        with ``document_id``, for a ``top_k`` above 500, and if fewer than ``top_k`` chunks that the index finds match
        ``where``.
        """
        valid.flag("approximate", approximate)
        asked = searching.search_request(vector, top_k, how)
        values: Row = {"namespace": valid.lookup_text("namespace", namespace)}
        if document_id is not None:
            values["document_id"] = valid.lookup_text("document_id", document_id)
        search = ChunkSearch(values, asked, own.wanted_values(where), approximate)
        memory = self._remember(HeldNamespaces).within(self._settings.vector_memory)
        return self._viewing(lambda unit: search.run(unit, memory))

    def count(self, namespace: str) -> int:
        """Return the number of chunks in a namespace, 0 for an unknown namespace."""
        return int(self._value(sql.COUNT, {"namespace": valid.lookup_text("namespace", namespace)}))

    def clear(
        self,
        namespace: str,
        *,
        ids: Sequence[str] | None = None,
        document_id: str | None = None,
        scope: Literal["namespace"] | None = None,
    ) -> int:
        """Delete chunks by at most 10,000 ids, by document, or with ``scope="namespace"`` the whole namespace.

        Returns the number of deleted chunks. Exactly one of the three arguments must be given. A deleted namespace can
        be created again with another length of embeddings.
        """
        name = valid.lookup_text("namespace", namespace)
        if sum(given is not None for given in (ids, document_id, scope)) != 1:
            raise InvalidValue("clear", "expected exactly one of ids, document_id and scope")
        if scope is not None:
            valid.word("scope", scope, {"namespace"})
            return storing.retry_storing(
                lambda: self._writing(lambda unit: _clear_namespace(unit, name), repeatable=True)
            )
        if document_id is not None:
            of_document = {"namespace": name, "document_id": valid.lookup_text("document_id", document_id)}
            return self._once(lambda unit: unit.change(sql.CLEAR_DOCUMENT, of_document), repeatable=True)
        wanted = checks.message_ids("ids", ids, words.MANY)
        given = {"namespace": name, "ids": as_list([{"id": one} for one in wanted])}
        return self._once(lambda unit: unit.change(sql.CLEAR_IDS, given), repeatable=True) if wanted else 0

    def namespaces(self, *, limit: int = 50, page_token: str | None = None) -> Page[VectorNamespace]:
        """Return a page of the namespaces, by their names."""
        return self._page(sql.NAMESPACE_LIST, None, limit, page_token)

    def index(self, namespace: str) -> VectorIndex | None:
        """Make an index for approximate searches of a namespace unless it is there, and return the index.

        Postgres alone makes one, by the extension pgvector from 0.7 on: of embeddings of at most 4,000 numbers, while
        others read and write; 100,000 of them take minutes. Afterwards the database keeps the index right itself, which
        makes each put slower. On SQLite nothing is made, and None returned: searches there are exact.

        Raises `NotFound` for an unknown namespace, `NotSupported` with what an administrator runs where the extension
        is missing and the role may not create it, `BackendUnavailable` ``permission`` for a role that does not own the
        tables, and `Conflict` ``already_running`` while another call makes this index. Not inside a transaction.
        """
        name = valid.lookup_text("namespace", namespace)
        length = self._apart(lambda unit: _make_index(unit, name))
        found = (one for one in self.indexes() if (one.namespace, one.dimensions) == (name, length))
        return next(found, None)

    def indexes(self) -> builtins.list[VectorIndex]:
        """Return all indexes of embeddings, by their names. On SQLite there are none."""
        found = self._reading(lambda unit: unit.backend.vector_indexes(unit))
        return [VectorIndex.of(one._asdict()) for one in found]

    def drop_index(self, namespace: str) -> bool:
        """Remove the index of a namespace, which need not be there any more. Return whether there was an index.

        Raises as `index`. Not inside a transaction.
        """
        name = valid.lookup_text("namespace", namespace)
        return bool(self._apart(lambda unit: unit.backend.drop_vector_indexes(unit, name)))


def _key(namespace: str, chunk_id: str) -> dict[str, str]:
    return {"namespace": valid.lookup_text("namespace", namespace), "id": valid.lookup_text("chunk_id", chunk_id)}


def _pin(unit: Unit, first: Row) -> None:
    """Make the namespace unless it is there, and keep it; refuse another length or model."""
    known = unit.row(sql.NAMESPACE, first)
    if known is None:
        unit.change(sql.ADD_NAMESPACE, first)
        known = unit.row(sql.NAMESPACE, first)
    if known is None:  # created by one transaction and deleted by another: `retry_storing` retries
        raise Conflict("the namespace was deleted meanwhile", code="unique")
    whose = f"namespace {first['namespace']!r}"
    own.refuse_other_length("chunks", first["dimensions"], known.dimensions, whose)
    if None not in (first["model"], known.model) and first["model"] != known.model:
        raise InvalidValue("model", f"{first['model']!r}, but {whose} has {known.model!r}")


def _put(
    unit: Unit,
    first: Row,
    rows: Sequence[ChunkDraft],
    insert: Callable[[Unit, Sequence[ChunkDraft]], None],
) -> int:
    _pin(unit, first)
    given = {"namespace": first["namespace"], "ids": as_list([{"id": row["id"]} for row in rows])}
    former = dict(unit.rows(sql.LOCK, given))
    if former:
        unit.change(sql.CLEAR_IDS, {**given, "ids": as_list([{"id": one} for one in former])})
    insert(unit, [_keep_created_at(row, former.get(row["id"])) for row in rows])
    return len(rows)


def _together(unit: Unit, rows: Sequence[ChunkDraft]) -> None:
    unit.insert(VECTORS, sql.INSERT, rows)


def _one_by_one(unit: Unit, rows: Sequence[ChunkDraft]) -> None:
    """Insert chunks one at a time. If another transaction stores one of them concurrently, replace it."""
    for row in rows:
        unit.change(sql.PUT, row)


def _keep_created_at(row: ChunkDraft, created_at: datetime | None) -> ChunkDraft:
    """Return a chunk's row. If it replaces a chunk, it keeps that chunk's creation time ``created_at``."""
    return row if created_at is None else {**row, "created_at": created_at, "updated_at": row["created_at"]}


def _make_index(unit: Unit, namespace: str) -> int:
    """Make the index of a namespace, and return the length of its embeddings. Raises `NotFound`."""
    known = unit.row(sql.FIND_NAMESPACE, {"namespace": namespace})
    if known is None:
        raise valid.not_found(words.NAMESPACE_KIND, namespace)
    unit.backend.make_vector_index(unit, namespace, known["dimensions"])
    return known["dimensions"]


def _clear_namespace(unit: Unit, namespace: str) -> int:
    if unit.row(sql.LOCK_NAMESPACE, {"namespace": namespace}) is None:
        return 0
    found = unit.change(sql.CLEAR_ALL, {"namespace": namespace})
    unit.change(sql.DROP_NAMESPACE, {"namespace": namespace})
    return found
