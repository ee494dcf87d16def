"""Searches of a LangGraph store: embeddings of items, and filters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from lastlight_state.conversations import similarity
from lastlight_state.conversations.shared import searching
from lastlight_state.db import valid
from lastlight_state.domains import Transaction, View
from lastlight_state.errors import InvalidValue
from lastlight_state.integrations.conversing import ITEMS, VECTORS
from lastlight_state.keys import compose_key, parts_of
from lastlight_state.states import State, StateSummary
from lastlight_state.states.face import MANY

try:
    from langgraph.store.base import (
        IndexConfig,
        MatchCondition,
        PutOp,
        ensure_embeddings,
        get_text_at_path,
        tokenize_path,
    )
except ImportError:  # as in `langgraph_store`
    ensure_embeddings = None

#: The header of an item's stored embeddings: the number of dimensions of each.
_DIMS = struct.Struct("<I")
#: A search with a filter first looks at so many of the nearest items for each wanted item, and at least at so many.
_OF_EACH, _LEAST_FILTERED = 16, 256
#: Items with their values that such a search reads at once.
_AT_ONCE = 128


class Place(NamedTuple):
    """The key of an item: its namespace as one text, and its own key."""

    labels: str
    key: str


def labels_of(namespace: Sequence[str]) -> str:
    """Return a namespace as one text."""
    return compose_key(*namespace, "")


def namespace_of(labels: str) -> tuple[str, ...]:
    """Return the namespace that `labels_of` turned into this text."""
    return tuple(parts_of(labels)[:-1])


class PassingItems:
    """The items that pass a filter. They are read in the same order as the embeddings, and at the same pace.

    The first ``wanted`` items are remembered.
    """

    def __init__(self, places: Iterator[Place], wanted: int) -> None:
        self._first: list[Place] = []
        self._places = places
        self._wanted = wanted
        self._next = self._further()

    def has(self, place: Place) -> bool:
        """True if this item passes the filter. Call this for the items in order."""
        while self._next is not None and self._next < place:
            self._next = self._further()
        return self._next == place

    def read_wanted(self) -> list[Place]:
        """Return the first ``wanted`` items that pass. Reads on after the last embedding if there are too few."""
        while self._next is not None and len(self._first) < self._wanted:
            self._next = self._further()
        return self._first

    def _further(self) -> Place | None:
        found = next(self._places, None)
        if found is not None and len(self._first) < self._wanted:
            self._first.append(found)
        return found


class Embedded(NamedTuple):
    """Embeddings by text, as bytes: of stored texts, and of search queries."""

    documents: Mapping[str, bytes] = {}
    queries: Mapping[str, bytes] = {}


class Index:
    """The settings for embedding items: the function, the number of dimensions, and the fields."""

    def __init__(self, config: IndexConfig) -> None:
        self._embed = ensure_embeddings(config["embed"])
        self._dims = valid.number("index.dims", config["dims"], least=1)
        fields = config.get("fields") or config.get("text_fields") or "$"  # ``text_fields``: its name for SQLite
        self._fields = [fields] if isinstance(fields, str) else [*fields]

    def texts(self, op: PutOp) -> list[str]:
        """Return the texts of an item to embed: of the fields that its put names, or else of the index's fields."""
        if op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else op.index
        paths = (one if one == "$" else tokenize_path(one) for one in fields)
        return [text for path in paths for text in get_text_at_path(op.value, path)]

    def embed_texts(self, documents: Sequence[str], queries: Sequence[str]) -> Embedded:
        """Return the embeddings of the texts. Raises `InvalidValue` if an embedding does not have ``dims`` numbers."""
        made = self._embed.embed_documents(documents) if documents else []
        asked = [self._embed.embed_query(one) for one in queries]
        return Embedded(self._pack_vectors(documents, made), self._pack_vectors(queries, asked))

    async def aembed_texts(self, documents: Sequence[str], queries: Sequence[str]) -> Embedded:
        """Return the embeddings of the texts, as `embed_texts` does."""
        made = await self._embed.aembed_documents(documents) if documents else []
        asked = [await self._embed.aembed_query(one) for one in queries]
        return Embedded(self._pack_vectors(documents, made), self._pack_vectors(queries, asked))

    def pack_embeddings(self, embeddings: Sequence[bytes]) -> bytes:
        """Return an item's embeddings in the form in which they are stored."""
        return _DIMS.pack(self._dims) + b"".join(embeddings)

    def nearest(
        self, pages: Iterable[Sequence[tuple[Place, bytes]]], query: similarity.Query, most: int
    ) -> list[tuple[Place, float]]:
        """Return the items whose best embedding is nearest to a query, nearest first.

        Equally near items are ordered by place. ``pages`` have the places of items with their stored embeddings.
        Embeddings of another length are ignored.
        """
        best = similarity.Best[Place](most, None)
        head, size = _DIMS.pack(self._dims), len(query.packed)
        for page in pages:
            candidates = [
                similarity.Candidate(place, stored[at : at + size])
                for place, stored in page
                if stored.startswith(head)
                for at in range(len(head), len(stored), size)
            ]
            longest = max([len(stored) for _, stored in page], default=0)
            best.take(query, candidates, of_each=max(1, longest // size))
        return best.scored_keys

    def _pack_vectors(self, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> dict[str, bytes]:
        if len(texts) != len(vectors):
            raise InvalidValue("index.embed", f"{len(vectors)} embeddings of {len(texts)} texts")
        for one in vectors:
            if len(one) != self._dims:
                problem = f"an embedding of {len(one)} numbers, but dims is {self._dims}"
                raise InvalidValue("index.embed", problem, expected=self._dims, found=len(one))
        packed = (similarity.pack_vector("index.embed", [*map(float, one)], most=self._dims) for one in vectors)
        return dict(zip(texts, packed, strict=True))


class StoredItems:
    """The stored items and embeddings: states whose scopes contain the words ``items`` and ``vectors``."""

    def __init__(self, scope: str) -> None:
        self.items = compose_key(scope, ITEMS, "")
        self.vectors = compose_key(scope, VECTORS, "")

    def place_of(self, one: StateSummary) -> Place:
        """Return the place of the item to which a state belongs: the item's own state, or that of its embeddings."""
        kind = self.items if one.scope.startswith(self.items) else self.vectors
        return Place(one.scope.removeprefix(kind), one.key)

    def at(self, view: View | Transaction, places: Sequence[Place]) -> dict[Place, State]:
        """Return the stored items at these places, by place."""
        found: dict[Place, State] = {}
        for labels, some in groupby(sorted(places), lambda place: place.labels):
            keys = [one.key for one in some]
            for at in range(0, len(keys), MANY):
                states = view.states.find_many(keys[at : at + MANY], scope=self.items + labels)
                found.update((Place(labels, key), one) for key, one in states.items())
        return found

    def embeddings(
        self,
        view: View | Transaction,
        labels: str,
        query: similarity.Query,
        passes: Callable[[Place], bool] | None = None,
    ) -> Iterator[list[tuple[Place, bytes]]]:
        """Yield pages of the stored embeddings of all items below a namespace, ordered by place."""
        under, kind = self.vectors + labels, len(self.vectors)
        for rows in searching.batches(view.states._bodies(under), {}, {"scope": under, "key": ""}, query):
            stored = [(Place(at[kind:], key), body or b"") for at, key, body in rows]
            yield stored if passes is None else [one for one in stored if passes(one[0])]

    def nearest(
        self, view: View | Transaction, labels: str, index: Index, query: similarity.Query, wanted: int
    ) -> list[tuple[Place, float]]:
        """Return the items below a namespace that are nearest to a query. Embeddings without an item are skipped.

        Returns at least ``wanted`` items, if there are that many.
        """
        most = wanted
        while True:
            scored = index.nearest(self.embeddings(view, labels, query), query, most)
            found = self.at(view, [place for place, _ in scored])
            there = [one for one in scored if one[0] in found]
            if len(there) >= wanted or len(scored) < most:
                return there
            most *= 2

    def nearest_passing(
        self,
        view: View | Transaction,
        labels: str,
        index: Index,
        query: similarity.Query,
        wanted: int,
        passes: Callable[[State], bool],
    ) -> list[tuple[Place, float]] | None:
        """Return the ``wanted`` nearest items that pass a filter, or None if too few of the nearest items pass.

        After None, the caller must filter every item.
        """
        scored = index.nearest(self.embeddings(view, labels, query), query, max(_LEAST_FILTERED, wanted * _OF_EACH))
        passing: list[tuple[Place, float]] = []
        for first in range(0, len(scored), _AT_ONCE):
            some = scored[first : first + _AT_ONCE]
            found = self.at(view, [place for place, _ in some])
            passing += [one for one in some if one[0] in found and passes(found[one[0]])]
            if len(passing) >= wanted:
                return passing[:wanted]
        return None


# Filters of searches, as in LangGraph: values by key, nested values, and operators.


def refuse_unknown(where: str, wanted: Any) -> None:
    """Raise `InvalidValue` for unknown operators, and for operators mixed with keys, before anything is read."""
    if isinstance(wanted, list | tuple):
        for at, value in enumerate(wanted):
            refuse_unknown(f"{where}[{at}]", value)
    if not isinstance(wanted, Mapping):
        return
    for name, value in wanted.items():
        if str(name).startswith("$") and name not in _OPERATORS:
            raise InvalidValue(f"{where}.{name:.80}", f"must be one of the operators {', '.join(sorted(_OPERATORS))}")
        refuse_unknown(f"{where}.{name!s:.80}", value)
    if len({name in _OPERATORS for name in wanted}) > 1:
        raise InvalidValue(where, "must have operators or names of members, and not both")


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """True if a value has all the wanted keys with matching values."""
    return all(_fits(value.get(name), one) for name, one in (wanted or {}).items())


def _fits(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if any(name in _OPERATORS for name in wanted):
            return all(_OPERATORS[name](value, one) for name, one in wanted.items())
        return isinstance(value, Mapping) and passes(value, wanted)
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(_fits, value, wanted))
    return _is_equal(value, wanted)


def _is_equal(value: Any, wanted: Any) -> bool:
    """True if two values are equal. A boolean never equals a number."""
    return bool(value == wanted) and isinstance(value, bool) is isinstance(wanted, bool)


def _are_alike(value: Any, wanted: Any) -> bool:
    """True if two values can be compared by order: both are numbers, or both are texts."""
    kinds = [str if isinstance(one, str) else float for one in (value, wanted) if isinstance(one, str | int | float)]
    return len(kinds) == 2 and kinds[0] is kinds[1] and not isinstance(value, bool) and not isinstance(wanted, bool)


_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": _is_equal,
    "$ne": lambda value, wanted: not _is_equal(value, wanted),
    "$gt": lambda value, wanted: _are_alike(value, wanted) and value > wanted,
    "$gte": lambda value, wanted: _are_alike(value, wanted) and value >= wanted,
    "$lt": lambda value, wanted: _are_alike(value, wanted) and value < wanted,
    "$lte": lambda value, wanted: _are_alike(value, wanted) and value <= wanted,
}


def matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    """True if the labels at the beginning or end of a namespace match the condition."""
    path = tuple(condition.path)
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return len(namespace) >= len(path) and all(want in ("*", label) for want, label in zip(path, part, strict=True))
