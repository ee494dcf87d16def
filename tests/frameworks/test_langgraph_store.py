"""A store of LangGraph's memories over ours, beside its store in memory."""

from __future__ import annotations

import asyncio
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from support.sealing import Xor

from lastlight_state import ClaimLost, InvalidValue, StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.db.lists.pages import iterate
from lastlight_state.integrations.langgraph_store import LangGraphStore
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Trigger

LABELS = st.sampled_from(["a", "a%", "a/b", "ab", "\u00e9 \U0001f600", "a\n"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
PREFIXES = st.lists(LABELS, max_size=2).map(tuple)
PATHS = st.lists(st.one_of(LABELS, st.just("*")), min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["one", "two", "three"])
VALUES = st.fixed_dictionaries(
    {"n": st.integers(0, 4)},
    optional={
        "text": st.sampled_from(["apple", "pear", "a pear and an apple", "", "\0 \ud83d"]),
        "deep": st.fixed_dictionaries({"m": st.one_of(st.none(), st.integers(0, 2))}),
        "list": st.lists(st.integers(0, 2), max_size=2),
        "great": st.just(2**70),
    },
)
COMPARED = st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
FILTERS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {"n": st.one_of(st.integers(0, 4), st.dictionaries(COMPARED, st.integers(0, 4), min_size=1))}
    ),
    st.fixed_dictionaries({"deep": st.fixed_dictionaries({"m": st.one_of(st.none(), st.integers(0, 2))})}),
    st.fixed_dictionaries({"list": st.lists(st.integers(0, 2), max_size=2)}),
    st.fixed_dictionaries({"text": st.sampled_from(["apple", "\0 \ud83d"])}),
)
#: More than any story stores: orders of what is found are each store's own.
ALL = 1_000
MATCHES = st.tuples(st.sampled_from(["prefix", "suffix"]), PATHS).map(lambda given: MatchCondition(*given))
OPS = st.one_of(
    st.tuples(NAMESPACES, KEYS).map(lambda given: GetOp(*given)),
    st.tuples(NAMESPACES, KEYS, st.one_of(st.none(), VALUES, VALUES, VALUES)).map(lambda given: PutOp(*given)),
    st.tuples(PREFIXES, FILTERS, st.just(ALL)).map(lambda given: SearchOp(*given)),
    st.tuples(
        st.one_of(st.none(), st.lists(MATCHES, max_size=2).map(tuple)),
        st.one_of(st.none(), st.integers(1, 3)),
        st.just(ALL),
    ).map(lambda given: ListNamespacesOp(*given)),
)


class Memory(InMemoryStore):
    """LangGraph's store in memory, that forgets namespaces without items, as its stores in databases do."""

    def _handle_list_namespaces(self, op: Any) -> Any:
        for namespace in [one for one, items in self._data.items() if not items]:
            del self._data[namespace]
        return super()._handle_list_namespaces(op)


def told(answers: Any) -> Any:
    """Return answers without what differs by its nature: times, and the order of what is found."""
    if isinstance(answers, list):
        return sorted((told(one) for one in answers), key=repr)
    return answers if answers is None or isinstance(answers, tuple) else (answers.namespace, answers.key, answers.value)


def embed(texts: list[str]) -> list[list[float]]:
    """Return how often letters stand in texts."""
    return [[float(text.count(letter)) for letter in "aeplr"] for text in texts]


async def aembed(texts: list[str]) -> list[list[float]]:
    """Return as `embed`."""
    return embed(texts)


INDEX: Any = {"dims": 5, "embed": embed, "fields": ["text", "parts[*].text"]}


@settings(max_examples=30)
@given(batches=st.lists(st.lists(OPS, min_size=1, max_size=6), min_size=1, max_size=8), is_async=st.booleans())
def test_every_batch_has_the_answers_of_the_store_in_memory(
    database: Database, batches: Any, *, is_async: bool
) -> None:
    """integrations AD-46: reads, writes, deletes, filters and lists of namespaces, in any order within a batch."""
    store = database.open()
    for scope in every_scope(store):
        store.states.clear(scope)
    ours, theirs = LangGraphStore(store), Memory()
    for ops in batches:
        answered = asyncio.run(ours.abatch(ops)) if is_async else ours.batch(ops)
        assert [told(one) for one in answered] == [told(one) for one in theirs.batch(ops)], ops


