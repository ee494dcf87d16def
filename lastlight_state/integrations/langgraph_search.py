"""What searches of a LangGraph store compare: embeddings of items, and filters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from lastlight_state.conversations import similarity
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue

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

#: In front of the embeddings of an item: how many numbers each of them has.
_DIMS = struct.Struct("<I")


class Embedded(NamedTuple):
    """The embeddings of texts, as bytes: of those that are stored, and of those that are looked for."""

    documents: Mapping[str, bytes] = {}
    queries: Mapping[str, bytes] = {}


class Index:
    """How items are embedded: by which function, into how many numbers, and which of their fields."""

    def __init__(self, config: IndexConfig) -> None:
        self._embed = ensure_embeddings(config["embed"])
        self._dims = valid.number("index.dims", config["dims"], least=1)
        self._fields = [*(config.get("fields") or ["$"])]

    def texts(self, op: PutOp) -> list[str]:
        """Return the texts of an item that are embedded: of the fields that its put names, or of those of the index."""
        if op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else op.index
        paths = (one if one == "$" else tokenize_path(one) for one in fields)
        return [text for path in paths for text in get_text_at_path(op.value, path)]

    def embedded(self, documents: Sequence[str], queries: Sequence[str]) -> Embedded:
        """Return the embeddings of texts. Raises `InvalidValue` for those that are not as ``dims`` says."""
        made = self._embed.embed_documents(documents) if documents else []
        asked = [self._embed.embed_query(one) for one in queries]
        return Embedded(self._packed(documents, made), self._packed(queries, asked))

    async def aembedded(self, documents: Sequence[str], queries: Sequence[str]) -> Embedded:
        """Return the embeddings of texts, as `embedded`."""
        made = await self._embed.aembed_documents(documents) if documents else []
        asked = [await self._embed.aembed_query(one) for one in queries]
        return Embedded(self._packed(documents, made), self._packed(queries, asked))

    def stored(self, embeddings: Sequence[bytes]) -> bytes:
        """Return what is stored of the embeddings of an item."""
        return _DIMS.pack(self._dims) + b"".join(embeddings)

    def score(self, query: similarity.Query, stored: bytes) -> float | None:
        """Return how near the nearest of an item's embeddings is. Those that cannot be compared have None."""
        if _DIMS.unpack_from(stored)[0] != self._dims:
            return None
        size = len(query.packed)
        parts = [stored[at : at + size] for at in range(_DIMS.size, len(stored), size)]
        candidates = [similarity.Candidate("", one) for one in parts]
        return max((found for _, found in query.scores(candidates, -inf, len(parts))), default=None)

    def _packed(self, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> dict[str, bytes]:
        if len(texts) != len(vectors):
            raise InvalidValue("index.embed", f"{len(vectors)} embeddings of {len(texts)} texts")
        for one in vectors:
            if len(one) != self._dims:
                problem = f"an embedding of {len(one)} numbers, but dims is {self._dims}"
                raise InvalidValue("index.embed", problem, expected=self._dims, found=len(one))
        packed = (similarity.packed("index.embed", [*map(float, one)], most=self._dims) for one in vectors)
        return dict(zip(texts, packed, strict=True))


# Filters of searches, as LangGraph's: members of a value, members of those, and operators.


def refuse_unknown(where: str, wanted: Any) -> None:
    """Refuse operators that nobody knows, and those beside names of members, before anything is read."""
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
    """Return whether a value has the members that are wanted."""
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
    """True if two values are equal. A flag is no number."""
    return bool(value == wanted) and isinstance(value, bool) is isinstance(wanted, bool)


def _are_alike(value: Any, wanted: Any) -> bool:
    """True if two values can be ordered: two numbers or two texts."""
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
    """True if a namespace has the labels that a condition wants at its beginning or its end."""
    path = tuple(condition.path)
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return len(namespace) >= len(path) and all(want in ("*", label) for want, label in zip(path, part, strict=True))
