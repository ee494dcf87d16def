from __future__ import annotations

import pickle
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model, model_serializer
from support.each import with_each
from support.outputs.shapes import Analysis, Flags, Grown, a_run, no_time
from support.workflows.claim_steps import abandoned
from support.workflows.steps import all_pages, together, undone

from lastlight_state import StateStore
from lastlight_state.errors import (
    ClaimLost,
    CorruptData,
    InvalidValue,
    LostRace,
    MisuseError,
    NotFound,
    PayloadTooLarge,
)
from lastlight_state.outputs.results import _ATTEMPTS
from lastlight_state.testing import Database, FrozenClock, racing


class Inner(BaseModel):
    x: int


ANYTHING: Any = Any
EACH_TYPE = [
    ("text", str, "Grüße \u2028 \U0001f600"),
    ("integer", int, 2**63 - 1),
    ("real", float, 3.14),
    ("real", float, 3),
    ("boolean", bool, True),
    ("decimal", Decimal, Decimal("1.10")),
    ("decimal", Decimal, Decimal("123456789012345678901234567890.12")),
    ("timestamp", datetime, datetime(2026, 2, 3, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))),
    ("json", dict[str, Any], {"b": [1, 2.5, None], "a": {"c": "x"}}),
    ("json", list[Inner], [{"x": 1}]),
]


@with_each("key, token, annotation, value", [(f"each_{n}", *each) for n, each in enumerate(EACH_TYPE)])
def test_each_type_comes_back_as_it_was_stored(
    store: StateStore, key: str, token: str, annotation: Any, value: Any
) -> None:
    """outputs T-2, T-6: None too."""
    run_id = a_run(store)
    model: Any = create_model("M", it=(annotation | None, None))
    made = store.outputs.define(key, model)
    assert {column.name: column.type for column in made.columns}["it"] == token
    put = store.outputs.results.put(made, run_id, "n", {"it": value})
    got = store.outputs.results.get(made, run_id, "n")
    assert put == got
    if token == "timestamp":
        value = datetime(2026, 2, 3, 10, 0, 0, 123000, tzinfo=UTC)
    assert got.data["it"] == value
    if token in ("real", "decimal"):
        assert str(got.data["it"]) == str(value if token == "decimal" else float(value))
    assert store.outputs.results.put(made, run_id, "none", {"it": None}).value == model(it=None)


def test_a_json_text_that_looks_like_a_number_stays_as_it_is(store: StateStore, run_id: str) -> None:
    """outputs T-1."""
    made = store.outputs.define("notes", ANYTHING)
    store.outputs.results.put(made, run_id, "n", 12.0)
    assert isinstance(store.outputs.results.get(made, run_id, "n").data, float)


