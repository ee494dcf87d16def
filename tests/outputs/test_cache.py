from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from support.each import with_each
from support.guards import unguarded
from support.outputs.shapes import Analysis, Grown, a_run, no_time
from support.workflows.steps import together

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue
from lastlight_state.outputs import CachedOutput, CacheKey
from lastlight_state.testing import Database, FrozenClock

KEY = CacheKey("audit", "review", {"prompt": "look"})


class Fewer(BaseModel):
    summary: str
    severity: Literal["low"] = "low"


class Typed(BaseModel):
    price: Decimal
    done: bool


def test_a_result_is_found_again_as_it_was(store: StateStore) -> None:
    """outputs H-1, H-2, H-3, T-3: typed, without bookkeeping."""
    made = store.outputs.define("typed", Typed)
    assert store.outputs.cache.find(KEY, made) is None
    first = store.outputs.cache.ensure(KEY, made, {"price": "1.10", "done": True}, source_run_id="r-1")
    found: CachedOutput[Typed] | None = store.outputs.cache.find(KEY, "typed")
    assert found == first
    assert found is not None
    assert (str(found.data["price"]), found.data["done"]) == ("1.10", True)
    assert found.value == Typed(price=Decimal("1.10"), done=True)
    assert set(found.data) == {"price", "done"}


def test_a_hit_becomes_an_output_of_another_run_and_iteration(store: StateStore, run_id: str) -> None:
    """outputs H-4: nothing of the source is in it."""
    made = store.outputs.define("analysis", Analysis)
    hit = store.outputs.cache.ensure(KEY, made, {"summary": "x"}, source_run_id="another")
    found = store.outputs.results.put(made, run_id, "elsewhere", hit.value, iteration=4)
    assert (found.run_id, found.node_id, found.iteration, found.data) == (run_id, "elsewhere", 4, hit.data)


@with_each(
    "other",
    [
        CacheKey("audit", "review", {"prompt": "look"}, agent_signature="other"),
        CacheKey("audit", "review", {"prompt": "look twice"}),
        CacheKey("audit", "other", {"prompt": "look"}),
        CacheKey("other", "review", {"prompt": "look"}),
    ],
    ids=["agent", "basis", "node", "workflow"],
)
def test_another_key_is_no_hit(store: StateStore, other: CacheKey) -> None:
    """outputs H-1."""
    made = store.outputs.define("analysis", Analysis)
    store.outputs.cache.ensure(KEY, made, {"summary": "x"})
    assert store.outputs.cache.find(other, made) is None


@pytest.mark.parametrize("agent", [None, "agent-1"])
def test_versions_side_by_side_hit_their_own(database: Database, agent: str | None) -> None:
    """outputs H-2, H-6: a field more, and an enum with fewer words."""
    key = CacheKey("audit", "review", 1, agent_signature=agent)
    shapes: list[Any] = [Analysis, Grown, Fewer]
    stores = [database.open(migrate=True) for _ in shapes]
    tables = [store.outputs.define("analysis", shape) for store, shape in zip(stores, shapes, strict=True)]
    for i, (store, table) in enumerate(zip(stores, tables, strict=True)):
        assert store.outputs.cache.find(key, table) is None
        store.outputs.cache.ensure(key, table, {"summary": str(i)})
    for i, (store, table) in enumerate(zip(stores, tables, strict=True)):
        found = store.outputs.cache.find(key, table)
        assert found is not None
        assert found.data["summary"] == str(i)


@pytest.mark.parametrize("garbage", ["{}", "[1]", '{"summary": 3}', '"x"', "null"])
def test_what_does_not_validate_is_no_hit(database: Database, garbage: str) -> None:
    """outputs H-2: edited by hand."""
    store = database.open(migrate=True)
    made = store.outputs.define("analysis", Analysis)
    store.outputs.cache.ensure(KEY, made, {"summary": "x"})
    database.raw().execute(f"UPDATE output_cache SET payload = '{garbage}'")
    assert store.outputs.cache.find(KEY, made) is None