def every_scope(store: StateStore) -> list[str]:
    return list(iterate(store.states.scopes, limit=500))


@pytest.fixture
def memories(database: Database) -> LangGraphStore:
    """A store of memories without an index."""
    return LangGraphStore(database.open())


def test_a_read_sees_what_was_there_before_the_writes_of_its_batch(memories: LangGraphStore) -> None:
    """integrations AD-46: the last put of a key counts, and None removes it."""
    memories.put(("a",), "k", {"n": 1})
    put, get = PutOp(("a",), "k", {"n": 2}), GetOp(("a",), "k")
    first = memories.batch([put, get, PutOp(("a",), "k", {"n": 3}), SearchOp(("a",))])
    assert [first[1].value, [one.value for one in first[3]]] == [{"n": 1}, [{"n": 1}]]
    assert memories.get(("a",), "k").value == {"n": 3}
    memories.delete(("a",), "k")
    assert memories.get(("a",), "k") is None


CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE


@pytest.mark.parametrize("value", [{"a": {1, 2}}, {"a": b"x"}, {"a": object()}, CIRCLE, [1], "text"])
def test_an_item_that_is_no_dictionary_of_json_is_refused(database: Database, value: Any) -> None:
    """integrations AD-64: before anything is embedded, with its whole batch; searches with filters go on."""
    asked: list[list[str]] = []
    memories = LangGraphStore(database.open(), index={**INDEX, "embed": asked.append})
    with pytest.raises(InvalidValue, match="value"):
        memories.batch([PutOp(("a",), "one", {"text": "apple"}), PutOp(("a",), "k", value)])
    assert (asked, memories.search((), filter={"n": 1})) == ([], [])


def test_labels_hold_what_texts_of_both_databases_hold(memories: LangGraphStore) -> None:
    """integrations AD-65: wildcards and separators are letters; halves of pairs are refused."""
    labels = ["a/b", "%", "_", "*", "\x01", "\U0010ffff"]
    for label in labels:
        memories.batch([PutOp(("top", label), "k", {"label": label})])
    for label in labels:
        [found] = memories.batch([SearchOp(("top", label))])
        assert [one.value["label"] for one in found] == [label]
    assert sorted(memories.list_namespaces(prefix=["top"])) == sorted(("top", label) for label in labels)
    with pytest.raises(InvalidValue, match="must not contain"):
        memories.batch([PutOp(("top", "\ud83d"), "k", {"n": 1})])


@pytest.mark.parametrize("label", ["", "a.b", "a\0", 1, None])
def test_labels_that_langgraph_refuses_are_refused_in_every_operation(memories: LangGraphStore, label: Any) -> None:
    """integrations AD-65: before anything is done, as the shipped stores do."""
    matching = MatchCondition("prefix", ("top", label))
    ops: list[Any] = [GetOp(("top", label), "k"), SearchOp(("top", label)), ListNamespacesOp((matching,))]
    for op in [*ops, PutOp(("top", label), "k", {"n": 1}), PutOp(("top", label), "k", None)]:
        with pytest.raises(InvalidNamespaceError):
            memories.batch([PutOp(("top",), "k", {"n": 1}), op])
    assert memories.list_namespaces() == []


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_of_a_search_and_of_namespaces_have_each_once(memories: LangGraphStore, limit: int) -> None:
    """integrations AD-47: of one time, in the order of namespaces and keys; the depth counts before the page."""
    for at in range(7):
        memories.put(("docs", f"{at % 3}", f"{at}"), "k", {"n": at})
    pages = [memories.search(("docs",), limit=limit, offset=at) for at in range(0, 7, limit)]
    assert [one.value["n"] for page in pages for one in page] == [0, 3, 6, 1, 4, 2, 5]
    cut = [memories.list_namespaces(max_depth=2, limit=limit, offset=at) for at in range(0, 3, limit)]
    assert [one for page in cut for one in page] == [("docs", "0"), ("docs", "1"), ("docs", "2")]


