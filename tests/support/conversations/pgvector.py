"""A server that has pgvector, the tests' own or that of the wheel, and embeddings in an index."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from lastlight_state import StateStore
from lastlight_state.conversations import NewChunk, VectorHit, VectorIndex
from lastlight_state.errors import BackendError
from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.testing.postgres import WAYS, connect

DIMENSIONS = 8
QUERY = [1.0, 0.5, *[0.1] * (DIMENSIONS - 2)]
_AVAILABLE = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector')"


@contextmanager
def with_pgvector(own: ThrowawayPostgres) -> Iterator[ThrowawayPostgres]:
    """Lend the tests' own server, if it has the extension, or start the wheel's."""
    if _has_extension(own.url):
        yield own
        return
    if os.environ.get("LASTLIGHT_TEST_CITUS"):
        pytest.skip("not in a distributed schema: the server with Citus has no pgvector")
    try:
        served = WAYS["wheel"]()
    except (BackendError, ImportError) as error:
        pytest.skip(f"no server with pgvector: {error}")
    with ThrowawayPostgres(served.url, stop=served.stop) as server:
        yield server


def _has_extension(url: str) -> bool:
    with connect(url) as connection:
        found: Any = connection.execute(_AVAILABLE).fetchone()
        return bool(found[0])


def some(count: int, *, seed: int = 1, **fields: Any) -> list[NewChunk]:
    drawn = random.Random(seed)
    numbers = [[drawn.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(count)]
    return [NewChunk(f"c{n:04}", "text", numbers[n], {"n": n % 10}, f"d{n % 3}", **fields) for n in range(count)]


def scored(hits: Sequence[VectorHit]) -> list[tuple[str, float]]:
    return [(hit.chunk.id, hit.score) for hit in hits]


def approximates(hits: Sequence[VectorHit]) -> set[bool]:
    return {hit.approximate for hit in hits}


def indexed(store: StateStore, count: int, namespace: str = "ns") -> VectorIndex:
    """Return the index of a namespace with so many chunks."""
    store.conversations.vectors.put(namespace, some(count))
    made = store.conversations.vectors.index(namespace)
    assert made is not None
    return made
