"""Indexes of embeddings, which some databases make on request. Without an index every search is exact."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

#: The names of these indexes, and of what belongs to them, begin so.
PREFIX = "vectors_near_"
_DIGITS = 24

IndexState = Literal["ready", "building", "failed", "unused"]


class BuiltIndex(NamedTuple):
    """An index of the embeddings of a namespace. ``namespace`` is None where no namespace has its name any more."""

    name: str
    namespace: str | None
    dimensions: int
    state: IndexState
    size_bytes: int


class VectorIndexes:
    """The part of `lastlight_state.backends.base.Backend` that makes and uses indexes of embeddings.

    As it is here, the database has none.
    """

    def vector_indexes(self, checkout: Any) -> Sequence[BuiltIndex]:
        """Return all indexes of embeddings, by their names."""
        return ()

    def vector_index_lag(self, checkout: Any, index: BuiltIndex) -> int:
        """Return how many chunks of the namespace are missing in the index."""
        return 0

    def make_vector_index(self, checkout: Any, namespace: str, dimensions: int) -> None:
        """Make the index of a namespace unless it is there, outside any transaction. Others read and write meanwhile.

        Raises `NotSupported` where the server cannot, and `Conflict` ``already_running`` while another call does.
        """

    def drop_vector_indexes(self, checkout: Any, namespace: str) -> int:
        """Remove the indexes of a namespace, outside any transaction, and return how many there were."""
        return 0

    def nearest(self, checkout: Any, namespace: str, dimensions: int, packed: bytes, most: int) -> list[str] | None:
        """Return the ids of about the ``most`` nearest chunks by cosine. None without an index that can be used.

        Needs a transaction.
        """
        return None


def stem_of(namespace: str) -> str:
    """Return what the names of a namespace's indexes have in common. The length of the embeddings follows."""
    return f"{PREFIX}{hashlib.sha256(namespace.encode()).hexdigest()[:_DIGITS]}_"