@pytest.mark.parametrize("wanted", [None, {"kind": 1}], ids=["all", "filter"])
def test_what_was_changed_last_comes_first(database: Database, wanted: Any) -> None:
    """integrations AD-47: in a search without a query; a read is no change."""
    memories = LangGraphStore(database.open())
    for at in (3, 1, 4, 2, 0):
        database.clock.advance(timedelta(seconds=1))
        memories.put(("docs", f"{at % 2}"), f"{at}", {"kind": 1})
    database.clock.advance(timedelta(seconds=1))
    memories.put(("docs", "1"), "3", {"kind": 1, "more": 1})
    memories.get(("docs", "0"), "4")
    assert [one.key for one in memories.search(("docs",), filter=wanted)] == ["3", "0", "2", "4", "1"]
    assert [one.key for one in memories.search(("docs",), filter=wanted, limit=2, offset=1)] == ["0", "2"]


def test_a_filter_is_for_numbers_or_for_texts_and_knows_its_operators(memories: LangGraphStore) -> None:
    """integrations AD-48: what cannot be compared does not pass; an unknown operator is refused."""
    for at, value in enumerate([1, 2.5, "b", True, None, [1]]):
        memories.put(("a",), f"{at}", {"v": value})

    def found(wanted: Any) -> list[str]:
        return [one.key for one in memories.search(("a",), filter={"v": wanted})]

    assert [found({"$gt": 1}), found({"$gte": "a"}), found({"$lte": 2.5}), found(1)] == [
        ["1"],
        ["2"],
        ["0", "1"],
        ["0"],
    ]
    assert found({"$ne": None, "$lt": 2}) == ["0"]
    with pytest.raises(InvalidValue, match="regex"):
        found({"$regex": "a"})
    for mixed in ({"$gt": 1, "n": 2}, [{"$gt": 1, "n": 2}], {"m": {"$gt": 1, "n": 2}}):
        with pytest.raises(InvalidValue, match="not both"):
            found(mixed)
    with pytest.raises(InvalidValue, match="regex"):
        found([{"$regex": "a"}])
    with pytest.raises(InvalidValue, match="offset"):
        memories.search(("a",), offset=-1)


@pytest.mark.parametrize("function", [embed, aembed], ids=["sync", "async"])
def test_a_query_finds_the_nearest_first_and_those_without_embeddings_last(database: Database, function: Any) -> None:
    """integrations AD-49: the nearest of several embeddings counts; a filter and a page count before and behind it."""
    store = database.open()
    index = {**INDEX, "embed": function}
    ours, theirs = LangGraphStore(AsyncStateStore(store), index=index), InMemoryStore(index=index)

    async def story(memories: Any) -> list[Any]:
        await memories.aput(("d", "1"), "a", {"text": "apple", "kind": 1})
        await memories.aput(("d", "1"), "b", {"parts": [{"text": "rrr"}, {"text": "apple pear"}], "kind": 2})
        await memories.aput(("d", "2"), "c", {"text": "leer", "kind": 1})
        await memories.aput(("d", "2"), "d", {"text": "apple", "kind": 1}, index=False)
        await memories.aput(("d", "3"), "e", {"other": "leer", "kind": 1}, index=["other"])
        whole = await memories.asearch(("d",), query="apples", limit=10)
        some = await memories.asearch(("d",), query="leer", filter={"kind": 1}, limit=2)
        rest = await memories.asearch(("d", "1"), query="r", limit=1, offset=1)
        plain = await memories.asearch(("d",), limit=10)
        return [
            [(one.key, None if one.score is None else round(one.score, 6)) for one in found]
            for found in (whole, some, rest, plain)
        ]

    assert asyncio.run(story(ours)) == asyncio.run(story(theirs))


def test_an_embedding_goes_with_its_item(database: Database) -> None:
    """integrations AD-49: what replaces an item has its own embedding or none, and a removed one leaves nothing."""
    store = database.open()
    memories = LangGraphStore(store, index=INDEX)
    memories.put(("a",), "k", {"text": "apple"})
    memories.put(("a",), "k", {"text": "rrr"})
    [found] = memories.search(("a",), query="apple")
    assert found.score is not None
    assert found.score < 0.5
    LangGraphStore(store).put(("a",), "k", {"text": "apple"})  # by a store without an index
    assert [one.score for one in memories.search(("a",), query="apple")] == [None]
    memories.put(("a",), "k", {"text": "apple"})
    memories.delete(("a",), "k")
    assert list(store.states.list()) == []


