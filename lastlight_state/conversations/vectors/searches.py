"""Searches the chunks of a namespace: in the in-memory cache if it is up to date, else by a scan of the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from lastlight_state.conversations.shared import searching
from lastlight_state.conversations.vectors import statements as sql
from lastlight_state.conversations.vectors.held import HeldNamespaces
from lastlight_state.conversations.vectors.records import VectorHit
from lastlight_state.conversations.vectors.statements import ScannedChunk, SearchedNamespace, has_values
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit

#: How many chunks an index is asked for, and how many where only some of them may pass a filter. An index gives no more
#: than the last number.
_CANDIDATES, _FILTERED, _MOST_CANDIDATES = 100, 400, 1_000


class ChunkSearch(NamedTuple):
    """A search of a namespace or one of its documents, for chunks whose metadata have the ``wanted`` values."""

    values: Row
    asked: searching.SearchRequest
    wanted: Mapping[str, Any] | None
    approximate: bool

    def run(self, unit: Unit, memory: HeldNamespaces) -> list[VectorHit]:
        """Run the search and return the hits, best first.

        Raises `InvalidValue` for a vector of another length than the namespace's.
        """
        known = unit.row(sql.FIND_NAMESPACE, self.values)
        if known is None:
            return []
        whose = f"namespace {self.values['namespace']!r}"
        sql.refuse_other_length("vector", self.asked.dimensions, known["dimensions"], whose)
        if "document_id" in self.values:
            return self._search_by_scan(unit, None, known)
        if self.approximate and (near := self._search_index(unit, known)) is not None:
            return near
        found = self._search_cache(unit, memory, known)
        return self._search_by_scan(unit, memory, known) if found is None else found

    def _search_index(self, unit: Unit, known: SearchedNamespace) -> list[VectorHit] | None:
        """Return the best of the chunks that an index finds, or None where only an exact search can tell."""
        asked, namespace = self.asked, self.values["namespace"]
        most = max(2 * asked.top_k, _FILTERED if self.wanted else _CANDIDATES)
        if asked.query.metric != "cosine" or most > _MOST_CANDIDATES:
            return None
        ids = unit.backend.nearest(unit, namespace, known["dimensions"], asked.query.packed, most)
        if ids is None or len(ids) < asked.top_k:
            return None
        given = {"namespace": namespace, "ids": as_list([{"id": key} for key in ids])}
        rows = unit.readable_rows(sql.COMPARED[bool(self.wanted)], given)[0]
        passes = self._passes if self.wanted else None
        found = searching.best_matches([[rows]], asked._replace(least=None), passes=passes)
        if len(found) < asked.top_k:
            return None
        near = [one for one in found if asked.least is None or one[1] >= asked.least]
        return self._hits(unit, near, approximate=True)

    def _search_cache(self, unit: Unit, memory: HeldNamespaces, known: SearchedNamespace) -> list[VectorHit] | None:
        """Search the in-memory cache. Returns None if the namespace must be scanned instead."""
        held = memory.find(self.values["namespace"], known, with_values=bool(self.wanted))
        if held is None:
            return None
        hits = self._hits(unit, held.best(self.asked, self.wanted))
        is_right = all(has_values(hit.chunk.chunk_metadata, self.wanted or {}) for hit in hits)
        return hits if is_right else None  # None after a hash collision of two values

    def _search_by_scan(self, unit: Unit, memory: HeldNamespaces | None, known: SearchedNamespace) -> list[VectorHit]:
        of_document = "document_id" in self.values
        after: Row = {"chunk_index": -1, "id": ""} if of_document else {"id": ""}
        read = partial(unit.rows_or_errors, sql.SCANS[of_document, bool(self.wanted)])
        batches = searching.batches(read, self.values, after, self.asked.query)
        if memory is not None:
            key = self.values["namespace"]
            batches = memory.keep_batches(unit, key, known, batches, with_values=bool(self.wanted))
        passes = self._passes if self.wanted else None
        return self._hits(unit, searching.best_matches([batches], self.asked, passes=passes))

    def _passes(self, row: ScannedChunk) -> bool:
        return has_values(row.get("chunk_metadata"), self.wanted or {})

    def _hits(self, unit: Unit, found: Sequence[tuple[str, float]], *, approximate: bool = False) -> list[VectorHit]:
        """Return the chunks that were found, with their texts; one whose text is unreadable is logged and left out."""
        if not found:
            return []
        ids = as_list([{"id": key} for key, _ in found])
        texts = unit.readable_rows(sql.TEXTS, {"namespace": self.values["namespace"], "ids": ids})[0]
        chunks = {chunk.id: chunk for chunk in texts}
        return [
            VectorHit.of({"chunk": chunks[key], "score": score, "approximate": approximate})
            for key, score in found
            if key in chunks
        ]
