"""JSON is read without changing a number."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from support.each import with_each

from lastlight_state import codec
from lastlight_state.errors import InvalidValue

TEXTS = st.text(st.characters(codec="utf-8")) | st.integers().map(str)
INTEGERS = st.integers() | st.integers(-(2**70), 2**70) | st.integers(10**18, 10**22) | st.integers(0, 10**400)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXTS, children, max_size=4),
    max_leaves=12,
)
EDGES = [-(2**63) - 1, -(2**63), 2**64 - 1, 2**64, 10**19, 10**20, -(10**19), 10**310, -(10**310), 10**4000]


@given(VALUES, st.sampled_from([None, 1]))
@example(EDGES, None)
@example({"12345678901234567890": [0.12345678901234567890123, "-98765432109876543210"], "\\": 2**64}, None)
def test_every_number_is_read_digit_by_digit(value: Any, indent: int | None) -> None:
    """house H-57: however the text is laid out, and whatever digits stand in its strings."""
    text = json.dumps(value, indent=indent)
    for read in (codec.decode(text), codec.decode(text.encode()), codec.load_line(text.encode())):
        assert read == value
        assert [type(one) for one in numbers(read)] == [type(one) for one in numbers(value)]


def finite(digits: str) -> float:
    if math.isinf(number := float(digits)):
        raise ValueError(f"{digits} is beyond every float")
    return number


@given(VALUES, st.integers(0, 60))
@example([None, 1.5965907498032154e293], 9)
def test_whatever_was_cut_off_or_misspelt_is_no_json_as_before(value: Any, place: int) -> None:
    """house H-57: a text that Python's own parser refuses is not accepted because it holds long numbers."""
    text = json.dumps([value, 2**70], ensure_ascii=False)
    broken = text[: place % len(text)] + text[place % len(text) + 1 :]
    try:
        expected = json.loads(broken, parse_float=finite)
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            codec.decode(broken)
    else:
        assert codec.decode(broken) == expected


@with_each(
    "text",
    ["1e400", "-1E+999", f"[{2**70}, 1e400]", f"{{{2**70}: 1}}", f"[0{2**70}]", f"[NaN, {2**70}]", f'"{2**70}',
     f'["\\ud800", {2**70}]', "1" + "0" * 5_000, f"[{2**70}, 1.e5]", f"[+{2**70}]", f'["\n", {2**70}]'],
)  # fmt: skip
def test_what_no_number_can_hold_is_no_json(text: str) -> None:
    """house H-57: a float is never infinity, and nothing else is accepted beside a long number."""
    with pytest.raises(ValueError, match=r"."):
        codec.decode(text)


@given(st.floats(2.0**64, allow_infinity=False) | st.floats(max_value=-(2.0**64), allow_infinity=False))
@example(1e20)
@example(1e300)
@example(1.8446744073709552e19)
def test_the_digits_that_postgres_makes_of_a_float_read_as_the_float(number: float) -> None:
    """house H-57: smaller whole floats are written as the integers that they equal."""
    written = re.sub(r"(?<=\d)\.0$", "", format(Decimal(repr(number)), "f"))
    assert codec.decode_jsonb(f"[{written}]") == [number]


@with_each("number", [2**64 + 1, 10**23 + 1, 123456789012345678901234567890, 10**310, -(2**64) - 1])
def test_an_integer_that_no_float_has_the_digits_of_stays_one_on_postgres(number: int) -> None:
    """house H-57."""
    assert codec.decode_jsonb(f'{{"a": {number}}}') == {"a": number}


@given(VALUES)
def test_what_was_read_with_long_integers_can_be_written_and_compared(value: Any) -> None:
    """house H-57: equal values have equal digests."""
    assert codec.decode(codec.encode_sound(value)) == value
    assert json.loads(codec.encode_sound(value, indented=True)) == value
    assert codec.digest(codec.decode(json.dumps(value))) == codec.digest(value)


@settings(max_examples=200)
@given(st.integers() | st.integers(0, 10**4290) | st.integers(-(10**30), 10**30), TEXTS)
def test_an_integer_beyond_64_bits_is_found_wherever_it_stands(number: int, before: str) -> None:
    """house H-57: the look at some of the bytes passes over none."""
    for text in (f"{number}", json.dumps([before, number]), json.dumps({before: [number]})):
        if not -(2**63) <= number < 2**64:
            assert codec.may_hold_long_integers(text.encode())


def is_refused(value: Any) -> bool:
    try:
        codec.encode_bytes("value", value)
    except InvalidValue:
        return True
    return False


@with_each("numbers", [range(10), range(100), range(1000)])
def test_a_list_of_small_integers_is_not_suspected(numbers: range) -> None:
    """house H-57: a second reading of it would take ten times as long."""
    assert not codec.may_hold_long_integers(codec.encode_sound({"a": [*numbers] * 20}))


@given(st.lists(st.integers()) | st.lists(st.floats()))
def test_a_list_of_numbers_of_one_kind_is_judged_as_each_of_them(numbers: list[Any]) -> None:
    """house H-57"""
    assert is_refused(numbers) is any(is_refused([number, "text"]) for number in numbers)


@given(VALUES)
def test_a_line_reads_as_what_was_written(value: Any) -> None:
    """agent-log L-31, house H-57: of JSON values nothing is lost but halves of surrogate pairs."""
    assert codec.load_line(codec.dump_line({"value": value})) == {"value": value}


def test_two_keys_of_one_text_are_refused_in_a_line() -> None:
    """agent-log L-31: before, the last of them was written."""
    for value in ({1: "a", "1": "b"}, {"a": [{None: 1, "null": 2}]}, {True: 1, "true": 2}):
        with pytest.raises(InvalidValue, match="two keys are written as"):
            codec.dump_line(value)
    assert codec.load_line(codec.dump_line({1: "a", "2": "b"})) == {"1": "a", "2": "b"}


def numbers(value: Any) -> list[Any]:
    """The numbers that stand in a value, in their order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [one for child in value for one in numbers(child)]
    return [value] if isinstance(value, int | float) else []