@pytest.mark.parametrize("made", [[[1.0]], [], [[1.0] * 6]], ids=["short", "none", "long"])
def test_embeddings_that_are_not_as_told_are_refused(database: Database, made: Any) -> None:
    """integrations AD-49: before anything is stored."""
    store = database.open()
    memories = LangGraphStore(store, index={**INDEX, "embed": lambda _: made})
    with pytest.raises(InvalidValue, match="embed"):
        memories.put(("a",), "k", {"text": "apple"})
    assert list(store.states.list()) == []


def test_embeddings_of_another_length_are_none(database: Database) -> None:
    """integrations AD-49: after a change of the index, until the item is put again."""
    store = database.open()
    LangGraphStore(store, index=INDEX).put(("a",), "k", {"text": "apple"})
    shorter = LangGraphStore(store, index={**INDEX, "dims": 1, "embed": lambda texts: [[1.0] for _ in texts]})
    assert [one.score for one in shorter.search(("a",), query="apple")] == [None]


def test_an_item_lives_on_from_each_access_that_counts(database: Database) -> None:
    """integrations AD-50: also its embedding; a put without a lifetime ends it."""
    clock, store = database.clock, database.open()
    memories = LangGraphStore(store, index=INDEX, ttl={"default_ttl": 10})
    for key in ("got", "searched", "left", "kept"):
        memories.put(("a", key), key, {"text": "apple"})
    memories.put(("a", "kept"), "kept", {"text": "apple"}, ttl=None)
    clock.advance(timedelta(minutes=6))
    memories.get(("a", "got"), "got")
    memories.search(("a", "searched"), query="apple")
    memories.search(("a", "left"), refresh_ttl=False)
    clock.advance(timedelta(minutes=6))
    found = memories.search(("a",), query="apple", refresh_ttl=False)
    assert [(one.key, one.score is None) for one in found] == [("got", False), ("kept", False), ("searched", False)]
    assert memories.list_namespaces(suffix=["left"]) == []
    clock.advance(timedelta(days=1))
    store.maintenance.prune.run(PrunePolicy("states"))
    assert sorted(one.key for one in store.states.list()) == ["kept", "kept"]


def replaced(memories: LangGraphStore) -> None:
    """Put another item in the place of one, which lives for ever."""
    memories.put(("a",), "k", {"text": "pear"}, ttl=None)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_read_does_not_shorten_the_life_of_what_replaced_the_item(database: Database, *, is_async: bool) -> None:
    """integrations AD-60: by another process, between the read and the refresh of what it read."""
    store, other = database.open(), LangGraphStore(database.open(), index=INDEX)
    memories = LangGraphStore(store, index=INDEX, ttl={"default_ttl": 10})
    memories.put(("a",), "k", {"text": "apple"})
    with racing(store) as race:
        race.before_unit(2, lambda: replaced(other))
        found = asyncio.run(memories.aget(("a",), "k")) if is_async else memories.get(("a",), "k")
        assert found.value == {"text": "apple"}
    assert race.left == 0
    database.clock.advance(timedelta(days=1))
    assert [(one.value, one.score is None) for one in memories.search(("a",), query="pear")] == [
        ({"text": "pear"}, False)
    ]


def test_a_read_beside_writes_does_not_shorten_it_either(postgres_database: Database) -> None:
    """integrations AD-60: within the transaction of a batch."""
    store, other = postgres_database.open(), LangGraphStore(postgres_database.open(), index=INDEX)
    memories = LangGraphStore(store, index=INDEX, ttl={"default_ttl": 10})
    memories.put(("a",), "k", {"text": "apple"})
    with racing(store) as race:
        race.before("UPDATE states", lambda: replaced(other))
        memories.batch([GetOp(("a",), "k"), PutOp(("a",), "other", {"n": 1})])
    assert race.left == 0
    assert [one.expires_at for one in store.states.list() if one.key == "k"] == [None, None]


@pytest.mark.parametrize("given", [{"ttl": 1e300}, {"ttl": float("nan")}, {"ttl": 0}, {"ttl": -1}, {"ttl": 1e10}])
def test_a_lifetime_that_no_time_ends_is_refused(memories: LangGraphStore, given: Any) -> None:
    """integrations AD-61."""
    with pytest.raises(InvalidValue, match="ttl"):
        memories.put(("a",), "k", {"n": 1}, **given)
    assert memories.search(()) == []


