"""Search for the nearest of 100,000 embeddings of 384 numbers, with numpy and without, beside the same by hand."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import nlargest
from math import sqrt
from operator import mul
from random import Random
from typing import Any
from unittest.mock import patch

from benchmarks.databases import Side
from benchmarks.measure import Result, compare
from lastlight_state.conversations import NewChunk

ROWS, DIMENSIONS, TOP = 100_000, 384, 10
NAMESPACE = "bench"
TEXT = "Releases are cut on Tuesdays, and the notes are written before. " * 8


def results(side: Side) -> Iterator[Result]:
    """Both ways, on one namespace."""
    chance = Random(3)  # noqa: S311 - numbers of a benchmark
    vectors = side.store.conversations.vectors
    for first in range(0, ROWS, 1_000):
        vectors.put(NAMESPACE, [NewChunk(f"c{first + n}", TEXT, _vector(chance)) for n in range(1_000)])
    query = _vector(chance)

    def search() -> object:
        return vectors.search(NAMESPACE, query, top_k=TOP)

    read = side.read("SELECT id, norm, embedding FROM vectors WHERE namespace = ?", lambda: (NAMESPACE,))
    name = f"search {ROWS:,} x {DIMENSIONS}"
    yield compare(name, side.name, search, _with_numpy(read, query), goal=None, calls=1, rounds=5)
    found = vectors.search(NAMESPACE, query, top_k=TOP)
    with _without_numpy():
        assert vectors.search(NAMESPACE, query, top_k=TOP) == found
        yield compare(f"{name}, no numpy", side.name, search, _by_hand(read, query), goal=None, calls=1, rounds=3)


def _vector(chance: Random) -> bytes:
    numbers = array("f", [chance.random() - 0.5 for _ in range(DIMENSIONS)])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


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


def _by_hand(read: Callable[[], Any], query: bytes) -> Callable[[], object]:
    unpack = struct.Struct(f"<{DIMENSIONS}f").unpack
    asked = unpack(query)
    length = sqrt(sum(map(mul, asked, asked)))

    def search() -> object:
        scored = ((sum(map(mul, asked, unpack(data))) / length / norm, key) for key, norm, data in read())
        return nlargest(TOP, scored)

    return search
