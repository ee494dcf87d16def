"""An in-memory cache of the embeddings of namespaces, so that searches need not read them from the database.

A cache entry belongs to a ``content_tag``: the tag of the namespace's row in the snapshot from which the entry was read
(`lastlight_state.conversations.models.VectorNamespaceModel`). Each search reads the current tag in its own snapshot. So
it uses an entry only if the namespace has exactly the cached chunks, even if another process has changed them.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Self

from lastlight_state import codec
from lastlight_state.backends.base import Mode
from lastlight_state.conversations import similarity
from lastlight_state.conversations.shared.searching import SearchRequest, candidates
from lastlight_state.conversations.vectors import statements as sql
from lastlight_state.conversations.vectors.statements import ScannedChunk, SearchedNamespace
from lastlight_state.db.units.unit import Unit
from lastlight_state.locks import Lock

#: Most namespaces for which the tag of the last scan is remembered.
_MOST_SEEN = 1_000
#: Peak count of 8-byte numbers for each value during sorting: two columns, their copies, the order, and scratch.
_WHILE_SORTED = 6


class HeldNamespace:
    """A cache entry: the embeddings of a namespace and, with ``has_values``, an index of their metadata values."""

    def __init__(self, numpy: Any, known: SearchedNamespace, count: int, *, has_values: bool) -> None:
        self.tag = known["content_tag"]
        self.dimensions = known["dimensions"]
        self._numpy = numpy
        self._matrix = similarity.Matrix[str](numpy, count, known["dimensions"])
        self._values = HeldValues(numpy) if has_values else None
        self._is_sound = True

    @property
    def size(self) -> int:
        """Return the entry's approximate memory in bytes. Before `complete`, return the peak that sorting will need."""
        return self._matrix.size + (0 if self._values is None else self._values.size)

    @property
    def has_values(self) -> bool:
        """True if searches in this entry can filter by metadata values."""
        return self._values is not None

    def add(self, rows: list[ScannedChunk]) -> None:
        """Add the next chunks of a scan to the entry."""
        self._is_sound = self._is_sound and self._matrix.add([*candidates(rows)])
        if self._values is not None:
            self._values.add(rows)

    def complete(self) -> bool:
        """Make the entry ready for searches.

        Return False if the scan left out chunks, so that the entry must not be used. A search by scan logs unreadable
        chunks each time; a cached search would not.
        """
        if self._values is not None:
            self._values.sort()
        return self._is_sound and self._matrix.is_full

    def best(self, asked: SearchRequest, wanted: Mapping[str, Any] | None) -> list[tuple[str, float]]:
        """Return the ids and scores of the nearest chunks; with wanted metadata values, only of chunks that have them.

        Values are compared by hash, so a chunk without a wanted value may be returned after a hash collision.
        """
        among = self._values.rows_with(wanted) if wanted and self._values is not None else None
        return self._matrix.best(asked.query, asked.top_k, asked.least, among)


class HeldValues:
    """An index from the hashes of top-level metadata keys and values to row numbers."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._count = 0
        self._hashes: Any = array("q")
        self._rows: Any = array("q")
        self._columns = _WHILE_SORTED

    @property
    def size(self) -> int:
        """Return the index's memory in bytes. Before `sort`, return the peak that sorting will need."""
        return 8 * self._columns * len(self._rows)

    def add(self, rows: Iterable[ScannedChunk]) -> None:
        """Add the metadata values of the next rows. Row numbers continue after the last row."""
        for at, row in enumerate(rows, self._count):
            for name, value in (row.get("chunk_metadata") or {}).items():
                self._hashes.append(hash((name, codec.canonical(value))))
                self._rows.append(at)
            self._count = at + 1

    def sort(self) -> None:
        """Sort the index by hash, as `rows_with` needs."""
        hashes, rows = (self._numpy.frombuffer(one, "i8") for one in (self._hashes, self._rows))
        order = self._numpy.argsort(hashes, kind="stable")
        self._hashes, self._rows = hashes[order], rows[order]
        self._columns = 2

    def rows_with(self, wanted: Mapping[str, Any]) -> Any:
        """Return the numbers of the rows whose metadata have all these values, ascending."""
        return reduce(self._numpy.intersect1d, map(self._rows_with, wanted.items()))

    def _rows_with(self, pair: tuple[str, Any]) -> Any:
        first, end = (self._numpy.searchsorted(self._hashes, hash(pair), side) for side in ("left", "right"))
        return self._rows[first:end]