@with_each(
    "key, annotation, value",
    [
        ("integer", int, 2**63),
        ("not_a_number", float, float("nan")),
        ("infinity", float, float("inf")),
        ("decimal", Decimal, Decimal("1e5000")),
        ("null_byte", str, "a\0b"),
        ("surrogate", str, "\ud800"),
        ("naive_time", datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - that it is naive is the point
        ("list", list[float], [1.0, float("nan")]),
        ("object", dict[str, Any], {"a": ["b\0"]}),
    ],
)
def test_what_no_database_can_hold_is_refused_by_path(
    store: StateStore, run_id: str, key: str, annotation: Any, value: Any
) -> None:
    """outputs T-2: no row."""
    made = store.outputs.define(key, create_model("M", it=(annotation, ...)))
    with pytest.raises(InvalidValue) as refusal:
        store.outputs.results.put(made, run_id, "n", {"it": value})
    assert refusal.value.where.startswith("value.it")
    assert store.outputs.results.count(made) == 0


def test_truth_values_are_truth_values_and_null_is_none(database: Database) -> None:
    """outputs T-3: an integer that is 1 stays 1."""
    typed, untyped = database.open(migrate=True), database.open()
    run_id = a_run(typed)
    made = typed.outputs.define("flags", Flags)
    typed.outputs.results.put(made, run_id, "n", Flags(yes=True, no=False))
    for store in (typed, untyped):
        for found in (store.outputs.results.get("flags", run_id, "n"), *store.outputs.results.load("flags", run_id)):
            data = found.data
            assert data["yes"] is True
            assert data["no"] is False
            assert data["unknown"] is None
            assert type(data["count"]) is int


def test_what_the_model_refuses_is_listed_and_not_written(store: StateStore, run_id: str) -> None:
    """outputs R-1, O-5: paths and codes, and no values."""

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        summary: str
        severity: Literal["low"]

    made = store.outputs.define("strict", Strict)
    with pytest.raises(InvalidValue) as refusal:
        store.outputs.results.put(made, run_id, "n", {"severity": "secret", "more": 1})
    issues = refusal.value.issues  # type: ignore[attr-defined]
    assert [(issue.path, issue.code) for issue in issues] == [
        ("summary", "missing"),
        ("severity", "literal_error"),
        ("more", "extra_forbidden"),
    ]
    assert "secret" not in str(refusal.value)
    with pytest.raises(InvalidValue, match="mapping"):
        store.outputs.results.put(made, run_id, "n", "text")
    assert store.outputs.results.count(made) == 0


def test_an_instance_is_not_trusted(store: StateStore, run_id: str) -> None:
    """outputs R-1: made without validation, or changed afterwards, also inside."""

    class Outer(BaseModel):
        inner: Inner

    analysis, outer = store.outputs.define("analysis", Analysis), store.outputs.define("outer", Outer)
    construct: Any = Analysis.model_construct
    incomplete, changed = construct(severity="low"), Outer(inner=Inner(x=1))
    changed.inner.x = "wrong"  # type: ignore[assignment]
    with pytest.raises(InvalidValue):
        store.outputs.results.put(analysis, run_id, "n", incomplete)
    with pytest.raises(InvalidValue):
        store.outputs.results.put(outer, run_id, "n", changed)


def test_dataclasses_and_other_collections_are_not_trusted_either(store: StateStore, run_id: str) -> None:
    """outputs R-1: nothing that a value holds is."""

    @dataclass
    class Note:
        text: str

    class Holder(BaseModel):
        note: Note = Note("x")
        several: dict[str, Inner] = {}
        listed: list[Inner] = []

    made, wrong = store.outputs.define("holder", Holder), Inner.model_construct(x="wrong")  # type: ignore[arg-type]
    assert store.outputs.results.put(made, run_id, "n", {"note": Note("fine")}).data["note"] == {"text": "fine"}
    for value in ({"note": Note(3)}, {"several": OrderedDict(a=wrong)}, {"listed": deque([wrong])}):  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            store.outputs.results.put(made, run_id, "n", value)


def test_models_of_one_value_are_stored_as_that_value(store: StateStore, run_id: str) -> None:
    """outputs R-1: as instances and as data, and neither is trusted."""

    class Scores(RootModel[list[int]]):
        pass

    class Card(BaseModel):
        scores: Scores

    made, wrong = store.outputs.define("card", Card), Scores.model_construct(["wrong"])  # type: ignore[list-item]
    for given in (Card(scores=Scores([1, 2])), {"scores": Scores([1, 2])}, {"scores": [1, 2]}):
        assert store.outputs.results.put(made, run_id, "n", given).data["scores"] == [1, 2]
    with pytest.raises(InvalidValue):
        store.outputs.results.put(made, run_id, "n", {"scores": wrong})


def test_an_instance_whose_aliases_are_other_fields_names_keeps_its_values(store: StateStore, run_id: str) -> None:
    """outputs T-5, R-1: an instance is read by field names alone."""

    class Swapped(BaseModel):
        a: int = Field(alias="b")
        b: int = Field(alias="a")

    made, value = store.outputs.define("swapped", Swapped), Swapped.model_validate({"b": 1, "a": 2})
    assert store.outputs.results.put(made, run_id, "n", value).data == {"a": 1, "b": 2}
    assert store.outputs.results.get(made, run_id, "n").value == value


def test_equal_sets_are_equal_whatever_order_they_have(store: StateStore, run_id: str) -> None:
    """outputs R-2, T-2."""
    made = store.outputs.define("sets", create_model("Sets", it=(dict[str, set[int]], ...)))
    first = store.outputs.results.put(made, run_id, "n", {"it": {"a": {0, 8}}})
    assert store.outputs.results.put(made, run_id, "n", {"it": {"a": {8, 0}}}) == first
    assert not store.outputs.results.history(made, run_id, "n").items


def test_a_set_of_numbers_that_json_does_not_hold_is_refused(store: StateStore, run_id: str) -> None:
    """outputs R-1, T-2: when its members have been put in order."""
    made = store.outputs.define("sets", create_model("Sets", it=(set[int], ...)))
    with pytest.raises(InvalidValue, match="integer beyond 64 bits"):
        store.outputs.results.put(made, run_id, "n", {"it": {1, 2**70}})


def test_a_serializer_that_leaves_a_field_out_is_refused(store: StateStore, run_id: str) -> None:
    """outputs R-1: nothing is written."""

    class Renamed(BaseModel):
        x: int

        @model_serializer
        def renamed(self) -> dict[str, int]:
            return {"y": self.x}

    class Sometimes(BaseModel):
        x: int

        @model_serializer
        def without_one(self) -> dict[str, int]:
            return {} if self.x == 1 else {"x": self.x}

    for key, model in (("renamed", Renamed), ("sometimes", Sometimes)):
        made = store.outputs.define(key, model)
        with pytest.raises(InvalidValue) as refusal:
            store.outputs.results.put(made, run_id, "n", {"x": 1})
        assert refusal.value.where == "value.x"
        assert store.outputs.results.count(made) == 0


def test_a_column_added_while_a_row_is_replaced_is_kept_and_replaced_too(database: Database) -> None:
    """outputs R-2, M-10: the older process looks at the registry while it holds the row."""
    old, new = database.open(migrate=True), database.open(migrate=True)
    run_id, narrow = a_run(old), old.outputs.define("analysis", Analysis)
    old.outputs.results.put(narrow, run_id, "n", {"summary": "first"})

    def grow() -> None:
        new.outputs.results.put(new.outputs.define("analysis", Grown), run_id, "n", {"summary": "new", "score": 3})

    with racing(old) as race:
        if database.name == "sqlite":  # whose one writing unit nobody can come between
            race.before_unit(2, grow)
        else:
            race.before("SELECT analysis.", grow)
        old.outputs.results.put(narrow, run_id, "n", {"summary": "second"})
    assert race.left == 0
    found = new.outputs.results.get("analysis", run_id, "n").data
    assert found == {"summary": "second", "severity": "low", "score": None}
    kept = [one.value for one in new.outputs.results.history("analysis", run_id, "n").items]
    assert kept[0]["score"] == 3


def test_a_row_that_comes_and_goes_beside_every_try_is_a_lost_race(database: Database) -> None:
    """outputs R-1: each insert meets it, and each replacement misses it."""
    store, rival = database.open(migrate=True), database.open(migrate=True)
    run_id, made = a_run(store), store.outputs.define("analysis", Analysis)
    theirs = rival.outputs.define("analysis", Analysis)
    with racing(store) as race:
        for number in range(1, 2 * _ATTEMPTS, 2):
            race.before_unit(number, lambda: rival.outputs.results.put(theirs, run_id, "n", {"summary": "theirs"}))
            race.before_unit(number + 1, lambda: rival.outputs.results.withdraw(theirs, run_id, "n", reason="x"))
        with pytest.raises(LostRace, match="withdrawn"):
            store.outputs.results.put(made, run_id, "n", {"summary": "ours"})
    assert race.left == 0
    assert store.outputs.results.find(made, run_id, "n") is None


def test_bookkeeping_in_a_value_changes_nothing(store: StateStore, run_id: str) -> None:
    """outputs R-1."""
    made = store.outputs.define("analysis", Analysis)
    found = store.outputs.results.put(made, run_id, "n", {"summary": "x", "run_id": "evil", "iteration": 7})
    assert (found.run_id, found.iteration, set(found.data)) == (run_id, 0, {"summary", "severity"})


def test_an_unknown_run_is_not_found_and_nothing_is_written(store: StateStore) -> None:
    """outputs O-2."""
    made = store.outputs.define("analysis", Analysis)
    with pytest.raises(NotFound) as refusal:
        store.outputs.results.put(made, "nobody", "n", {"summary": "x"})
    assert (refusal.value.kind, refusal.value.key) == ("workflow_run", "nobody")
    assert store.outputs.results.count(made) == 0


def test_a_rewritten_row_is_whole_and_the_old_one_is_history(
    store: StateStore, run_id: str, frozen_clock: FrozenClock
) -> None:
    """outputs R-2, R-6: a field left out takes its default."""
    made = store.outputs.define("analysis", Analysis)
    first = store.outputs.results.put(made, run_id, "n", {"summary": "a", "severity": "high"})
    frozen_clock.advance(timedelta(seconds=1))
    second = store.outputs.results.put(made, run_id, "n", {"summary": "a"})
    assert second.data == {"summary": "a", "severity": "low"}
    assert (second.created_at, second.updated_at) == (first.created_at, frozen_clock.now())
    [old] = store.outputs.results.history(made, run_id, "n").items
    assert (old.value, old.cause, old.revision) == ({"summary": "a", "severity": "high"}, "replaced", 0)
    assert (old.written_at, old.removed_at) == (first.updated_at, second.updated_at)


def test_the_same_value_again_changes_nothing(store: StateStore, run_id: str, frozen_clock: FrozenClock) -> None:
    """outputs R-2."""
    made = store.outputs.define("analysis", Analysis)
    first = store.outputs.results.put(made, run_id, "n", {"summary": "a"})
    frozen_clock.advance(timedelta(seconds=1))
    assert store.outputs.results.put(made, run_id, "n", Analysis(summary="a")) == first
    assert not store.outputs.results.history(made, run_id, "n").items


def test_iterations_and_nodes_have_rows_of_their_own(store: StateStore, run_id: str) -> None:
    """outputs D-11, R-3: the latest is the highest number."""
    made = store.outputs.define("analysis", Analysis)
    for iteration in (0, 2, 10):
        store.outputs.results.put(made, run_id, "loop", {"summary": str(iteration)}, iteration=iteration)
    store.outputs.results.put(made, run_id, "other", {"summary": "other"})
    store.outputs.results.put(made, run_id, "loop", {"summary": "again"}, iteration=2)
    texts = [(row.node_id, row.iteration, row.data["summary"]) for row in store.outputs.results.load(made, run_id)]
    assert texts == [("loop", 0, "0"), ("loop", 2, "again"), ("loop", 10, "10"), ("other", 0, "other")]
    latest = store.outputs.results.find_latest(made, run_id, "loop")
    assert latest is not None
    assert latest.iteration == 10


def test_racing_writers_leave_one_row_and_the_others_as_history(every_backend: StateStore) -> None:
    """outputs R-2, R-7: numbered without a gap."""
    run_id, results = a_run(every_backend), every_backend.outputs.results
    made = every_backend.outputs.define("analysis", Analysis)
    done = together([lambda i=i: results.put(made, run_id, "n", {"summary": str(i)}) for i in range(20)])  # type: ignore[misc]
    assert not [one for one in done if isinstance(one, BaseException)]
    current = results.get(made, run_id, "n").data["summary"]
    old = all_pages(results.history, target=made, run_id=run_id, node_id="n", limit=7)
    assert [one.revision for one in reversed(old)] == list(range(19))
    assert {one.value["summary"] for one in old} | {current} == {str(i) for i in range(20)}


def test_what_is_rolled_back_was_never_written(every_backend: StateStore) -> None:
    """outputs R-7."""
    run_id, results = a_run(every_backend), every_backend.outputs.results
    made = every_backend.outputs.define("analysis", Analysis)
    results.put(made, run_id, "n", {"summary": "kept"})
    with undone(every_backend) as tx:
        tx.outputs.results.put(made, run_id, "n", {"summary": "lost"})
        tx.outputs.results.put(made, run_id, "m", {"summary": "lost"})
        assert tx.outputs.results.count(made) == 2
    assert results.get(made, run_id, "n").data["summary"] == "kept"
    assert (results.count(made), len(results.history(made, run_id, "n"))) == (1, 0)


def test_a_holder_that_lost_its_claim_writes_no_output(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """outputs O-4: the check and the write are one transaction."""
    old = abandoned(every_backend, frozen_clock)
    new = every_backend.workflows.claims.take(old.run_id, owner="b")
    made = every_backend.outputs.define("analysis", Analysis)
    with pytest.raises(ClaimLost), every_backend.transaction(claim=old) as tx:
        tx.outputs.results.put(made, old.run_id, "n", {"summary": "late"})
    assert every_backend.outputs.results.count(made) == 0
    with every_backend.transaction(claim=new) as tx:
        tx.outputs.results.put(made, old.run_id, "n", {"summary": "held"})
    assert every_backend.outputs.results.count(made) == 1


def test_a_withdrawn_row_is_gone_and_kept(store: StateStore, run_id: str) -> None:
    """outputs R-5: the next one is fresh."""
    made = store.outputs.define("analysis", Analysis)
    store.outputs.results.put(made, run_id, "n", {"summary": "first"})
    assert store.outputs.results.withdraw(made, run_id, "n", reason="reset").data["summary"] == "first"
    with pytest.raises(NotFound):
        store.outputs.results.get(made, run_id, "n")
    with pytest.raises(NotFound):
        store.outputs.results.withdraw(made, run_id, "n", reason="reset")
    store.outputs.results.put(made, run_id, "n", {"summary": "second"})
    store.outputs.results.put(made, run_id, "n", {"summary": "third"})
    found = store.outputs.results.history(made, run_id, "n").items
    assert [(one.revision, one.cause, one.reason) for one in found] == [
        (1, "replaced", None),
        (0, "withdrawn", "reset"),
    ]


def test_ids_come_in_the_order_of_code_points_on_both_databases(store: StateStore, run_id: str) -> None:
    """outputs R-4: page after page."""
    made = store.outputs.define("analysis", Analysis)
    nodes = ["a", "B", "ä", "Z", "é", "a-b", "a_b", "ab", "\uffff", "\U0001f600"]
    for node in nodes:
        store.outputs.results.put(made, run_id, node, {"summary": node})
    found = all_pages(store.outputs.results.load, target=made, run_id=run_id, limit=3)
    assert [one.node_id for one in found] == sorted(nodes)


def test_lists_are_newest_first_and_have_filters(store: StateStore, run_id: str, frozen_clock: FrozenClock) -> None:
    """outputs R-4: without the content."""
    made, other = store.outputs.define("analysis", Analysis), a_run(store)
    for i in range(5):
        frozen_clock.advance(timedelta(seconds=1))
        store.outputs.results.put(made, run_id if i % 2 else other, f"n{i}", {"summary": "x"})
    found = all_pages(store.outputs.results.list, target=made, limit=2)
    assert [one.node_id for one in found] == ["n4", "n3", "n2", "n1", "n0"]
    assert not hasattr(found[0], "data")
    assert [one.node_id for one in store.outputs.results.list(made, run_id=run_id).items] == ["n3", "n1"]
    assert store.outputs.results.count(made, run_id=run_id, node_id="n1") == 1


@with_each("value", [{"a": 1}, [1, [2]], "text", {"payload": 1}, None, True, 7])
def test_a_payload_is_stored_whole(store: StateStore, run_id: str, value: Any) -> None:
    """outputs P-2."""
    made = store.outputs.define("notes", ANYTHING)
    assert store.outputs.results.put(made, run_id, "n", value).data == value
    assert store.outputs.results.get(made, run_id, "n").data == value
    assert store.outputs.results.get(made, run_id, "n").value == value


def test_an_instance_of_a_payload_model_is_unwrapped(store: StateStore, run_id: str) -> None:
    """outputs P-2: a mapping is taken whole, and validated by the payload's own type."""

    class Free(BaseModel):
        payload: dict[str, int]

    made = store.outputs.define("free", Free)
    assert store.outputs.results.put(made, run_id, "n", Free(payload={"a": 1})).data == {"a": 1}
    found = store.outputs.results.put(made, run_id, "m", {"payload": 1})
    assert (found.data, found.value) == ({"payload": 1}, Free(payload={"payload": 1}))
    with pytest.raises(InvalidValue):
        store.outputs.results.put(made, run_id, "n", {"payload": "x"})


def test_aliases_are_for_callers_and_never_stored(store: StateStore, run_id: str) -> None:
    """outputs T-5."""

    class Aliased(BaseModel):
        summary: str = Field(alias="theSummary")

    made = store.outputs.define("aliased", Aliased)
    for node, value in (("a", {"theSummary": "x"}), ("b", {"summary": "x"})):
        found = store.outputs.results.put(made, run_id, node, value)
        assert found.data == {"summary": "x"}
        assert found.value.summary == "x"


def test_a_row_has_a_limit_that_names_the_largest_field(store: StateStore, run_id: str) -> None:
    """outputs O-3."""

    class Two(BaseModel):
        small: str = ""
        large: str

    made = store.outputs.define("two", Two, max_bytes=1000)
    around = len('{"small":"","large":""}')
    store.outputs.results.put(made, run_id, "n", {"large": "x" * (1000 - around)})
    with pytest.raises(PayloadTooLarge) as refusal:
        store.outputs.results.put(made, run_id, "m", {"large": "x" * (1001 - around)})
    assert (refusal.value.where, refusal.value.limit, refusal.value.actual) == ("value.large", 1000, 1001)


def test_a_damaged_value_is_named_where_it_is_needed(fresh_database: Database) -> None:
    """outputs O-6: lists and counts go on."""
    if fresh_database.name != "sqlite":
        return  # Postgres stores nothing that it could not read
    store = fresh_database.open()
    run_id = a_run(store)
    made = store.outputs.define("notes", list[str])
    store.outputs.results.put(made, run_id, "n", ["x"])
    fresh_database.raw().execute("UPDATE notes SET payload = '{'")
    with pytest.raises(CorruptData) as refusal:
        store.outputs.results.get(made, run_id, "n")
    assert (refusal.value.table, refusal.value.key, refusal.value.column) == ("notes", (run_id, "n", 0), "payload")
    assert len(store.outputs.results.list(made)) == store.outputs.results.count(made) == 1


def test_an_amount_that_is_none_damages_its_row_alone(sqlite_database: Database) -> None:
    """outputs O-6: SQLite keeps amounts as text, and any other as well."""
    store = sqlite_database.open()
    run_id = a_run(store)
    made = store.outputs.define("prices", create_model("Prices", amount=(Decimal, ...)))
    results = store.outputs.results
    for iteration in (0, 1):
        results.put(made, run_id, "n", {"amount": "1.10"}, iteration=iteration)
    sqlite_database.raw().execute("UPDATE prices SET amount = 'many' WHERE iteration = 0")
    with pytest.raises(CorruptData) as refusal:
        results.get(made, run_id, "n", iteration=0)
    assert (refusal.value.key, refusal.value.column) == ((run_id, "n", 0), "amount")
    page = results.load(made, run_id)
    assert ([one.key for one in page.damaged], [one.iteration for one in page]) == ([(run_id, "n", 0)], [1])


def test_the_damaged_row_is_named_whoever_finds_it(fresh_database: Database) -> None:
    """outputs O-6: its latest one by its own iteration, and a snapshot by the same key."""
    store = fresh_database.open(migrate=True)
    run_id = a_run(store)
    made = store.outputs.define("prices", create_model("Prices", amount=(Decimal, ...)))
    results = store.outputs.results
    for iteration in (0, 3):
        results.put(made, run_id, "n", {"amount": "1.10"}, iteration=iteration)
    fresh_database.raw().execute(f"UPDATE prices SET row_created_at = {no_time(fresh_database)} WHERE iteration = 3")
    for call in (
        lambda: results.get(made, run_id, "n", iteration=3),
        lambda: results.find_latest(made, run_id, "n"),
        lambda: results.put(made, run_id, "n", {"amount": "2"}, iteration=3),
        lambda: store.outputs.snapshot.load(run_id),
    ):
        with pytest.raises(CorruptData) as refusal:
            call()
        named = refusal.value.table, refusal.value.key, refusal.value.column
        assert named == ("prices", (run_id, "n", 3), "row_created_at")
    assert [one.key for one in results.load(made, run_id).damaged] == [(run_id, "n", 3)]


def test_a_damaged_decimal_is_named_where_it_is_needed(sqlite_database: Database) -> None:
    """outputs O-6: only SQLite holds text in its column."""
    store = sqlite_database.open()
    run_id = a_run(store)
    made = store.outputs.define("prices", create_model("Price", amount=(Decimal, ...)))
    store.outputs.results.put(made, run_id, "n", {"amount": Decimal("1.10")})
    sqlite_database.raw().execute("UPDATE prices SET amount = 'much'")
    with pytest.raises(CorruptData) as refusal:
        store.outputs.results.get(made, run_id, "n")
    assert (refusal.value.table, refusal.value.key, refusal.value.column) == ("prices", (run_id, "n", 0), "amount")


def test_a_row_travels_to_another_process_without_its_model(store: StateStore, run_id: str) -> None:
    """outputs R-8: a pickled one has its data."""
    made = store.outputs.define("analysis", Analysis)
    found = store.outputs.results.put(made, run_id, "n", {"summary": "x"})
    arrived = pickle.loads(pickle.dumps(found))
    assert arrived.data == found.data
    with pytest.raises(MisuseError, match="no model"):
        _ = arrived.value
    assert found.value == Analysis(summary="x")


def test_a_call_is_about_the_row_of_its_run_node_and_iteration(store: StateStore, run_id: str) -> None:
    """outputs R-1: rows that differ in one of them stay, and each row has revisions of its own."""
    made, twin = (store.outputs.define(name, Analysis) for name in ("analysis", "twin"))
    other = a_run(store)
    places = [(made, run_id, "n", 0), (made, run_id, "n", 1), (made, run_id, "m", 0), (made, other, "n", 0)]
    places.append((twin, run_id, "n", 0))
    for text in ("first", "second"):
        for at, (table, run, node, iteration) in enumerate(places):
            store.outputs.results.put(table, run, node, {"summary": f"{text} {at}"}, iteration=iteration)

    def found() -> list[str | None]:
        rows = [store.outputs.results.find(table, run, node, iteration=turn) for table, run, node, turn in places]
        return [None if row is None else row.data["summary"] for row in rows]

    assert found() == [f"second {at}" for at in range(5)]
    store.outputs.results.put(made, run_id, "n", {"summary": "third"})
    assert found() == ["third", *(f"second {at}" for at in range(1, 5))]
    for at, (table, run, node, iteration) in enumerate(places):
        history = store.outputs.results.history(table, run, node, iteration=iteration).items
        assert [one.revision for one in history] == ([1, 0] if at == 0 else [0])
    store.outputs.results.withdraw(made, run_id, "n", reason="wrong")
    assert found() == [None, *(f"second {at}" for at in range(1, 5))]
    assert [row.data["summary"] for row in store.outputs.results.load(made, run_id).items] == ["second 2", "second 1"]
    latest = store.outputs.results.find_latest(made, run_id, "n")
    assert latest is not None
    assert latest.iteration == 1
    assert [store.outputs.results.count(made, run_id=run) for run in (run_id, other, None)] == [2, 1, 3]
