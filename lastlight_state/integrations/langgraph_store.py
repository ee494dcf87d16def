"""A store for LangGraph's memories over ``store.states`` (extra ``langgraph``).

::

    from lastlight_state import StateStore
    from lastlight_state.integrations.langgraph_store import LangGraphStore

    with StateStore.open("state/lastlight.db") as store:
        graph = builder.compile(store=LangGraphStore(store))

An item is stored as a state. Its scope is made of the labels of its namespace, each followed by "/". So a namespace
prefix is a range of scopes. An item's embeddings are a second state, with the same user and expiry: whatever removes
one removes the other. Async methods run on the worker threads of an `AsyncStateStore`: a cancelled call waits for the
outcome of its write before it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from heapq import nlargest
from itertools import groupby, islice
from typing import Any, NamedTuple

from lastlight_state.aio import AsyncStateStore
from lastlight_state.conversations import runtime, similarity
from lastlight_state.db import valid
from lastlight_state.db.lists.pages import iterate
from lastlight_state.domains import Transaction, View
from lastlight_state.errors import InvalidValue, MisuseError, NotFound, StaleVersion
from lastlight_state.integrations.langgraph_search import (
    Embedded,
    Index,
    PassingItems,
    Place,
    StoredItems,
    labels_of,
    matches,
    namespace_of,
    passes,
    refuse_unknown,
)
from lastlight_state.integrations.langgraph_upkeep import Upkeep
from lastlight_state.states import State
from lastlight_state.store import StateStore
from lastlight_state.workflows import Claim

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        validate_op_namespace,
    )
except ImportError:  # without the framework the module can be imported, but no store created
    BaseStore = object

#: States that one query reads.
_PAGE = 100
#: Keys in the state of an item: its value, and its lifetime in minutes after each access.
_VALUE, _TTL = "value", "ttl"


class _Batch(NamedTuple):
    """The work of one call: its operations, the last put of each item, and the texts to embed."""

    ops: list[Op]
    puts: dict[Place, PutOp]
    texts: dict[Place, list[str]]
    queries: list[str]

    @property
    def documents(self) -> list[str]:
        """Return the texts to embed, without duplicates."""
        return list(dict.fromkeys(text for texts in self.texts.values() for text in texts))


class LangGraphStore(Upkeep, BaseStore):
    """A LangGraph store, sync and async. The caller opens and closes the underlying store.

    ``index`` has the settings for embedding items, for searches with a query. Without it a query is ignored, as in the
    stores that LangGraph ships. ``ttl`` is LangGraph's configuration of items' lifetimes. Expired items are never read,
    and a prune removes them. ``scope`` is the namespace of its items. ``user_of`` returns the person to whom a
    namespace's items belong, for erasure. With a run's ``claim``, only the claim's holder may write: any other caller
    gets `ClaimLost`. Raises `MisuseError` without LangGraph.
    """

    supports_ttl = True

    def __init__(
        self,
        store: StateStore | AsyncStateStore,
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        scope: str = "langgraph",
        user_of: Callable[[tuple[str, ...]], str | None] | None = None,
        claim: Claim | None = None,
    ) -> None:
        if BaseStore is object:
            raise MisuseError.missing_extra("langgraph", what="a store for LangGraph")
        behind = store if isinstance(store, AsyncStateStore) else AsyncStateStore(store)
        self._runner = behind._runner
        self._store = behind._store
        self._stored = StoredItems(scope)
        self._user_of = user_of
        self._claim = claim
        self.ttl_config = ttl
        self.index_config = index
        self._index = None if index is None else Index(index)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations in one snapshot or transaction. Reads see the data before the writes. The writes are atomic.

        If an item is written several times, the last write is stored. Raises `InvalidValue` for values that cannot be
        stored or compared, and LangGraph's own error for invalid labels.
        """
        batch = self._batch(ops)
        embedded = Embedded() if self._index is None else self._index.embed_texts(batch.documents, batch.queries)
        if batch.puts:
            return self._answer_in_transaction(batch, embedded)
        found, lasting = self._answer_in_view(batch, embedded)
        if lasting:
            self._extend_lifetimes(lasting)
        return found

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations as `batch` does."""
        batch = self._batch(ops)
        embedded = Embedded() if self._index is None else await self._index.aembed_texts(batch.documents, batch.queries)
        if batch.puts:
            return await self._runner.write(partial(self._answer_in_transaction, batch, embedded))
        found, lasting = await self._runner.read(partial(self._answer_in_view, batch, embedded))
        if lasting:
            await self._runner.write(partial(self._extend_lifetimes, lasting))
        return found

    # Preparation of a call: its operations and the texts to embed.

    def _batch(self, given: Iterable[Op]) -> _Batch:
        found = _Batch([*given], {}, {}, [])
        for op in found.ops:
            if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
                raise InvalidValue("ops", f"expected operations of LangGraph, got {type(op).__name__}")
            validate_op_namespace(op)
            if isinstance(op, SearchOp | ListNamespacesOp):
                valid.number("offset", op.offset)
                valid.number("limit", op.limit)
            if isinstance(op, PutOp):
                found.puts[_place(op)] = op._replace(value=_value(op))
                found.texts[_place(op)] = [] if self._index is None else self._index.texts(op)
            elif isinstance(op, SearchOp):
                refuse_unknown("filter", op.filter)
                if op.query and self._index is not None and op.query not in found.queries:
                    found.queries.append(op.query)
        return found

    # The parts that run inside a view or a transaction.

    def _answer_in_view(self, batch: _Batch, embedded: Embedded) -> tuple[list[Result], dict[Place, State]]:
        """Return the results of read-only operations, and the items whose lifetime starts again."""
        lasting: dict[Place, State] = {}
        with self._store.view() as view:
            return self._answers(view, batch.ops, embedded, lasting), lasting

    def _extend_lifetimes(self, lasting: Mapping[Place, State]) -> None:
        """Extend the lifetime of items that were read. No claim is needed. Does nothing in a read-only store."""
        if not self._store.settings.read_only:
            self._store.run(lambda tx: self._refresh(tx, lasting), label=type(self).__name__, repeatable=True)

    def _answer_in_transaction(self, batch: _Batch, embedded: Embedded) -> list[Result]:
        def work(tx: Transaction) -> list[Result]:
            lasting: dict[Place, State] = {}
            found = self._answers(tx, batch.ops, embedded, lasting)
            self._refresh(tx, lasting)
            for place, op in sorted(batch.puts.items()):
                self._put(tx, place, op, [embedded.documents[text] for text in batch.texts[place]])
            return found

        repeatable = len(batch.ops) == len(batch.puts)
        return self._store.run(work, claim=self._claim, label=type(self).__name__, repeatable=repeatable)

    def _put(self, tx: Transaction, place: Place, op: PutOp, embeddings: Sequence[bytes]) -> None:
        items, indexed = self._stored.items + place.labels, self._stored.vectors + place.labels
        if op.value is None:
            if not valid.are_storable(items, place.key):
                return
            tx.states.remove(place.key, scope=items)
            tx.states.remove(place.key, scope=indexed)
            return
        ttl = _minutes(op.ttl)
        user = None if self._user_of is None else self._user_of(op.namespace)
        self._store_at(tx, place.key, op.value, items, ttl, user)
        if self._index is not None and embeddings:
            self._store_at(tx, place.key, self._index.pack_embeddings(embeddings), indexed, ttl, user)
        else:
            tx.states.remove(place.key, scope=indexed)

    def _store_at(
        self, tx: Transaction, key: str, value: Any, scope: str, ttl: timedelta | None, user: str | None
    ) -> None:
        stored = tx.states.put(key, value, scope=scope, ttl=ttl, user=user)
        if ttl is None and stored.expires_at is not None:  # the replacing item never expires
            tx.states.expire(key, None, scope=scope)

    def _refresh(self, tx: Transaction, lasting: Mapping[Place, State]) -> None:
        """Restart the lifetime of these items now, except for items removed or replaced meanwhile."""
        now = self._store.states._now()
        for place, one in sorted(lasting.items()):
            with suppress(NotFound, StaleVersion, OverflowError):  # OverflowError: it would end after the year 9999
                end = now + timedelta(minutes=one.value[_TTL])
                tx.states.expire(place.key, end, scope=self._stored.items + place.labels, expected=one.version)
                with suppress(NotFound):  # the item has no embeddings
                    tx.states.expire(place.key, end, scope=self._stored.vectors + place.labels)

    def _answers(
        self, view: View | Transaction, ops: Sequence[Op], embedded: Embedded, lasting: dict[Place, State]
    ) -> list[Result]:
        asked: dict[str, list[str]] = {}
        for op in ops:
            if isinstance(op, GetOp) and valid.are_storable(*op.namespace, op.key):
                asked.setdefault(labels_of(op.namespace), []).append(op.key)
        got = {
            Place(labels, key): one
            for labels, keys in asked.items()
            for key, one in view.states.find_many(keys, scope=self._stored.items + labels).items()
        }
        answers: list[Result] = []
        for op in ops:
            if isinstance(op, GetOp):
                one = got.get(_place(op))
                answers.append(None if one is None else Item(**self._item_fields(one)))
                read = [] if one is None else [one]
            elif isinstance(op, SearchOp):
                scored = self._search(view, op, embedded)
                answers.append([SearchItem(**self._item_fields(one), score=score) for one, score in scored])
                read = [one for one, _ in scored]
            else:
                answers.append(self._namespaces(view, op) if isinstance(op, ListNamespacesOp) else None)
                read = []
            if getattr(op, "refresh_ttl", False):
                lasting.update((self._stored.place_of(one), one) for one in read if _TTL in one.value)
        return answers

    def _search(self, view: View | Transaction, op: SearchOp, embedded: Embedded) -> list[tuple[State, float | None]]:
        """Return the items nearest to the query. Without a query, return items with the last changed first."""
        if not valid.are_storable(*op.namespace_prefix):
            return []
        query = similarity.Query(embedded.queries[op.query], "cosine") if op.query in embedded.queries else None
        if self._index is not None and query is not None and query.norm:
            return self._nearest(view, op, self._index, query)
        wanted = op.offset + op.limit
        if op.filter:
            latest_items = nlargest(wanted, self._passing_items(view, op), key=_changed_at)
            return [(one, None) for one in latest_items[op.offset :]]
        latest = view.states._latest(self._stored.items + labels_of(op.namespace_prefix), wanted) if wanted else []
        places = [*map(self._stored.place_of, latest[op.offset :])]
        found = self._stored.at(view, places)
        return [(found[place], None) for place in places if place in found]

    def _passing_items(self, view: View | Transaction, op: SearchOp) -> Iterator[State]:
        listed = iterate(view.states.items, under=self._stored.items + labels_of(op.namespace_prefix), limit=_PAGE)
        return (one for one in listed if _passes(one, op))

    def _nearest(
        self, view: View | Transaction, op: SearchOp, index: Index, query: similarity.Query
    ) -> list[tuple[State, float | None]]:
        """Return the items nearest to a query, followed by items without embeddings."""
        ranked = self._rank_items(view, op, index, query)[op.offset :]
        found = self._stored.at(view, [place for place, _ in ranked])
        return [(found[place], score) for place, score in ranked if place in found]

    def _rank_items(
        self, view: View | Transaction, op: SearchOp, index: Index, query: similarity.Query
    ) -> Sequence[tuple[Place, float | None]]:
        wanted, labels = op.offset + op.limit, labels_of(op.namespace_prefix)
        if op.filter:
            few = self._stored.nearest_passing(view, labels, index, query, wanted, lambda one: _passes(one, op))
            if few is not None:
                return few
            passing = PassingItems(map(self._stored.place_of, self._passing_items(view, op)), wanted)
            pages = self._stored.embeddings(view, labels, query, passing.has)
            scored = index.nearest(pages, query, wanted)
            others = iter(passing.read_wanted())
        else:
            scored = self._stored.nearest(view, labels, index, query, wanted)
            listed = iterate(view.states.list, under=self._stored.items + labels, limit=_PAGE)
            others = map(self._stored.place_of, listed)
        ranked: list[tuple[Place, float | None]] = [*scored[:wanted]]
        if len(ranked) < wanted:
            known = {place for place, _ in scored}
            unscored = ((place, None) for place in others if place not in known)
            ranked.extend(islice(unscored, wanted - len(ranked)))
        return ranked

    def _namespaces(self, view: View | Transaction, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        under = next(
            (labels_of(one.path) for one in conditions if one.match_type == "prefix" and "*" not in one.path), ""
        )
        if not valid.are_storable(under):
            return []
        listed = iterate(view.states.scopes, under=self._stored.items + under, limit=_PAGE)
        spaces = (namespace_of(scope.removeprefix(self._stored.items)) for scope in listed)
        matching = (one for one in spaces if all(matches(condition, one) for condition in conditions))
        cut = (one for one, _ in groupby(one[: op.max_depth] for one in matching))
        return [*islice(cut, op.offset, op.offset + op.limit)]

    def _item_fields(self, one: State) -> dict[str, Any]:
        return {
            "namespace": namespace_of(one.scope.removeprefix(self._stored.items)),
            "key": one.key,
            "value": runtime.unpack_item(one.value[_VALUE]),
            "created_at": one.created_at,
            "updated_at": one.updated_at,
        }


def _passes(one: State, op: SearchOp) -> bool:
    return passes(runtime.unpack_item(one.value[_VALUE]), op.filter)


def _changed_at(one: State) -> datetime:
    return one.updated_at


def _place(op: GetOp | PutOp) -> Place:
    return Place(labels_of(op.namespace), op.key)


def _value(op: PutOp) -> Any:
    """Return an item in its stored form. Return None for a removal. Raises `InvalidValue` if it is not JSON."""
    _minutes(op.ttl)
    if op.value is None:
        return None
    if not isinstance(op.value, dict):
        raise InvalidValue("value", f"expected a dictionary, got {type(op.value).__name__}")
    try:
        return {_VALUE: runtime.pack_item(op.value), **({} if op.ttl is None else {_TTL: op.ttl})}
    except (RecursionError, TypeError, ValueError):
        raise InvalidValue("value", "must be a dictionary of JSON") from None


def _minutes(ttl: float | None) -> timedelta | None:
    """Convert a lifetime in minutes to a timedelta, or None. Raises `InvalidValue`."""
    try:
        return None if ttl is None else timedelta(minutes=ttl)
    except (OverflowError, TypeError, ValueError):
        raise InvalidValue("ttl", "must be a number of minutes, which end before the year 10000") from None