class HeldNamespaces:
    """A store's cache of namespaces, limited in bytes. It evicts the least recently searched namespace first."""

    def __init__(self) -> None:
        self._most = 0
        self._lock = Lock()
        self._filling_lock = Lock()  # one scan fills the cache at a time, which bounds memory; others only read
        self._held: OrderedDict[str, HeldNamespace] = OrderedDict()
        self._seen: dict[str, int] = {}
        #: By namespace: the tag that was too large to cache, and True if it is too large even without metadata values.
        self._too_large: dict[str, tuple[int | None, bool]] = {}

    def within(self, most: int) -> Self:
        """Set the limit in bytes for all cached namespaces together, and return the cache."""
        self._most = most
        return self

    def find(self, namespace: str, known: SearchedNamespace, *, with_values: bool) -> HeldNamespace | None:
        """Return the cache entry that matches the namespace's current tag, or None."""
        with self._lock:
            held = self._held.get(namespace)
            if held is None or not _is_of(held, known) or (with_values and not held.has_values):
                return None
            self._held.move_to_end(namespace)
            return held

    def keep_batches(
        self,
        unit: Unit,
        namespace: str,
        known: SearchedNamespace,
        batches: Iterable[list[ScannedChunk]],
        *,
        with_values: bool,
    ) -> Iterator[list[ScannedChunk]]:
        """Yield the batches of a scan of a whole namespace. The second scan under the same tag also fills the cache.

        So a process that searches only once, or changes the namespace before each search, uses no memory for the cache.
        A scan inside a writing transaction is never cached.
        """
        if not self._is_worth(unit, namespace, known, with_values=with_values) or not self._filling_lock.acquire(
            blocking=False
        ):
            yield from batches
            return
        try:
            held = self._begin(unit, namespace, known, with_values=with_values)
            for rows in batches:
                if held is not None and rows:
                    held.add(rows)
                    if not self._make_room(held.size):
                        self._give_up(namespace, known, without_values=not held.has_values)
                        held = None
                yield rows
            if held is not None and held.complete():
                with self._lock:
                    self._held[namespace] = held
        finally:
            self._filling_lock.release()

    def _is_worth(self, unit: Unit, namespace: str, known: SearchedNamespace, *, with_values: bool) -> bool:
        """True if the namespace was scanned before under its current tag and may fit into the cache.

        Removes a cache entry of another tag.
        """
        tag = known["content_tag"]
        if tag is None or not self._most or unit.mode is not Mode.SNAPSHOT:
            return False
        with self._lock:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
                self._too_large.clear()
            was_seen = self._seen.get(namespace) == tag
            self._seen[namespace] = tag
            held = self._held.get(namespace)
            if held is not None and not _is_of(held, known):
                del self._held[namespace]
            refused, without_values = self._too_large.get(namespace, (None, False))
        return was_seen and not (refused == tag and (with_values or without_values))

    def _begin(
        self, unit: Unit, namespace: str, known: SearchedNamespace, *, with_values: bool
    ) -> HeldNamespace | None:
        """Return an empty cache entry for a scan. Returns None without numpy, or if the chunks need too much memory."""
        numpy = similarity.numeric_library()
        if numpy is None:
            return None
        count = unit.value(sql.COUNT, {"namespace": namespace})
        if not self._make_room(similarity.WIDTH * count * known["dimensions"]):
            self._give_up(namespace, known, without_values=True)
            return None
        try:
            return HeldNamespace(numpy, known, count, has_values=with_values)
        except MemoryError:
            return None

    def _make_room(self, size: int) -> bool:
        """Evict the least recently searched entries until ``size`` bytes fit.

        Return False if they exceed the whole limit.
        """
        if size > self._most:
            return False
        with self._lock:
            while self._held and size + sum(one.size for one in self._held.values()) > self._most:
                self._held.popitem(last=False)
        return True

    def _give_up(self, namespace: str, known: SearchedNamespace, *, without_values: bool) -> None:
        """Record that the namespace, under its current tag, is too large to cache.

        ``without_values=True`` means that it is too large even without metadata values.
        """
        with self._lock:
            self._too_large[namespace] = known["content_tag"], without_values


def _is_of(held: HeldNamespace, known: SearchedNamespace) -> bool:
    """True if a cache entry has the namespace's current tag and dimensions."""
    return held.tag == known["content_tag"] and held.dimensions == known["dimensions"]