def test_an_item_that_lives_to_the_last_year_can_be_read(database: Database) -> None:
    """integrations AD-61: it lives no longer then."""
    memories = LangGraphStore(database.open())
    whole = (datetime.max.replace(tzinfo=UTC) - database.clock.now()).total_seconds() / 60 - 1
    memories.put(("a",), "k", {"n": 1}, ttl=whole)
    database.clock.advance(timedelta(days=1))
    assert memories.get(("a",), "k").value == {"n": 1}


def test_a_read_that_refreshes_needs_neither_a_claim_nor_a_store_that_writes(database: Database) -> None:
    """integrations AD-62: whoever reads lets an item live on where the store may be written to."""
    store = database.open()
    claims = store.workflows.claims
    run = store.workflows.runs.create("graph", trigger=Trigger("ticket"), phase="ask")
    claim = claims.take(run.id, owner="one")
    memories = LangGraphStore(store, claim=claim, ttl={"default_ttl": 10})
    memories.put(("a",), "k", {"n": 1})
    claims.transfer(claim, owner="two")
    database.clock.advance(timedelta(minutes=6))
    assert memories.get(("a",), "k").value == {"n": 1}
    database.clock.advance(timedelta(minutes=6))
    reader = LangGraphStore(database.open(read_only=True))
    assert reader.get(("a",), "k").value == {"n": 1}
    assert [one.value for one in asyncio.run(reader.asearch(("a",)))] == [{"n": 1}]
    database.clock.advance(timedelta(minutes=6))
    assert reader.get(("a",), "k") is None


def test_searches_find_what_a_codec_has_sealed(database: Database) -> None:
    """integrations AD-66: by filter and by query; neither the item nor its embedding stands open."""
    memories = LangGraphStore(database.open(codec=Xor(7)), index=INDEX)
    memories.put(("a",), "k", {"text": "apple", "n": 1})
    memories.put(("a",), "other", {"text": "rrr", "n": 2})
    found = [memories.search(("a",), filter={"n": 1}), memories.search(("a",), query="apple", limit=1)]
    assert [[one.value for one in some] for some in found] == [[{"text": "apple", "n": 1}]] * 2
    rows = database.raw().execute("SELECT value, body FROM states").fetchall()
    stored = [bytes(one) if isinstance(one, bytes | memoryview) else str(one).encode() for row in rows for one in row]
    for opened in (b"apple", struct.pack("<5f", *embed(["apple"])[0])):
        assert not any(opened in one for one in stored)


def test_items_belong_to_the_person_whom_their_namespace_names(database: Database) -> None:
    """integrations AD-4: with their embeddings."""
    store = database.open()
    memories = LangGraphStore(store, index=INDEX, user_of=lambda namespace: namespace[-1])
    for user in ("ana", "bo"):
        memories.put(("memories", user), "k", {"text": "apple"})
    store.maintenance.erase.run("ana")
    assert [one.user for one in store.states.list()] == ["bo", "bo"]


def test_only_the_holder_of_a_claim_writes(database: Database) -> None:
    """integrations AD-3: reads ask for no claim."""
    store = database.open()
    claims = store.workflows.claims
    run = store.workflows.runs.create("graph", trigger=Trigger("ticket"), phase="ask")
    claim = claims.take(run.id, owner="one")
    memories = LangGraphStore(store, claim=claim)
    memories.put(("a",), "k", {"n": 1})
    claims.transfer(claim, owner="two")
    with pytest.raises(ClaimLost):
        memories.put(("a",), "k", {"n": 2})
    assert memories.get(("a",), "k").value == {"n": 1}


def test_a_batch_reads_its_keys_in_a_statement_and_puts_each_in_two(database: Database) -> None:
    """integrations AD-47: whatever else there is; a search compares times, and reads the items of its page."""
    store = database.open()
    memories = LangGraphStore(store)
    taken = []
    for size in (10, 1_000):
        memories.batch([PutOp(("a",), f"{at}", {"n": at}) for at in range(size)])
        with racing(store) as race:
            memories.batch([GetOp(("a",), f"{at}") for at in range(10)])
            memories.batch([PutOp(("a",), f"{at}", {"n": at}) for at in range(10)])
            memories.search(("a",), limit=10)
            taken.append(len(race.statements))
    assert taken[0] == taken[1] == 1 + 2 * 10 + 2
