import hashlib
import json
from collections import deque
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from support.each import with_each

from lastlight_state import StateStore, codec
from lastlight_state.errors import InvalidValue, PayloadTooLarge
from lastlight_state.workflows import Trigger

LARGE = 1024 * 1024

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NUMBERS = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 5e-324, 1.7976931348623157e308, 2.0**53, -(2.0**63), 2.0**64])
    | st.integers(2**52, 2**64 - 1).map(float)
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXTS, children, max_size=4),
    max_leaves=12,
)


class Colour(StrEnum):
    RED = "red"


BAD = [
    (float("nan"), "NaN"),
    (float("-inf"), "infinity"),
    (2**64, "64 bits"),
    (-(2**63) - 1, "64 bits"),
    ("a\0b", "NUL"),
    ("half \ud83d", "surrogate"),
    ({"a\0b": 1}, "NUL"),
    ({"\udfff": 1}, "surrogate"),
    ({1: "one"}, "keys are text"),
    ({None: "none"}, "keys are text"),
    (b"bytes", "bytes is not a JSON type"),
    ({1, 2}, "set is not a JSON type"),
    (datetime(2026, 2, 3, tzinfo=UTC), "datetime is not a JSON type"),
    (Colour.RED, "Colour is not a JSON type"),
]

PATHS = st.lists(st.integers(0, 3) | st.sampled_from(["a", "b c", "ключ"]), max_size=5)


def planted(bad: Any, path: list[int | str]) -> Any:
    """A value that holds ``bad`` at the path, and good values around it."""
    for step in reversed(path):
        bad = {"first": 1, step: bad} if isinstance(step, str) else [0.5] * step + [bad, "last"]
    return bad


def named(path: list[int | str]) -> str:
    return "context" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@settings(max_examples=60)
@given(value=VALUES)
@example(value={"exact": 1.2345678901234568e18, "whole": 2.0**63, "edge": 1e300, "emoji": "👩‍🚀", "rtl": "שלום"})
def test_what_is_stored_as_json_comes_back_equal(every_backend: StateStore, value: Any) -> None:
    """house H-32: both backends give back equal values."""
    trigger = Trigger(type="cli", id="t")
    made = every_backend.workflows.runs.create("w", trigger=trigger, phase="p", context={"value": value})
    read = every_backend.workflows.runs.get(made.id)
    assert read.context == {"value": value}
    assert codec.digest(read.context) == codec.digest({"value": value})


@given(value=VALUES)
def test_the_text_of_a_value_decodes_to_an_equal_value(value: Any) -> None:
    text = codec.encode("context", value, max_bytes=LARGE)
    assert codec.decode(text) == value
    assert json.loads(text) == value


@with_each(("bad", "problem"), BAD, ids=[problem for _, problem in BAD])
@given(path=PATHS)
def test_a_value_that_json_or_a_database_lacks_is_refused_by_its_path(
    bad: Any, problem: str, path: list[int | str]
) -> None:
    """house H-33."""
    with pytest.raises(InvalidValue, match=problem) as refused:
        codec.encode("context", planted(bad, path), max_bytes=LARGE)
    assert refused.value.where.removesuffix(" (a key)") == named(path)


def test_the_first_bad_value_in_the_order_of_the_document_is_named() -> None:
    with pytest.raises(InvalidValue) as refused:
        codec.encode("context", {"a": [1, {"b": "\0"}], "c": float("nan")}, max_bytes=LARGE)
    assert refused.value.where == "context.a[1].b"


def test_no_refusal_repeats_the_content() -> None:
    """house H-53: no error text carries the content of a payload."""
    with pytest.raises(InvalidValue) as refused:
        codec.encode("context", {"k": "a secret\0"}, max_bytes=LARGE)
    assert "secret" not in str(refused.value)
    with pytest.raises(PayloadTooLarge) as too_large:
        codec.encode("context", "a secret", max_bytes=4)
    assert "secret" not in str(too_large.value)


def test_a_cycle_is_refused_and_not_followed() -> None:
    """house H-33."""
    ring: list[Any] = [1]
    ring += [ring, ring]
    knot: dict[str, Any] = {}
    knot["self"] = {"again": knot}
    for value in (ring, knot):
        with pytest.raises(InvalidValue, match="cycle"):
            codec.encode("context", value, max_bytes=LARGE)


def test_nesting_is_bounded() -> None:
    """house H-33."""
    deepest = nested(codec.MAX_DEPTH)
    assert codec.decode(codec.encode("context", deepest, max_bytes=LARGE)) == deepest
    with pytest.raises(InvalidValue, match="nested deeper"):
        codec.encode("context", nested(codec.MAX_DEPTH + 1), max_bytes=LARGE)
    with pytest.raises(InvalidValue, match="nested deeper"):
        codec.encode("context", nested(3), max_bytes=LARGE, max_depth=2)


def test_levels_are_counted_without_recursion() -> None:
    """maintenance OP-38: how deep a recursion may go differs from one Python to the next."""
    deep: Any = "a text"
    for _ in range(50_000):
        deep = {"child": [deep]}
    assert codec.is_deeper(deep, 99_999)
    assert not codec.is_deeper(deep, 100_000)
    assert not codec.is_deeper("a text", 0)
    assert codec.is_deeper((), 0)
    while isinstance(deep, dict):  # the end of a value this deep is a recursion, too
        deep = deep["child"].pop()


