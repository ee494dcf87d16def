"""What a column holds at its bounds, and what is refused before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import create_model

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue

ANYTHING: Any = Any


def test_an_error_lists_at_most_five_problems_and_carries_all(store: StateStore, run_id: str) -> None:
    """outputs R-1."""
    model: Any = create_model("Seven", **{f"f{i}": (int, ...) for i in range(7)})  # type: ignore[call-overload]
    with pytest.raises(InvalidValue) as refusal:
        store.outputs.results.put(store.outputs.define("seven", model), run_id, "n", {})
    assert str(refusal.value).count("Field required") == 5
    assert len(refusal.value.issues) == 7  # type: ignore[attr-defined]


def test_a_json_column_without_a_value_is_null(store: StateStore, run_id: str) -> None:
    """outputs T-3: for SQL, too; JSON has a null of its own."""
    model: Any = create_model("Facts", facts=(dict[str, int] | None, None))
    store.outputs.results.put(store.outputs.define("facts", model), run_id, "n", {})
    assert store.outputs.query.rows("SELECT count(*) FROM facts WHERE facts IS NULL").rows == ((1,),)
    assert store.outputs.results.get("facts", run_id, "n").data == {"facts": None}


def test_what_holds_itself_is_refused(store: StateStore, run_id: str) -> None:
    """outputs R-1: so is what JSON cannot say."""
    made = store.outputs.define("anything", list[ANYTHING])
    endless: list[Any] = []
    endless.append(endless)
    for value, problem in ((endless, "contain a cycle"), ([object()], "cannot be written as JSON")):
        with pytest.raises(InvalidValue, match=problem):
            store.outputs.results.put(made, run_id, "n", value)
    assert store.outputs.results.find(made, run_id, "n") is None


def test_a_number_may_be_as_great_as_its_column_holds(store: StateStore, run_id: str) -> None:
    """outputs T-2: the smallest integer, a thousand digits of a decimal, and one more is refused."""
    model: Any = create_model("Numbers", whole=(int, ...), exact=(Decimal, ...))
    made = store.outputs.define("numbers", model)
    for exact in (Decimal("9" * 1000), Decimal("1E-999")):
        value = {"whole": -(2**63), "exact": exact}
        store.outputs.results.put(made, run_id, "n", value)
        assert store.outputs.results.get(made, run_id, "n").data == value
    for where, wrong in (("whole", {"whole": -(2**63) - 1, "exact": 1}), ("exact", {"whole": 1, "exact": "1E-1000"})):
        with pytest.raises(InvalidValue) as refusal:
            store.outputs.results.put(made, run_id, "n", wrong)
        assert refusal.value.where == f"value.{where}"


@dataclass
class Point:
    x: int = 0


def test_a_problem_of_the_whole_value_is_placed_there(store: StateStore, run_id: str) -> None:
    """outputs R-1: and one inside it by its path; a class is no instance of itself."""
    made = store.outputs.define("numbers", list[int])
    for value, where in (("x", "value"), ([1, "x"], "value.1")):
        with pytest.raises(InvalidValue) as refusal:
            store.outputs.results.put(made, run_id, "n", value)
        assert refusal.value.where == where
    with pytest.raises(InvalidValue, match="cannot be written as JSON"):
        store.outputs.results.put(store.outputs.define("anything", ANYTHING), run_id, "n", Point)