@pytest.mark.parametrize("price", ["{}", '"dear"', "[1, 2]"])
def test_a_value_that_its_column_cannot_read_is_no_hit(database: Database, price: str) -> None:
    """outputs H-2: of another type, or of the right one and no number."""
    store = database.open(migrate=True)
    made = store.outputs.define("typed", Typed)
    store.outputs.cache.ensure(KEY, made, {"price": "1.10", "done": True})
    garbage = f'{{"price": {price}, "done": true}}'
    database.raw().execute(f"UPDATE output_cache SET payload = '{garbage}'")
    assert store.outputs.cache.find(KEY, made) is None


def test_an_entry_that_cannot_be_read_is_no_hit(database: Database) -> None:
    """outputs H-2: it is no error either."""
    store = database.open(migrate=True)
    made = store.outputs.define("analysis", Analysis)
    store.outputs.cache.ensure(KEY, made, {"summary": "x"})
    unguarded(database).execute(f"UPDATE output_cache SET created_at = {no_time(database)}")
    assert store.outputs.cache.find(KEY, made) is None


def test_an_entry_of_another_signature_is_no_hit(database: Database) -> None:
    """outputs H-2: checked besides being part of the key."""
    store = database.open(migrate=True)
    made = store.outputs.define("analysis", Analysis)
    store.outputs.cache.ensure(KEY, made, {"summary": "x"})
    database.raw().execute("UPDATE output_cache SET schema_signature = 'other'")
    assert store.outputs.cache.find(KEY, made) is None


def test_an_entry_expires_and_is_replaced(store: StateStore, frozen_clock: FrozenClock) -> None:
    """outputs H-3."""
    made = store.outputs.define("analysis", Analysis)
    store.outputs.cache.ensure(KEY, made, {"summary": "old"}, ttl=timedelta(minutes=1))
    frozen_clock.advance(timedelta(minutes=1))
    assert store.outputs.cache.find(KEY, made) is None
    assert store.outputs.cache.ensure(KEY, made, {"summary": "new"}).data["summary"] == "new"
    frozen_clock.advance(timedelta(days=1))
    assert store.outputs.cache.ensure(KEY, made, {"summary": "later"}).data["summary"] == "new"


def test_racing_writers_get_the_first_ones_result(every_backend: StateStore) -> None:
    """outputs H-3."""
    made = every_backend.outputs.define("analysis", Analysis)
    for node in ("a", "z"):
        every_backend.outputs.cache.ensure(CacheKey("audit", node, node), made, {"summary": "another's"})
    done = together(
        [lambda i=i: every_backend.outputs.cache.ensure(KEY, made, {"summary": str(i)}).data for i in range(8)]  # type: ignore[misc]
    )
    assert len({str(one) for one in done}) == 1
    assert not isinstance(done[0], BaseException)
    assert "another's" not in str(done[0])
    assert every_backend.outputs.cache.ensure(KEY, made, {"summary": "late"}).data == done[0]


def test_what_an_output_may_not_be_is_not_cached(store: StateStore) -> None:
    """outputs H-3, H-1."""
    made = store.outputs.define("analysis", Analysis)
    with pytest.raises(InvalidValue):
        store.outputs.cache.ensure(KEY, made, {"severity": "low"})
    with pytest.raises(InvalidValue):
        store.outputs.cache.find(CacheKey("audit", "review", object()), made)
    for ttl in (timedelta(0), timedelta.max):
        with pytest.raises(InvalidValue, match="ttl"):
            store.outputs.cache.ensure(KEY, made, {"summary": "x"}, ttl=ttl)


