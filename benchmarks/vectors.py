"""Search for the nearest of 100,000 embeddings of 384 numbers: in memory, by a scan with numpy and without, by hand.

On a Postgres that has pgvector also by an index, as `vectors.index` makes it; `--only memories` has LangGraph's stores.

Embeddings lie in clusters, as those of texts do: what an approximate index finds of independent ones says nothing. The
share of the ten nearest that a search finds is printed.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import nlargest
from math import sqrt
from operator import mul
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.databases import Side
from benchmarks.measure import Result, compare
from lastlight_state import Settings, StateStore
from lastlight_state.conversations import NewChunk, VectorHit
from lastlight_state.errors import NotSupported

ROWS, DIMENSIONS, TOP, CLUSTERS, QUERIES = 100_000, 384, 10, 500, 5
NAMESPACE = "bench"
TEXT = "Releases are cut on Tuesdays, and the notes are written before. " * 8


def results(side: Side) -> Iterator[Result]:
    """All ways, on one namespace."""
    with StateStore.open(side.url, settings=Settings(vector_memory=0), state_dir=side.folder) as store:
        yield from _results(side, store)


def _results(side: Side, store: StateStore) -> Iterator[Result]:
    *embeddings, query = clustered(ROWS + 1)
    vectors, holding = store.conversations.vectors, side.store.conversations.vectors
    for first in range(0, ROWS, 1_000):
        some = enumerate(embeddings[first : first + 1_000], first)
        vectors.put(NAMESPACE, [NewChunk(f"c{at}", TEXT, one) for at, one in some])

    def search() -> object:
        return vectors.search(NAMESPACE, query, top_k=TOP)

    read = side.read("SELECT id, norm, embedding FROM vectors WHERE namespace = ?", lambda: (NAMESPACE,))
    name = f"search {ROWS:,} x {DIMENSIONS}"
    asked = [*embeddings[: QUERIES - 1], query]
    nearest = [{f"c{at}" for at in places} for places in nearest_of(embeddings, asked)]
    tell_recall(name, side.name, nearest, [{hit.chunk.id for hit in vectors.search(NAMESPACE, one)} for one in asked])
    yield compare(name, side.name, search, _with_numpy(read, query), goal=None, calls=1, rounds=5)
    found = vectors.search(NAMESPACE, query, top_k=TOP)
    if side.name == "sqlite":
        before = _resident_bytes()
        assert [holding.search(NAMESPACE, query, top_k=TOP) for _ in range(3)] == [found] * 3
        print(f"{name}, held: {(_resident_bytes() - before) / 2**20:.0f} MiB of memory", flush=True)

        def held() -> object:
            return holding.search(NAMESPACE, query, top_k=TOP)

        yield compare(f"{name}, held", side.name, held, _in_memory(read, query), goal=None, calls=5, rounds=5)
    else:
        yield from _indexed(side, store, asked, nearest)
    with _without_numpy():
        assert vectors.search(NAMESPACE, query, top_k=TOP) == found
        yield compare(f"{name}, no numpy", side.name, search, _by_hand(read, query), goal=None, calls=1, rounds=3)


def _indexed(side: Side, store: StateStore, asked: Sequence[bytes], nearest: Sequence[set[str]]) -> Iterator[Result]:
    """Make an index, and search by it beside pgvector by hand: the same table, and texts of the nearest."""
    vectors, name = store.conversations.vectors, f"search {ROWS:,} x {DIMENSIONS}, by an index"
    began = time.perf_counter()
    try:
        made = vectors.index(NAMESPACE)
    except NotSupported as error:
        print(f"{name}: left out ({error})", file=sys.stderr)
        return
    assert made is not None
    took = time.perf_counter() - began
    print(f"{name}: made in {took:.0f} s, {made.size_bytes / 2**20:.0f} MiB on disk", flush=True)

    def search(query: bytes = asked[-1]) -> Sequence[VectorHit]:
        return vectors.search(NAMESPACE, query, top_k=TOP, approximate=True)

    hits = [search(one) for one in asked]
    assert all(hit.approximate for some in hits for hit in some)
    tell_recall(name, side.name, nearest, [{hit.chunk.id for hit in some} for some in hits])
    numbers = json.dumps(struct.unpack(f"<{DIMENSIONS}f", asked[-1]))
    near = f"SELECT id FROM {made.name} ORDER BY unit <#> '{numbers}'::halfvec({DIMENSIONS}) LIMIT {{}}"
    side.driver.execute("SET hnsw.ef_search = 100")
    plan = side.driver.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {near.format(100)}").fetchone()[0][0]
    print(f"{name}: the server plans {plan['Planning Time']} ms, and runs {plan['Execution Time']} ms", flush=True)
    texts = f"SELECT id, content FROM vectors WHERE namespace = ? AND id IN ({near.format(TOP)})"
    yield compare(name, side.name, search, side.read(texts, lambda: (NAMESPACE,)), goal=None, calls=20, rounds=5)
    began = time.perf_counter()
    vectors.put(NAMESPACE, [NewChunk(f"c{at}", TEXT, one) for at, one in enumerate(asked[:-1])])
    print(f"{name}: a put takes {(time.perf_counter() - began) / (len(asked) - 1) * 1e3:.1f} ms a chunk", flush=True)


def _resident_bytes() -> int:
    """Return how much memory this process has, as Linux says."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def clustered(rows: int) -> list[bytes]:
    """Return unit vectors, each near the middle of one of some clusters."""
    import numpy as np  # noqa: PLC0415 - an optional library

    chance = np.random.default_rng(3)
    middles = chance.standard_normal((CLUSTERS, DIMENSIONS), dtype="f4")
    found = middles[chance.integers(CLUSTERS, size=rows)] + 0.5 * chance.standard_normal((rows, DIMENSIONS), dtype="f4")
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return [one.tobytes() for one in found.astype("<f4")]


