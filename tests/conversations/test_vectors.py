"""Chunks of text and their embeddings: stored, replaced, cleared, and searched, with numpy and without."""

from __future__ import annotations

import asyncio
import random
import struct
import sys
from typing import Any

import pytest
from support.each import with_each
from support.workflows.steps import Raw

from lastlight_state import AsyncStateStore, InvalidValue, NotFound, PayloadTooLarge, StateStore
from lastlight_state.conversations import NewChunk, Search
from lastlight_state.testing import FrozenClock


@pytest.fixture(params=["numpy", "without numpy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With numpy, where it is installed, and as where it is not."""
    if request.param != "numpy":
        monkeypatch.setitem(sys.modules, "numpy", None)
    return str(request.param)


def chunk(key: str, *numbers: float, **fields: Any) -> NewChunk:
    return NewChunk(key, f"text of {key}", numbers, **fields)


def found(hits: Any) -> list[tuple[str, Any]]:
    return [(hit.chunk.id, pytest.approx(hit.score, abs=1e-6)) for hit in hits]


def test_a_chunk_comes_back_with_the_nearest_numbers(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-36, CV-37: twelve bytes, little-endian."""
    vectors = every_backend.conversations.vectors
    new = NewChunk("a", "✓", [0.1, -2, 3.5], {"lang": "en"}, "doc", 4)
    assert vectors.put("ns", [new], model="small") == 1
    stored = vectors.get("ns", "a")
    assert stored.embedding == struct.unpack("<3f", struct.pack("<3f", 0.1, -2, 3.5))
    assert (stored.content, stored.chunk_metadata, stored.document_id, stored.chunk_index) == (
        "✓",
        {"lang": "en"},
        "doc",
        4,
    )
    [(data,)] = raw("SELECT embedding FROM vectors")
    assert bytes(data) == struct.pack("<3f", 0.1, -2, 3.5)
    assert vectors.put("ns", [NewChunk("b", "", data)]) == 1
    [known] = vectors.namespaces()
    assert (known.namespace, known.dimensions, known.model) == ("ns", 3, "small")
    with pytest.raises(NotFound):
        vectors.get("ns", "c")
    assert (vectors.find("other", "a"), vectors.put("empty", []), vectors.count("ns")) == (None, 0, 2)


def test_a_second_put_replaces_in_its_own_namespace(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-37: the time of the creation stays."""
    vectors = every_backend.conversations.vectors
    for namespace in ("x", "y"):
        vectors.put(namespace, [chunk("a", 1, 0), chunk("b", 0, 1)])
    made = frozen_clock.now()
    frozen_clock.advance(seconds=1)
    assert vectors.put("x", [chunk("a", 2, 0), chunk("c", 1, 1)]) == 2
    changed, other = vectors.get("x", "a"), vectors.get("y", "a")
    assert (changed.embedding, changed.created_at, changed.updated_at) == ((2, 0), made, frozen_clock.now())
    assert (other.embedding, other.updated_at) == ((1, 0), None)
    assert [one.id for one in vectors.list("x")] == ["a", "b", "c"]


@with_each(
    "bad",
    [chunk("b", 1, 2, 3), chunk("a", 1, 2), chunk("b"), chunk("b", float("nan"), 1), chunk("b", 1e39, 1),
     NewChunk("b", "", bytes(7)), NewChunk("b", "", [True, 1]), chunk(" ", 1, 2), chunk("b", 1, 2, chunk_index=-1),
     chunk("b", 10**400, 1),
     NewChunk("b", "x" * (1024 * 1024 + 1), [1, 2]), NewChunk("b", None, [1, 2]), "b"],  # type: ignore[arg-type]
)  # fmt: skip
def test_one_bad_chunk_rejects_all(store: StateStore, bad: Any) -> None:
    """conversations CV-36, CV-37."""
    with pytest.raises(InvalidValue):
        store.conversations.vectors.put("ns", [chunk("a", 1, 2), bad])
    assert list(store.conversations.vectors.namespaces()) == []


def test_a_call_takes_a_thousand_chunks_of_32_mebibytes(store: StateStore) -> None:
    """conversations CV-4, CV-37."""
    vectors = store.conversations.vectors
    with pytest.raises(InvalidValue):
        vectors.put("ns", [chunk(f"c{n}", 1) for n in range(1_001)])
    text = "x" * 1024 * 1024
    with pytest.raises(PayloadTooLarge):
        vectors.put("ns", [NewChunk(f"c{n}", text, [1]) for n in range(32)])


def test_a_namespace_has_one_length_and_one_model(every_backend: StateStore) -> None:
    """conversations CV-37, CV-38: both lengths are named; an unknown namespace has no chunks."""
    vectors = every_backend.conversations.vectors
    vectors.put("ns", [chunk("a", *range(1, 9))], model="small")
    for call in (lambda: vectors.put("ns", [chunk("b", *range(1, 10))]), lambda: vectors.search("ns", range(1, 10))):
        with pytest.raises(InvalidValue, match=r"9 numbers.*8"):
            call()
    with pytest.raises(InvalidValue, match=r"large.*small"):
        vectors.put("ns", [chunk("b", *range(1, 9))], model="large")
    assert (vectors.search("nobody", [1]), vectors.count("ns")) == ([], 1)


def test_chunks_are_cleared_by_ids_by_document_or_all(every_backend: StateStore) -> None:
    """conversations CV-37: exactly one of them; the namespace may come again with another length."""
    vectors = every_backend.conversations.vectors
    vectors.put("ns", [chunk(f"c{n}", n, 1, document_id=f"d{n % 2}") for n in range(6)])
    vectors.put("other", [chunk("c0", 1)])
    assert (vectors.clear("ns", ids=[]), vectors.clear("ns", ids=["c0", "nobody"])) == (0, 1)
    assert vectors.clear("ns", document_id="d1") == 3
    for wrong in ({}, {"ids": [], "scope": "namespace"}, {"scope": "all"}):
        with pytest.raises(InvalidValue):
            vectors.clear("ns", **wrong)
    assert (vectors.clear("ns", scope="namespace"), vectors.clear("ns", scope="namespace")) == (2, 0)
    assert vectors.put("ns", [chunk("a", 1)]) == 1
    assert [one.namespace for one in vectors.namespaces()] == ["ns", "other"]


def test_chunks_are_listed_in_the_order_of_their_document(every_backend: StateStore) -> None:
    """conversations CV-5."""
    vectors = every_backend.conversations.vectors
    vectors.put("ns", [chunk(f"c{n}", 1, document_id="d", chunk_index=9 - n) for n in range(3)] + [chunk("z", 1)])
    page = vectors.list("ns", document_id="d", limit=2)
    rest = vectors.list("ns", document_id="d", limit=2, page_token=page.next_page_token)
    assert [one.id for one in (*page, *rest)] == ["c2", "c1", "c0"]


def test_the_nearest_are_found_by_each_metric(every_backend: StateStore, library: str) -> None:
    """conversations CV-38, CV-39: greater is nearer; stored zero vectors are left out under cosine."""
    vectors = every_backend.conversations.vectors
    vectors.put(
        "ns", [chunk("zero", 0, 0), chunk("far", -1, 0), chunk("long", 4, 0), chunk("up", 0, 1), chunk("a", 1, 0)]
    )
    search = vectors.search
    assert found(search("ns", [2, 0])) == [("a", 1), ("long", 1), ("up", 0), ("far", -1)]
    assert found(search("ns", [2, 0], how=Search("dot"), top_k=3)) == [("long", 8), ("a", 2), ("up", 0)]
    near = search("ns", [2, 0], how=Search("l2", min_score=-2))
    assert found(near) == [("a", -1), ("long", -2), ("zero", -2)]
    assert near[0].chunk.content == "text of a"


@pytest.mark.parametrize(("metric", "numbers"), [("l2", [3, 4]), ("dot", [0, 0]), ("cosine", [3, 4])])
def test_many_that_are_exactly_as_near_are_all_found(
    every_backend: StateStore, library: str, metric: Any, numbers: list[float]
) -> None:
    """conversations CV-39: more than are asked for, with a score that no computation can be off by."""
    vectors = every_backend.conversations.vectors
    vectors.put("ns", [chunk(f"c{n}", *numbers) for n in range(5)])
    hits = vectors.search("ns", [3, 4], top_k=2, how=Search(metric))
    assert found(hits) == [("c0", float(metric == "cosine")), ("c1", float(metric == "cosine"))]


def test_a_search_is_of_a_document_or_of_some_metadata(every_backend: StateStore, library: str) -> None:
    """conversations CV-38: values are compared as JSON, so that 1 is not True."""
    vectors = every_backend.conversations.vectors
    kinds: list[Any] = [{"k": 1}, {"k": True}, {"k": 1, "l": [1, {"m": None}]}, None]
    vectors.put(
        "ns", [chunk(f"c{n}", 1, n, chunk_metadata=one, document_id=f"d{n % 2}") for n, one in enumerate(kinds)]
    )

    def ids(**given: Any) -> list[str]:
        return [hit.chunk.id for hit in vectors.search("ns", [1, 0], **given)]

    assert ids(where={"k": 1}) == ["c0", "c2"]
    assert ids(where={"k": 1, "l": [1, {"m": None}]}) == ["c2"]
    assert (ids(where={}), ids(where={"n": 1})) == (["c0", "c1", "c2", "c3"], [])
    assert (ids(document_id="d1"), ids(document_id="d0", where={"k": 1})) == (["c1", "c3"], ["c0", "c2"])


@with_each(
    "given",
    [{"vector": [0, 0]}, {"vector": []}, {"top_k": 0}, {"top_k": 1_001}, {"how": Search("near")},  # type: ignore[arg-type]
     {"how": Search(min_score=float("nan"))}, {"how": Search(min_score=True)},
     {"where": ["k"]}, {"where": {"k": float("nan")}}],
)  # fmt: skip
def test_a_search_that_makes_no_sense_is_refused(store: StateStore, given: dict[str, Any]) -> None:
    """conversations CV-38: in an unknown namespace, too."""
    with pytest.raises(InvalidValue):
        store.conversations.vectors.search("ns", **{"vector": [1, 0], **given})


@pytest.mark.parametrize("metric", ["cosine", "dot", "l2"])
@pytest.mark.parametrize("rows", [1_200, pytest.param(5_000, marks=pytest.mark.soak)])
def test_both_ways_find_the_same_in_the_same_order(
    every_backend: StateStore, monkeypatch: pytest.MonkeyPatch, metric: Any, rows: int
) -> None:
    """conversations CV-39: over several batches, with equal vectors, and with many that are close together."""
    chance = random.Random(7)
    some = [[chance.gauss(0, 1) for _ in range(24)] for _ in range(rows // 3)]
    close = [[one + chance.gauss(0, 1e-6) for one in some[0]] for _ in range(rows // 3)]
    chunks = [chunk(f"c{n % 997}-{n}", *numbers) for n, numbers in enumerate([*some, *close, *some[: rows // 3]])]
    vectors = every_backend.conversations.vectors
    for at in range(0, len(chunks), 1_000):
        vectors.put("ns", chunks[at : at + 1_000])
    query, how = some[0], Search(metric)
    ours = vectors.search("ns", query, top_k=400, how=how)
    monkeypatch.setitem(sys.modules, "numpy", None)
    plain = vectors.search("ns", query, top_k=400, how=how)
    assert [(hit.chunk.id, hit.score) for hit in ours] == [(hit.chunk.id, hit.score) for hit in plain]
    assert sorted(plain, key=lambda hit: (-hit.score, hit.chunk.id)) == plain


def test_one_damaged_vector_harms_itself_only(every_backend: StateStore, raw: Raw, library: str) -> None:
    """conversations CV-38: of another length, not finite, or without a readable text."""
    vectors = every_backend.conversations.vectors
    vectors.put("ns", [chunk(f"c{n}", n, 1, chunk_metadata={}) for n in range(5)])
    raw("UPDATE vectors SET embedding = ? WHERE id = 'c1'", bytes(4))
    raw("UPDATE vectors SET embedding = ? WHERE id = 'c2'", struct.pack("<2f", float("nan"), 1))
    raw("UPDATE vectors SET chunk_metadata = '[1]' WHERE id = 'c3'")
    assert [hit.chunk.id for hit in vectors.search("ns", [1, 0], how=Search("dot"))] == ["c4", "c0"]
    assert [hit.chunk.id for hit in vectors.search("ns", [1, 0], how=Search("dot"), top_k=1)] == ["c4"]


async def _found(opened: StateStore) -> list[str]:
    vectors = AsyncStateStore(opened).conversations.vectors
    await vectors.put("ns", [chunk("a", 1, 0), chunk("b", 0, 1)])
    return [hit.chunk.id for hit in await vectors.search("ns", [0, 1], top_k=1)]


def test_vectors_from_coroutines(every_backend: StateStore) -> None:
    """conversations CV-38."""
    assert asyncio.run(_found(every_backend)) == ["b"]