def test_entries_are_listed_without_their_content_and_cleared(store: StateStore, frozen_clock: FrozenClock) -> None:
    """outputs H-5: newest first; a condition is needed."""
    made = store.outputs.define("analysis", Analysis)
    for i, node in enumerate(["a", "b", "c"]):
        frozen_clock.advance(timedelta(seconds=1))
        ttl = timedelta(seconds=1) if node == "c" else None
        store.outputs.cache.ensure(CacheKey("audit", node, i), made, {"summary": "x"}, ttl=ttl)
    assert [one.node_id for one in store.outputs.cache.list(workflow_name="audit").items] == ["c", "b", "a"]
    assert [one.node_id for one in store.outputs.cache.list(output_key="analysis", node_id="a").items] == ["a"]
    assert not hasattr(store.outputs.cache.list().items[0], "payload")
    with pytest.raises(InvalidValue):
        store.outputs.cache.clear()
    frozen_clock.advance(timedelta(seconds=1))
    assert store.outputs.cache.clear(which="expired") == 1
    assert store.outputs.cache.clear(workflow_name="audit", node_id="a") == 1
    assert [one.node_id for one in store.outputs.cache.list().items] == ["b"]


def test_no_run_is_needed_for_an_entry(store: StateStore) -> None:
    """outputs O-2: the source is a note, which outlives its run."""
    made = store.outputs.define("notes", list[str])
    assert a_run(store)
    assert store.outputs.cache.ensure(KEY, made, ["a"], source_run_id="gone").source_run_id == "gone"


CHOICES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "a workflow": ({"workflow_name": "w-1"}, {"w-1 n-1 old", "w-1 n-1 new", "w-1 n-1 for ever", "w-1 n-2 new"}),
    "a node": ({"node_id": "n-1"}, {"w-1 n-1 old", "w-1 n-1 new", "w-1 n-1 for ever", "w-2 n-1 old", "w-2 n-1 new"}),
    "both": ({"workflow_name": "w-2", "node_id": "n-1"}, {"w-2 n-1 old", "w-2 n-1 new"}),
    "expired": ({"which": "expired"}, {"w-1 n-1 old", "w-2 n-1 old"}),
    "expired of a workflow": ({"which": "expired", "workflow_name": "w-1"}, {"w-1 n-1 old"}),
    "expired of a node": ({"which": "expired", "node_id": "n-2"}, set()),
    "all three": ({"which": "expired", "workflow_name": "w-2", "node_id": "n-1"}, {"w-2 n-1 old"}),
}


@with_each("choice", CHOICES)
def test_what_was_not_chosen_is_not_cleared(
    store: StateStore, database: Database, frozen_clock: FrozenClock, choice: str
) -> None:
    """outputs H-5: entries of other workflows and nodes, and those that have not expired or never do."""
    given, cleared = CHOICES[choice]
    made = store.outputs.define("analysis", Analysis)
    database.raw().execute("DELETE FROM output_cache")
    lives = {"old": timedelta(minutes=1), "new": timedelta(hours=1), "ever": None}
    names = ["w-1 n-1 old", "w-1 n-1 new", "w-1 n-1 for ever", "w-1 n-2 new", "w-2 n-1 old", "w-2 n-1 new"]
    keys = {name: CacheKey(name.split()[0], name.split()[1], name) for name in names}
    for name, key in keys.items():
        store.outputs.cache.ensure(key, made, {"summary": name}, ttl=lives[name.split()[-1]])
    frozen_clock.advance(timedelta(minutes=2))

    def hits() -> set[str]:
        found = {name: store.outputs.cache.find(key, made) for name, key in keys.items()}
        assert all(hit is None or hit.data["summary"] == name for name, hit in found.items())
        return {name for name, hit in found.items() if hit is not None}

    valid = {name for name in names if not name.endswith("old")}
    assert hits() == valid
    assert store.outputs.cache.clear(**given) == len(cleared)
    assert hits() == valid - cleared
    assert len(store.outputs.cache.list().items) == len(names) - len(cleared)
