"""Similarity search over embeddings: read rows in batches from one snapshot, and keep only the best matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, NotRequired, TypedDict, TypeVar

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import Search
from lastlight_state.conversations.similarity import Best, Candidate, Query
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import KeyedRows, keyed_rows, window
from lastlight_state.db.rows.statements import RowT, Values
from lastlight_state.db.units.unit import FoundRows, Unit
from lastlight_state.errors import InvalidValue


class ComparedRow(TypedDict):
    """What a search compares of a row. ``norm`` is stored with some vectors."""

    id: str
    embedding: bytes
    norm: NotRequired[float]


C = TypeVar("C", bound=ComparedRow)

#: Most bytes of embeddings in one batch.
_BATCH_BYTES = 4 * 1024 * 1024


class SearchRequest(NamedTuple):
    """A checked search: the query vector, the number of results wanted, and the least score (None: any)."""

    query: Query
    top_k: int
    least: float | None

    @property
    def dimensions(self) -> int:
        """Return the number of dimensions of the query vector."""
        return len(self.query.packed) // 4


def search_request(vector: Any, top_k: Any, how: Any) -> SearchRequest:
    """Check a caller's arguments and return the search.

    Raises `InvalidValue`, also for a zero vector with the cosine metric.
    """
    given = valid.argument_group("how", how, Search)
    metric = valid.word("how.metric", given.metric, words.METRICS)
    query = Query(checks.vector("vector", vector), given.metric)
    if metric == "cosine" and not query.norm:
        raise InvalidValue("vector", "must not be zero under cosine")
    return SearchRequest(query, valid.number("top_k", top_k, least=1, most=words.TOP), _least(given.min_score))


def best_matches(
    streams: Iterable[Iterable[list[C]]], search: SearchRequest, *, passes: Callable[[C], bool] | None = None
) -> list[tuple[str, float]]:
    """Return the ids and scores of the best rows in the streams. The same row may appear in them several times.

    Only rows for which ``passes`` is true are compared (None: every row).
    """
    found = Best[str](search.top_k, search.least)
    for batches in streams:
        for rows in batches:
            some = rows if passes is None else filter(passes, rows)
            found.take(search.query, candidates(some))
    return found.scored_keys


def batches(
    read: Callable[[Values], FoundRows[RowT]], values: Values, after: Mapping[str, Any], query: Query
) -> Iterator[list[RowT]]:
    """Run a statement with ``read`` and yield its rows in batches. An unreadable row is logged and left out.

    The statement has the parameter ``limit``, and a parameter ``after_<column>`` for each column by which it is sorted.
    ``after`` is a start key that sorts before all rows.
    """
    size = max(1, min(words.BATCH, _BATCH_BYTES // len(query.packed)))
    key: Mapping[str, Any] | None = after
    while key is not None:
        given = {**values, **{f"after_{name}": value for name, value in key.items()}}
        shown = window(partial(_read, read, given, list(after)), size)
        yield Unit.without_damaged(shown.rows)
        key = None if shown.last is None else dict(zip(after, shown.last, strict=True))


def _read(read: Callable[[Values], FoundRows[RowT]], values: Values, key: list[str], most: int) -> KeyedRows[RowT]:
    return keyed_rows(read({**values, "limit": most}), key)


def candidates(rows: Iterable[ComparedRow]) -> Iterator[Candidate[str]]:
    """Yield a `Candidate` (id, embedding, norm) for each row."""
    return (Candidate(row["id"], row["embedding"], row.get("norm")) for row in rows)


def _least(score: Any) -> float | None:
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score):
        raise InvalidValue("how.min_score", "expected a finite number")
    return float(score)
