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
from typing import Any, Self

from lastlight_state import codec
from lastlight_state.backends.base import Mode
from lastlight_state.conversations import similarity
from lastlight_state.conversations.kernel.searching import SearchRequest, candidates
from lastlight_state.conversations.vectors import statements as sql
from lastlight_state.conversations.vectors.statements import ScannedChunk, SearchedNamespace
from lastlight_state.db.units.unit import Unit
from lastlight_state.locks import Lock

#: How many namespaces are remembered that were searched once.
_MOST_SEEN = 1_000
#: How many numbers for each value there are at once while they are sorted: two columns, their copies, order, scratch.
_WHILE_SORTED = 6


class HeldNamespace:
    """The embeddings of a namespace, and with ``has_values`` which of them have which values in their metadata."""

    def __init__(self, numpy: Any, known: SearchedNamespace, count: int, *, has_values: bool) -> None:
        self.tag = known["content_tag"]
        self.dimensions = known["dimensions"]
        self._numpy = numpy
        self._matrix = similarity.Matrix[str](numpy, count, known["dimensions"])
        self._values = HeldValues(numpy) if has_values else None
        self._is_sound = True

    @property
    def size(self) -> int:
        """Return about how many bytes it takes, or takes at most until it is complete."""
        return self._matrix.size + (0 if self._values is None else self._values.size)

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
        self._columns = _WHILE_SORTED

    @property
    def size(self) -> int:
        """Return how many bytes it takes, or takes at most until it is sorted."""
        return 8 * self._columns * len(self._rows)

    def add(self, rows: Iterable[ScannedChunk]) -> None:
        """Add the metadata of the next rows, numbered from the last one on."""
        for at, row in enumerate(rows, self._count):
            for name, value in (row.get("chunk_metadata") or {}).items():
                self._hashes.append(hash((name, codec.canonical(value))))
                self._rows.append(at)
            self._count = at + 1

    def sort(self) -> None:
        """Make what was added ready to be looked up."""
        hashes, rows = (self._numpy.frombuffer(one, "i8") for one in (self._hashes, self._rows))
        order = self._numpy.argsort(hashes, kind="stable")
        self._hashes, self._rows = hashes[order], rows[order]
        self._columns = 2

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
        #: The states that were found too large to be held: which, and whether also without the values of metadata.
        self._too_large: dict[str, tuple[int | None, bool]] = {}

    def within(self, most: int) -> Self:
        """Return the same, holding at most so many bytes of all namespaces together."""
        self._most = most
        return self

    def find(self, namespace: str, known: SearchedNamespace, *, with_values: bool) -> HeldNamespace | None:
        """Return what is held of the namespace as it is now, if it is held."""
        with self._lock:
            held = self._held.get(namespace)
            if held is None or not _is_of(held, known) or (with_values and not held.has_values):
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
        if not self._is_worth(unit, namespace, known, with_values=with_values) or not self._filling.acquire(
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
            self._filling.release()

    def _is_worth(self, unit: Unit, namespace: str, known: SearchedNamespace, *, with_values: bool) -> bool:
        """True if this state of the namespace was scanned before, and may have room. Lets go of another state."""
        tag = known["content_tag"]
        if tag is None or not self._most or unit.checkout.mode is not Mode.SNAPSHOT:
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
        """Return a place for the chunks of a scan; None without numpy, and where they are too many."""
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
        """Let go of what was searched longest ago until there is room for so many bytes; False if there never is."""
        if size > self._most:
            return False
        with self._lock:
            while self._held and size + sum(one.size for one in self._held.values()) > self._most:
                self._held.popitem(last=False)
        return True

    def _give_up(self, namespace: str, known: SearchedNamespace, *, without_values: bool) -> None:
        """Note that this state is too large to be held with the values of metadata, or even without them."""
        with self._lock:
            self._too_large[namespace] = known["content_tag"], without_values


def _is_of(held: HeldNamespace, known: SearchedNamespace) -> bool:
    """True if what is held is the namespace as it is known now."""
    return held.tag == known["content_tag"] and held.dimensions == known["dimensions"]