def nearest_of(embeddings: Sequence[bytes], asked: Sequence[bytes]) -> list[list[int]]:
    """Return the places of the nearest unit vectors to each of those that are asked for."""
    import numpy as np  # noqa: PLC0415 - an optional library

    matrix, queries = (
        np.frombuffer(b"".join(some), dtype="<f4").reshape(len(some), -1) for some in (embeddings, asked)
    )
    return [[int(at) for at in np.argsort(-(matrix @ one))[:TOP]] for one in queries]


def tell_recall(name: str, whose: str, nearest: Sequence[set[str]], found: Sequence[set[str]]) -> None:
    """Print which share of the nearest was found."""
    share = sum(len(ours & theirs) for ours, theirs in zip(nearest, found, strict=True)) / sum(map(len, nearest))
    print(f"{name:44} {whose:12} recall@{TOP} {share:.3f}", flush=True)


@contextmanager
def _without_numpy() -> Iterator[None]:
    with patch.dict(sys.modules, {"numpy": None}):
        yield


def _with_numpy(read: Callable[[], Any], query: bytes) -> Callable[[], object]:
    import numpy as np  # noqa: PLC0415 - an optional library

    asked = np.frombuffer(query, dtype="<f4")

    def search() -> object:
        rows = read()
        matrix = np.frombuffer(b"".join(row[2] for row in rows), dtype="<f4").reshape(len(rows), -1)
        scores = matrix @ asked / np.array([row[1] for row in rows])
        return [rows[at][0] for at in np.argsort(-scores)[:TOP]]

    return search


def _in_memory(read: Callable[[], Any], query: bytes) -> Callable[[], object]:
    import numpy as np  # noqa: PLC0415 - an optional library

    rows = read()
    keys, norms = [row[0] for row in rows], np.array([row[1] for row in rows])
    matrix = np.frombuffer(b"".join(row[2] for row in rows), dtype="<f4").reshape(len(rows), -1)
    asked = np.frombuffer(query, dtype="<f4")
    return lambda: [keys[at] for at in np.argsort(-(matrix @ asked / norms))[:TOP]]


def _by_hand(read: Callable[[], Any], query: bytes) -> Callable[[], object]:
    unpack = struct.Struct(f"<{DIMENSIONS}f").unpack
    asked = unpack(query)
    length = sqrt(sum(map(mul, asked, asked)))

    def search() -> object:
        scored = ((sum(map(mul, asked, unpack(data))) / length / norm, key) for key, norm, data in read())
        return nlargest(TOP, scored)

    return search
