"""How the arguments of a call are compared with its annotations, and what is said of the first that does not fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, NamedTuple, NewType, TypeVar

import pytest
from support.each import with_each

from lastlight_state.db.gate import check_arguments, guard_arguments
from lastlight_state.errors import InvalidValue

Item = TypeVar("Item")
Key = NewType("Key", str)


@dataclass
class Point:
    x: int
    word: str | None = None


class Pair(NamedTuple):
    left: int
    right: str


def nested(what: Any, depth: int) -> list[Any]:
    return reduce(lambda inner, _: [inner], range(depth), what)


def lists_of(hint: Any, depth: int) -> Any:
    return reduce(lambda inner, _: list[inner], range(depth), hint)  # type: ignore[valid-type]


def taking(hint: Any) -> Callable[[Any], list[Any]]:
    """A checked function of one argument that is annotated so; it gives back what it got."""

    def call(given: Any) -> list[Any]:
        return [given]

    call.__annotations__ = {"given": hint, "return": list}
    return check_arguments(call)


FITS: list[tuple[Any, Any]] = [
    (str, "a"),
    (int, 5),
    (float, 5),
    (float, 2**1022 - 1),
    (bool, True),
    (None, None),
    (Any, object()),
    (list[Any], [object()]),
    (list[Item], [object()]),  # type: ignore[valid-type]
    (Key, 5),
    (list[None], [None]),
    (int | None, None),
    (int | str, "a"),
    (Literal["a", "b"], "c"),
    (Literal["a"] | None, None),
    (Point, Point(1)),
    (Pair, Pair(1, "a")),
    (dict, {5: object()}),
    (Mapping[str, int], {"a": 1}),
    (Sequence[str], "abc"),
    (Collection[int], ""),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (Callable[[], int], print),
    (lists_of(int, 21), nested("x", 21)),
]


@with_each(("hint", "value"), FITS, ids=[str(hint)[:60] for hint, _ in FITS])
def test_an_argument_that_fits_its_annotation_is_given_to_the_call(hint: Any, value: Any) -> None:
    """backends B-86: nothing is refused that the method could take."""
    [given] = taking(hint)(value)
    assert given is value


UNFIT: list[tuple[Any, Any, str]] = [
    (str, b"a", "given: expected text, got bytes"),
    (int, 1.0, "given: expected a whole number, got float"),
    (int, True, "given: expected a whole number, got bool"),
    (float, True, "given: expected a number, got bool"),
    (float, 2**1022, "given: expected a number, got int"),
    (bool, 1, "given: expected True or False, got int"),
    (None, 1, "given: expected None, got int"),
    (list[None], [5], "given[0]: expected None, got int"),
    (int | None, "a", "given: expected a whole number or None, got str"),
    (None | list[None], 5, "given: expected None or list, got int"),
    (list[int] | None, [1, "a"], "given[1]: expected a whole number, got str"),
    (Literal["a", "b"], 5, "given: expected a known word, got int"),
    (Literal["a"] | None, 5, "given: expected a known word or None, got int"),
    (Point, 5, "given: expected Point, got int"),
    (Point, Point("a"), "given.x: expected a whole number, got str"),  # type: ignore[arg-type]
    (Point, Point(1, 5), "given.word: expected text or None, got int"),  # type: ignore[arg-type]
    (Pair, Pair(1, 2), "given.right: expected text, got int"),  # type: ignore[arg-type]
    (Mapping[str, int], {"a": 1, "b": "c"}, "given.b: expected a whole number, got str"),
    (Mapping[str, int], {5: 1}, "given (a key): expected text, got int"),
    (Mapping[str, int], {"k" * 90: "c"}, f"given.{'k' * 80}: expected a whole number, got str"),
    (Mapping[str, int], [], "given: expected Mapping, got list"),
    (Collection[int], "abc", "given[0]: expected a whole number, got str"),
    (Sequence[str], b"abc", "given[0]: expected text, got int"),
    (tuple[int, ...], (1, "a"), "given[1]: expected a whole number, got str"),
    (tuple[int, str], (1, "a", 2), "given[1]: expected a whole number, got str"),
    (list[str], {5}, "given: expected list, got set"),
    (set[str], {5}, "given[0]: expected text, got int"),
    (tuple[int, str], (1, 2), "given[1]: expected text, got int"),
    (tuple[int, ...], (1, 2, "a"), "given[2]: expected a whole number, got str"),
    (Callable[[], int], 5, "given: expected Callable, got int"),
    (lists_of(int, 20), nested("x", 20), f"given{'[0]' * 20}: expected a whole number, got str"),
]


@with_each(("hint", "value", "problem"), UNFIT, ids=[problem[:60] for *_, problem in UNFIT])
def test_an_argument_that_does_not_fit_is_named_with_the_place_in_it(hint: Any, value: Any, problem: str) -> None:
    """backends B-86: by its name."""
    with pytest.raises(InvalidValue) as raised:
        taking(hint)(value)
    assert str(raised.value) == problem


def test_a_checked_call_with_an_unfit_argument_does_nothing() -> None:
    """backends B-86: nothing stored."""
    made: list[int] = []

    @check_arguments
    def call(amount: int) -> None:
        made.append(amount)

    with pytest.raises(InvalidValue):
        call("much")  # type: ignore[arg-type]
    assert made == []


@guard_arguments
def divide(number: int, by: int, *, error: type[Exception] | None = None) -> float:
    if error is not None:
        raise error("of its own")
    return number / by


def test_a_guarded_call_looks_at_its_arguments_when_it_failed() -> None:
    """backends B-86: only `StateError`, whose cause is what Python raised."""
    assert divide(6, by=3) == 2
    with pytest.raises(InvalidValue, match=r"^by: expected a whole number, got str$") as raised:
        divide(6, by="a")  # type: ignore[arg-type]
    assert isinstance(raised.value.__cause__, TypeError)


def test_a_guarded_call_whose_arguments_fit_raises_what_it_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        divide(6, 0)


def test_what_says_nothing_of_an_argument_is_raised_as_it_is() -> None:
    with pytest.raises(RuntimeError, match="of its own"):
        divide("a", 0, error=RuntimeError)  # type: ignore[arg-type]


@with_each("call", [divide, check_arguments(lambda: None)], ids=["guarded", "checked"])
def test_an_argument_that_is_not_there_is_the_callers_own_mistake(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        call(nothing=5)


@with_each("hint", ["Nowhere", "pytest.nothing", "(int, str)"])
def test_an_annotation_that_cannot_be_resolved_refuses_nothing(hint: str) -> None:
    assert taking(hint)(5) == [5]
