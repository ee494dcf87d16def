"""Embeddings of namespaces that do not change, held in the memory of a store, so that searches need not read them.

What is held belongs to the tag that the row of the namespace had in the snapshot of the scan
(`lastlight_state.conversations.models.VectorNamespaceModel`). Each search looks at the tag in a snapshot of its own, so
it uses what is held only where the namespace has exactly these chunks: whoever changed them, in whatever process.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from threading import Lock
from typing import Any, Self

from lastlight_state import codec
from lastlight_state.backends.base import Mode
from lastlight_state.conversations import similarity
from lastlight_state.conversations.kernel.searching import SearchRequest, candidates
from lastlight_state.conversations.vectors import statements as sql
from lastlight_state.conversations.vectors.statements import ScannedChunk, SearchedNamespace
from lastlight_state.db.units.unit import Unit

#: How many namespaces are remembered that were searched once.
_MOST_SEEN = 1_000


class HeldNamespace:
    """The embeddings of a namespace, and with ``has_values`` which of them have which values in their metadata."""

    def __init__(self, numpy: Any, known: SearchedNamespace, count: int, *, has_values: bool) -> None:
        self.tag = known["content_tag"]
        self._numpy = numpy
        self._matrix = similarity.Matrix[str](numpy, count, known["dimensions"])
        self._values = HeldValues(numpy) if has_values else None
        self._is_sound = True
        #: About how many bytes it takes, when it is complete.
        self.size = 0

    @property
    def has_values(self) -> bool:
        """True if a search can ask for values of metadata."""
        return self._values is not None

    def add(self, rows: list[ScannedChunk]) -> None:
        """Add the next chunks of a scan."""
        self._is_sound = self._is_sound and self._matrix.add([*candidates(rows)])
        if self._values is not None:
            self._values.add(rows)

    def complete(self) -> bool:
        """Make it ready to be searched; False where the scan left chunks out: each search tells of those anew."""
        if self._values is not None:
            self._values.sort()
        self.size = self._matrix.size + (0 if self._values is None else self._values.size)
        return self._is_sound and self._matrix.is_full

    def best(self, asked: SearchRequest, wanted: Mapping[str, Any] | None) -> list[tuple[str, float]]:
        """Return the ids and scores of the nearest chunks, of all or of those that seem to have the wanted values.

        One that has none of these values may be among them, if the hashes are equal.
        """
        among = self._values.rows_with(wanted) if wanted and self._values is not None else None
        return self._matrix.best(asked.query, asked.top_k, asked.least, among)


class HeldValues:
    """Which rows have which values at the top level of their metadata, by the hashes of names and values."""

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._count = 0
        self._hashes: Any = array("q")
        self._rows: Any = array("q")

    @property
    def size(self) -> int:
        """Return how many bytes it takes."""
        return 2 * 8 * len(self._rows)

    def add(self, rows: Iterable[ScannedChunk]) -> None:
        """Add the metadata of the next rows."""
        for at, row in enumerate(rows, self._count):
            for name, value in (row.get("chunk_metadata") or {}).items():
                self._hashes.append(hash((name, codec.canonical(value))))
                self._rows.append(at)
            self._count = at + 1

    def sort(self) -> None:
        """Make what was added ready to be looked up."""
        hashes, rows = (self._numpy.array(one, "i8") for one in (self._hashes, self._rows))
        order = self._numpy.argsort(hashes, kind="stable")
        self._hashes, self._rows = hashes[order], rows[order]

    def rows_with(self, wanted: Mapping[str, Any]) -> Any:
        """Return the rows with all these values, in order."""
        return reduce(self._numpy.intersect1d, map(self._rows_with, wanted.items()))

    def _rows_with(self, pair: tuple[str, Any]) -> Any:
        first, end = (self._numpy.searchsorted(self._hashes, hash(pair), side) for side in ("left", "right"))
        return self._rows[first:end]


class HeldNamespaces:
    """The namespaces that a store holds, those that were searched last, within a number of bytes."""

    def __init__(self) -> None:
        self._most = 0
        self._lock = Lock()
        self._filling = Lock()  # one at a time, so that memory stays bounded: whoever comes meanwhile reads
        self._held: OrderedDict[str, HeldNamespace] = OrderedDict()
        self._seen: dict[str, int] = {}

    def within(self, most: int) -> Self:
        """Return the same, holding at most so many bytes of all namespaces together."""
        self._most = most
        return self

    def find(self, namespace: str, known: SearchedNamespace, *, with_values: bool) -> HeldNamespace | None:
        """Return what is held of the namespace as it is now, if it is held."""
        with self._lock:
            held = self._held.get(namespace)
            if held is None or held.tag != known["content_tag"] or (with_values and not held.has_values):
                return None
            self._held.move_to_end(namespace)
            return held

    def kept(
        self,
        unit: Unit,
        namespace: str,
        known: SearchedNamespace,
        batches: Iterable[list[ScannedChunk]],
        *,
        with_values: bool,
    ) -> Iterator[list[ScannedChunk]]:
        """Yield the batches of a scan of a whole namespace, and hold them from the second scan of the same state on.

        A process that searches once needs no memory for it, nor does one that changes the namespace each time. Nothing
        is held of what a transaction sees that writes.
        """
        if not self._is_worth(unit, namespace, known) or not self._filling.acquire(blocking=False):
            yield from batches
            return
        try:
            held = self._begin(unit, namespace, known, with_values=with_values)
            for rows in batches:
                if held is not None and rows:
                    held.add(rows)
                yield rows
            if held is not None and held.complete():
                self._hold(namespace, held)
        finally:
            self._filling.release()

    def _is_worth(self, unit: Unit, namespace: str, known: SearchedNamespace) -> bool:
        """True if this state of the namespace was scanned before. Lets go of what is held of another one."""
        tag = known["content_tag"]
        if tag is None or not self._most or unit.checkout.mode is not Mode.SNAPSHOT:
            return False
        with self._lock:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            was_seen = self._seen.get(namespace) == tag
            self._seen[namespace] = tag
            self._held.pop(namespace, None)
        return was_seen

    def _begin(
        self, unit: Unit, namespace: str, known: SearchedNamespace, *, with_values: bool
    ) -> HeldNamespace | None:
        """Return a place for the chunks of a scan; None without numpy, and where they are too many."""
        numpy = similarity.numeric_library()
        if numpy is None:
            return None
        count = unit.value(sql.COUNT, {"namespace": namespace})
        if similarity.WIDTH * count * known["dimensions"] > self._most:
            return None
        try:
            return HeldNamespace(numpy, known, count, has_values=with_values)
        except MemoryError:
            return None

    def _hold(self, namespace: str, held: HeldNamespace) -> None:
        if held.size > self._most:
            return
        with self._lock:
            self._held[namespace] = held
            while sum(one.size for one in self._held.values()) > self._most:
                self._held.popitem(last=False)