def test_bytes_of_utf8_are_bounded_and_not_characters() -> None:
    """house H-33."""
    assert codec.encode("context", "é" * 4, max_bytes=10) == '"éééé"'
    with pytest.raises(PayloadTooLarge) as refused:
        codec.encode("context", "é" * 4, max_bytes=9, hint="keep it short")
    assert (refused.value.limit, refused.value.actual) == (9, 10)
    assert str(refused.value).endswith("keep it short")


def test_a_backslash_and_a_u_is_no_nul() -> None:
    assert codec.decode(codec.encode("context", "a\\u0000b", max_bytes=LARGE)) == "a\\u0000b"


def test_a_tuple_is_stored_as_an_array() -> None:
    assert codec.encode("context", (1, (2,)), max_bytes=LARGE) == "[1,[2]]"


def test_keys_keep_the_order_given() -> None:
    assert codec.encode("context", {"b": 1, "a": 2}, max_bytes=LARGE) == '{"b":1,"a":2}'


@given(value=VALUES)
def test_equal_values_have_equal_digests_whatever_their_order_and_number_type(value: Any) -> None:
    """codec: numbers by value, keys sorted."""
    assert codec.digest(rewritten(value)) == codec.digest(value)


def rewritten(value: Any) -> Any:
    """An equal value: keys in reverse, whole floats as integers where they fit."""
    if isinstance(value, dict):
        return {key: rewritten(child) for key, child in reversed(value.items())}
    if isinstance(value, list):
        return tuple(rewritten(child) for child in value)
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**64:
        return int(value)
    return value


def test_numbers_that_are_not_whole_stay_apart_from_those_that_are() -> None:
    """house H-33: and what is stored of a small one is what was given."""
    assert codec.canonical([0.5, -1.5, 2.0, 1e300]) == b"[0.5,-1.5,2,1e+300]"
    assert codec.encode("x", [1.0, 0.5, 2.0**60], max_bytes=LARGE) == "[1.0,0.5,1152921504606846976]"


def test_a_digest_is_the_sha256_of_the_canonical_form() -> None:
    assert codec.canonical({"b": 1.0, "a": [-0.0, "é"]}) == '{"a":[0,"é"],"b":1}'.encode()
    assert codec.digest([1]) == hashlib.sha256(b"[1]").hexdigest()


def test_text_that_is_no_json_is_no_value() -> None:
    with pytest.raises(ValueError, match="unexpected"):
        codec.decode("{half")


def test_the_members_of_a_set_are_written_in_one_order_wherever_it_stands() -> None:
    value = {"b": {3, 1, 2}, "a": [frozenset({"y", "x"}), ("as", "given")], "c": deque([{2.0, 1}])}
    written = {"b": [2, 3, 1], "a": [["y", "x"], ["as", "given"]], "c": [[2.0, 1]]}
    assert codec.in_one_order(value, written) == {"b": [1, 2, 3], "a": [["x", "y"], ["as", "given"]], "c": [[1, 2.0]]}
    assert list(codec.in_one_order(value, written)) == ["b", "a", "c"]


@with_each(
    ("value", "written"),
    [
        ({1, 2}, "text"),
        ({"a": {1, 2}}, {"a": [2, 1], "b": 0}),
        ({"a": {1, 2}}, [2, 1]),
        ([{1, 2}], [[2, 1], 0]),
        ([1, 2], "ab"),
        (5, [[2, 1]]),
        (5, {"a": [2, 1]}),
        ({"a": {1, 2}}, "a"),
        (5, 6),
    ],
)
def test_what_was_written_as_something_else_stays_as_it_was_written(value: Any, written: Any) -> None:
    assert codec.in_one_order(value, written) == written


@with_each(
    ("amount", "text"),
    [
        ("0", "0"),
        ("-0.00", "0"),
        ("0.10", "0.1"),
        ("1E+6", "1000000"),
        ("100", "100"),
        ("-2.50", "-2.5"),
        ("1E-7", "0.0000001"),
    ],
)
def test_an_exact_amount_has_no_exponent_and_no_needless_zeros(amount: str, text: str) -> None:
    assert codec.exact_text(Decimal(amount)) == text


@with_each("number", [-(2**63), 2**64 - 1, 2.0**53, -(2.0**53), 2.0**53 - 1])
def test_numbers_reach_to_the_ends_of_what_both_databases_store(number: float) -> None:
    """house H-33."""
    assert codec.decode(codec.encode("context", [number], max_bytes=LARGE)) == [number]


@with_each(
    ("number", "text"),
    [(2.0**53 - 1, b"9007199254740991.0"), (2.0**53, b"9007199254740992"), (-(2.0**53), b"-9007199254740992")],
)
def test_a_whole_float_is_written_as_an_integer_from_where_postgres_would_return_another(
    number: float, text: bytes
) -> None:
    """house H-33."""
    assert codec.encode_bytes("context", [number]) == b"[%b]" % text


@with_each("number", [-(2**63) - 1, 2**64])
def test_an_integer_beyond_them_is_refused(number: int) -> None:
    """house H-33."""
    for value in (number, [number], {"a": {"b": number}}):
        with pytest.raises(InvalidValue, match="integer beyond 64 bits"):
            codec.encode("context", value, max_bytes=LARGE)


def test_a_text_for_a_database_has_no_nul_and_no_half_of_a_character() -> None:
    codec.check_text("name", "é😀")
    for text, problem in (("a\0", "NUL character"), ("\ud83d", "lone surrogate")):
        with pytest.raises(InvalidValue, match=f"name: must not contain a {problem}"):
            codec.check_text("name", text)
