"""Searches of a LangGraph store with a query, beside every item scored alone."""

from __future__ import annotations

import random
from math import sqrt
from typing import Any

import pytest
from langgraph.store.base import PutOp, SearchOp
from support.workflows.plans import plan_of

from lastlight_state.conversations import similarity
from lastlight_state.integrations.langgraph_store import LangGraphStore
from lastlight_state.states.statements import BODIES
from lastlight_state.testing import Database, racing

INDEX: Any = {"dims": 3, "embed": lambda texts: [VECTORS[one] for one in texts], "fields": ["texts[*]"]}
#: By their texts: many that are equal, two that are zero, and some that are close together.
VECTORS: dict[str, list[float]] = {f"t{at}": [at % 3 - 1.0, at % 5 - 2.0, 1e-7 * (at % 7)] for at in range(60)} | {
    "zero": [0.0, 0.0, 0.0],
    "query": [1.0, 2.0, 3.0],
}


@pytest.fixture(params=["numpy", "without numpy"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numpy, and as where it is not installed."""
    if request.param != "numpy":
        monkeypatch.setattr(similarity, "numeric_library", lambda: None)


def put(at: int, chance: random.Random) -> PutOp:
    texts = [f"t{chance.randrange(60)}" for _ in range(chance.choice([0, 1, 1, 1, 2, 20]))]
    value = {"texts": texts or (["zero"] if at % 2 else []), "kind": at % 4}
    return PutOp((f"n{at % 7}", "x" * (1 + at % 3)), f"k{at}", value)


def score(texts: list[str]) -> float | None:
    """Return the cosine of the nearest of these texts, as plain Python computes it."""
    query, lengths = VECTORS["query"], [sqrt(sum(one * one for one in VECTORS[text])) for text in texts]
    packed = [similarity.unpack(similarity.pack_vector("v", VECTORS[text], most=3)) for text in texts]
    dots = [sum(a * b for a, b in zip(query, one, strict=True)) for one in packed]
    found = [
        dot / (similarity.norm(query) * similarity.norm(one))
        for dot, length, one in zip(dots, lengths, packed, strict=True)
        if length
    ]
    return max(found, default=None)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [(None, range(4)), ({"kind": 1}, [1]), ({"kind": {"$gt": 1}}, [2, 3]), ({"kind": 9}, [])],
    ids=["all", "one", "some", "none"],
)
def test_a_query_finds_what_each_item_scored_alone_would(database: Database, wanted: Any, kinds: Any) -> None:
    """integrations AD-49: several embeddings of an item, equal scores, items without one, over pages and offsets."""
    chance = random.Random(5)
    memories = LangGraphStore(database.open(), index=INDEX)
    ops = [put(at, chance) for at in range(1_300)]
    for at in range(0, len(ops), 500):
        memories.batch(ops[at : at + 500])
    passing = [op for op in ops if op.value is not None and op.value["kind"] in kinds]
    scored = [(score(op.value["texts"] if op.value else []), op.namespace, op.key) for op in passing]
    ranked = sorted((-one[0], *one[1:]) for one in scored if one[0] is not None)
    others = sorted(one[1:] for one in scored if one[0] is None)
    every = [(-one[0], *one[1:]) for one in ranked] + [(None, *one) for one in others]
    for offset, limit in [(0, 10), (0, 1), (5, 30), (len(ranked) - 3, 9), (len(every) - 1, 9), (0, 5_000), (3, 0)]:
        [found] = memories.batch([SearchOp((), filter=wanted, limit=limit, offset=max(0, offset), query="query")])
        shown = [(one.score, one.namespace, one.key) for one in found]
        assert shown == every[max(0, offset) :][:limit]


def test_an_embedding_that_lost_its_item_is_passed_over(database: Database) -> None:
    """integrations AD-49: as many are found as without it."""
    store = database.open()
    memories = LangGraphStore(store, index=INDEX)
    for at in range(40):
        memories.put(("a",), f"k{at:02}", {"texts": ["query" if at < 30 else "t8"]})
    for one in [one for one in store.states.list(limit=100) if one.scope == memories._stored.items + "a/"][:25]:
        store.states.remove(one.key, scope=one.scope)
    found = memories.search(("a",), query="query", limit=8)
    assert [one.key for one in found] == [f"k{at}" for at in range(25, 33)]


def test_a_query_reads_embeddings_by_the_thousand_and_items_that_it_found(database: Database) -> None:
    """integrations AD-49."""
    store = database.open()
    memories = LangGraphStore(store, index=INDEX)
    for at in range(0, 2_500, 500):
        memories.batch([PutOp(("a",), f"k{at + n}", {"texts": [f"t{n % 60}"]}) for n in range(500)])
    with racing(store) as race:
        memories.search(("a",), query="query", limit=5)
        assert len(race.statements) == 3 + 2


def test_a_filter_that_many_items_pass_reads_only_the_nearest_items(database: Database) -> None:
    """integrations AD-49: the same items as if the filter had seen all of them."""
    store = database.open()
    memories = LangGraphStore(store, index=INDEX)
    for at in range(0, 2_500, 500):
        memories.batch([PutOp(("a",), f"k{at + n:04}", {"texts": [f"t{n % 60}"], "kind": n % 3}) for n in range(500)])
    with racing(store) as race:
        found = memories.search(("a",), query="query", limit=5, filter={"kind": 1})
        assert len(race.statements) == 3 + 2
    every = memories.search(("a",), query="query", limit=2_500)
    assert [one.key for one in found] == [one.key for one in every if one.value["kind"] == 1][:5]


def test_a_page_of_embeddings_begins_in_the_index(database: Database) -> None:
    """integrations AD-49: at the end of the page before, without a sort."""
    store = database.open()
    given = {"after_scope": "a", "after_key": "k", "under_end": "b", "now": database.clock.now(), "limit": 1_001}
    plan = plan_of(database, store, BODIES, given, in_order=True)
    assert not plan.scans_the_table, plan
    assert not plan.sorts_the_table, plan
