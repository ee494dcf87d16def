"""The one strict way from what a model has accepted to JSON."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, create_model, field_serializer
from support.each import with_each

from lastlight_state.errors import InvalidValue
from lastlight_state.outputs import CacheKey
from lastlight_state.store import StateStore

NAN, INFINITY = float("nan"), float("-inf")
CHANGED: list[tuple[Any, str]] = [
    (NAN, "NaN or infinity"),
    ([INFINITY], "NaN or infinity"),
    ({"a": [1, {"b": NAN}]}, "NaN or infinity"),
    (deque([NAN]), "NaN or infinity"),
    ({1.5, INFINITY}, "NaN or infinity"),
    (b"bytes", "bytes is not a JSON type"),
    ({"a": (1, bytearray(b"x"))}, "bytearray is not a JSON type"),
    ({1: "a", "1": "b"}, "two keys are written as one text"),
    ("half \ud83d", "surrogate"),
    ({"\ud83d": 1}, "surrogate"),
    (datetime(2026, 2, 3, tzinfo=UTC), "datetime is not a JSON type, and would come back as text"),
    ([{"a": date(2026, 2, 3)}], "date is not a JSON type"),
    (Decimal("19.90"), "Decimal is not a JSON type"),
    ({"a": (UUID(int=1),)}, "UUID is not a JSON type"),
    (Path("x"), "is not a JSON type"),
    ({1: "a"}, "a key of type int would come back as text"),
    ({1, 2}, "set is not a JSON type, and would come back as a list"),
    ([frozenset("ab")], "frozenset is not a JSON type"),
    (deque([1]), "deque is not a JSON type"),
    ((one for one in (1, 2)), "is not a JSON type, and would come back as a list"),
    ({"a": map(str, (1, 2))}, "is not a JSON type, and would come back as a list"),
]
#: Types that say nothing of what they hold, each with what makes a value of the type of any value.
OPEN: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "a field of Any": (create_model("OfAny", v=(Any, ...)), lambda value: {"v": value}),
    "a field of a list": (create_model("OfList", v=(list[Any], ...)), lambda value: {"v": [value]}),
    "a field of a dict": (create_model("OfDict", v=(dict[str, Any], ...)), lambda value: {"v": {"in": value}}),
    "a dict": (dict, lambda value: {"in": value}),
    "a payload": (create_model("Payload", payload=(Any, ...)), lambda value: value),
}


@with_each(("value", "problem"), CHANGED, ids=[f"{n}" for n in range(len(CHANGED))])
def test_a_value_that_pydantic_would_write_as_another_is_refused(
    every_backend: StateStore, run_id: str, value: Any, problem: str
) -> None:
    """outputs R-12: in outputs and the cache."""
    for name, (model, holding) in OPEN.items():
        made = every_backend.outputs.define(name.replace(" ", "_"), model)
        key = CacheKey("w", "n", name)
        with pytest.raises(InvalidValue, match=problem):
            every_backend.outputs.results.put(made, run_id, "n", holding(value))
        with pytest.raises(InvalidValue, match=problem):
            every_backend.outputs.cache.ensure(key, made, holding(value))
        assert every_backend.outputs.results.find(made, run_id, "n") is None
        assert every_backend.outputs.cache.find(key, made) is None


@with_each(("value", "problem"), CHANGED, ids=[f"{n}" for n in range(len(CHANGED))])
def test_an_input_with_a_model_is_as_strict(every_backend: StateStore, run_id: str, value: Any, problem: str) -> None:
    """outputs R-12."""
    model = OPEN["a field of Any"][0]
    with pytest.raises(InvalidValue, match=problem) as refused:
        every_backend.outputs.inputs.ensure(run_id, {"v": value}, model=model)
    assert refused.value.where.startswith("payload")
    assert every_backend.outputs.inputs.find(run_id) is None


@dataclass
class Point:
    x: int = 0


class Wide(BaseModel):
    x: int = 0


def test_an_input_without_a_model_takes_json_values_alone(store: StateStore, run_id: str) -> None:
    """outputs R-12: as events, contexts, messages and all others do; with the model the instance is stored."""
    for payload in ({"p": Point()}, {"p": [Wide()]}, Point(), Wide()):
        with pytest.raises(InvalidValue, match=r"Point|Wide"):
            store.outputs.inputs.ensure(run_id, payload)
        with pytest.raises(InvalidValue, match=r"Point|Wide"):
            store.journal.events.append(run_id, "e", {"p": payload})
    assert store.outputs.inputs.find(run_id) is None
    assert store.outputs.inputs.ensure(run_id, Wide(x=3), model=Wide).payload == {"x": 3}


def test_a_serializer_of_the_models_own_may_say_what_a_number_is_in_json(store: StateStore, run_id: str) -> None:
    """outputs R-12: what it writes is no loss."""

    class Named(BaseModel):
        v: Any

        @field_serializer("v", when_used="json")
        def named(self, value: Any) -> Any:
            return {"number": str(value)}

    made = store.outputs.define("named", Named)
    assert store.outputs.results.put(made, run_id, "n", {"v": NAN}).data == {"v": {"number": "nan"}}


class Listed(BaseModel):
    names: list[str] = Field(alias="Names")
    deeper: dict[str, list[tuple[int, ...]]] = {}
    sets: set[int] = set()


@with_each("value", [{"names": {"a", "b"}}, {"Names": frozenset("ab")}, {"names": [], "deeper": {"in": [{1, 2}]}}])
def test_a_set_in_place_of_a_list_is_refused(store: StateStore, run_id: str, value: Any) -> None:
    """outputs R-12: its members come in another order in each process, so equal values would be two revisions."""
    made = store.outputs.define("listed", Listed)
    with pytest.raises(InvalidValue, match=r"expected a list, got a (frozen)?set"):
        store.outputs.results.put(made, run_id, "n", value)
    with pytest.raises(InvalidValue, match=r"expected a list, got a (frozen)?set"):
        store.outputs.inputs.ensure(run_id, value, model=Listed)
    assert store.outputs.results.put(made, run_id, "n", {"names": ["a"], "sets": {2, 1}}).value.sets == {1, 2}


class Typed(BaseModel):
    when: dict[str, list[datetime]]
    amounts: dict[int, Decimal]
    ids: list[UUID]
    any: Any = None


def test_what_a_type_reads_back_as_it_was_is_accepted(every_backend: StateStore, run_id: str) -> None:
    """outputs R-12: times, decimals and keys of numbers, wherever types say so, beside values of any type."""
    made = every_backend.outputs.define("typed", Typed)
    at, one = datetime(2026, 2, 3, tzinfo=UTC), UUID(int=1)
    value = Typed(when={"a": [at]}, amounts={1: Decimal("19.90")}, ids=[one], any=["2026-02-03"])
    assert every_backend.outputs.results.put(made, run_id, "n", value).value == value
    assert every_backend.outputs.results.get(made, run_id, "n").value == value
    with pytest.raises(InvalidValue, match=r"value\.any\[0\]: datetime is not a JSON type"):
        every_backend.outputs.results.put(made, run_id, "m", value.model_copy(update={"any": [at]}))


@pytest.mark.parametrize("number", [5.804845584211806e16, -(2.0**60), 0.5])
def test_a_large_whole_float_is_the_same_number_in_the_cache_and_the_history(
    every_backend: StateStore, run_id: str, number: float
) -> None:
    """outputs R-12: Postgres would give back its shortest digits as an integer, which is another number."""
    made = every_backend.outputs.define("floats", dict)
    key = CacheKey("w", "n", "floats")
    every_backend.outputs.cache.ensure(key, made, {"v": number})
    found = every_backend.outputs.cache.find(key, made)
    every_backend.outputs.results.put(made, run_id, "n", {"v": number})
    every_backend.outputs.results.put(made, run_id, "n", {"v": 1})
    [old] = every_backend.outputs.results.history(made, run_id, "n").items
    assert found is not None
    assert (found.data, old.value) == ({"v": number}, {"v": number})
