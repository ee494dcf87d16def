"""Processes that put, clear and search the vectors of one namespace at once.

``vector_racers.py URL SECONDS`` runs two that write and two that search. Each writer puts all its chunks anew in one
call, of which each says the number of that call in its text and in its embedding, or clears them all. Prints, as JSON,
what each searcher has found of what.
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.conversations.talkers import begun, ended
from support.loading import load

from lastlight_state import StateStore
from lastlight_state.conversations import NewChunk, VectorHit

NAMESPACE = "ns"
WRITERS, CHUNKS = 2, 25
QUERY = (1.0, 0.3, 0.2, 0.1)


def embedding(generation: int, at: int) -> bytes:
    """The embedding of one of a writer's chunks, in one of its calls."""
    angle = generation * 0.37
    return struct.pack("<4f", math.cos(angle), math.sin(angle), at / CHUNKS, 1 + generation / 1_000)


def score(generation: int, at: int) -> float:
    """Return the score that a search must find for this chunk."""
    numbers = struct.unpack("<4f", embedding(generation, at))
    query = struct.unpack("<4f", struct.pack("<4f", *QUERY))
    product: float = sum(one * other for one, other in zip(query, numbers, strict=True))
    return product / math.hypot(*query) / math.hypot(*numbers)


def write(url: str, number: int, seconds: float) -> None:
    """Put all chunks of a writer anew, again and again, and sometimes clear them."""
    chance, until, generation = random.Random(number), time.monotonic() + seconds, 0
    with StateStore.open(url) as store:
        vectors, document = store.conversations.vectors, f"w{number}"
        while time.monotonic() < until:
            generation += 1
            chunks = [
                NewChunk(f"{document}-{at}", str(generation), embedding(generation, at), {"w": number}, document, at)
                for at in range(CHUNKS)
            ]
            vectors.put(NAMESPACE, chunks)
            if chance.random() < 0.2:
                vectors.clear(NAMESPACE, document_id=document)
            time.sleep(chance.random() * 0.03)  # so that what a store holds in memory is used


def search(url: str, number: int, seconds: float) -> Counter[str]:
    """Search in each way, and refuse what no state of the database can have had."""
    chance, until, found = random.Random(number), time.monotonic() + seconds, Counter[str]()
    last = [0] * WRITERS
    with StateStore.open(url) as store:
        vectors = store.conversations.vectors
        while time.monotonic() < until:
            whose = chance.choice([None, *range(WRITERS)])
            approximate, top_k = chance.random() < 0.5, chance.choice([5, 100])
            where = None if whose is None else {"w": whose}
            hits = vectors.search(NAMESPACE, QUERY, top_k=top_k, where=where, approximate=approximate)
            generations = judge(hits, last)
            if top_k == 100 and not any(hit.approximate for hit in hits):
                assert len(hits) == CHUNKS * len(generations), (len(hits), generations)
            if whose is not None:
                assert set(generations) <= {whose}, generations
            assert not hits or {hit.approximate for hit in hits} in ({True}, {False})
            found["approximate" if any(hit.approximate for hit in hits) else "exact"] += 1
    return found


def judge(hits: list[VectorHit], last: list[int]) -> dict[int, int]:
    """The call of each writer that a search has seen: one of each, none before those that were seen earlier."""
    seen: dict[int, int] = {}
    assert len({hit.chunk.id for hit in hits}) == len(hits)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))
    for hit in hits:
        writer, generation = int(hit.chunk.id[1]), int(hit.chunk.content)
        assert seen.setdefault(writer, generation) == generation
        assert abs(hit.score - score(generation, hit.chunk.chunk_index)) < 1e-12, hit
    for writer, generation in seen.items():
        assert generation >= last[writer]
        last[writer] = generation
    return seen


def tell(url: str, number: int, seconds: float) -> None:
    os.write(1, (json.dumps(search(url, number, seconds)) + "\n").encode())


def main() -> None:
    url, seconds = sys.argv[1], float(sys.argv[2])
    load("conversations", "backends")
    racing = [begun(work, url, number, seconds) for work in (write, tell) for number in range(WRITERS)]
    sys.exit(sum(not ended(pid) for pid in racing))


if __name__ == "__main__":
    main()
