"""The line functions of the codec."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from support.each import with_each

from lastlight_state.codec import dump_line, load_line
from lastlight_state.errors import InvalidValue


def nested(levels: int) -> dict[str, Any]:
    root: dict[str, Any] = {}
    inner = root
    for _ in range(levels - 1):
        inner["a"] = {}
        inner = inner["a"]
    return root


def cyclic() -> dict[str, Any]:
    root: dict[str, Any] = {"a": []}
    root["a"].append(root)
    return root


class Word(Enum):
    A = "a"
    ONE = 1.0


@dataclass
class Point:
    x: int


def test_a_line_is_compact_and_keeps_the_order_of_its_keys() -> None:
    """agent-log L-30."""
    assert dump_line({"b": 1, "a": "é\u2028 😀"}) == '{"b":1,"a":"é\u2028 😀"}\n'.encode()


@with_each(
    ("value", "written"),
    [
        (0.0, b"0"),
        (-0.0, b"0"),
        (7.0, b"7"),
        (1e20, b"100000000000000000000"),
        (0.13, b"0.13"),
        (math.nan, b"null"),
        (math.inf, b"null"),
        (2**64, b"18446744073709551616"),
        (-(2**80), b"-1208925819614629174706176"),
        ("\0", b'"\\u0000"'),
        ("a\ud83d", b'"a\\ud83d"'),
        ((1, 2.0), b"[1,2]"),
        ({1: 1, None: 2, 2.5: 3, 7.0: 4}, b'{"1":1,"null":2,"2.5":3,"7":4}'),
        ({True: 1, "\udc00": 2}, b'{"true":1,"\\udc00":2}'),
        (Word.A, b'"a"'),
        ([UUID(int=1), 1.0], b'["00000000-0000-0000-0000-000000000001",1]'),
        ([Word.A, Word.ONE, 1.0], b'["a",1,1]'),
    ],
)
def test_what_happened_is_written_whatever_it_is(value: Any, written: bytes) -> None:
    """agent-log L-30, L-31, case 33."""
    assert dump_line({"v": value}) == b'{"v":' + written + b"}\n"


def test_the_greatest_integer_that_fits_is_written() -> None:
    """agent-log L-31."""
    assert len(dump_line({"v": 2**14_280 - 1})) == 4_299 + len(b'{"v":}\n')
    with pytest.raises(InvalidValue):
        dump_line({"v": 2**14_280})


def test_whole_floats_from_1e21_on_keep_their_exponent() -> None:
    """agent-log L-30."""
    assert dump_line({"v": 1e21}).startswith(b'{"v":1e')


@with_each(
    ("make", "where"),
    [
        (cyclic, "line.a[0].a"),
        (lambda: {"a": [object()]}, "line.a[0]"),
        (lambda: {"a": {("t",): 1}}, "line.a (a key)"),
        (lambda: {"a": Point(1)}, "line.a"),
        (lambda: {"a": datetime(2026, 1, 1, tzinfo=UTC)}, "line.a"),
        (lambda: {"a": {1, 2}}, "line.a"),
        (lambda: {"a": 10**5_000}, "line.a"),
        (lambda: nested(501), "line.a.a"),
    ],
)
def test_what_no_line_can_hold_is_named_by_its_path(make: Callable[[], Any], where: str) -> None:
    """agent-log L-31."""
    with pytest.raises(InvalidValue) as caught:
        dump_line(make())
    assert caught.value.where.startswith(where)


def test_five_hundred_levels_are_written_and_read() -> None:
    """agent-log L-31."""
    assert load_line(dump_line(nested(500))) == nested(500)
    lists: list[Any] = [1.0]
    for _ in range(498):
        lists = [lists]
    assert dump_line({"a": lists}) == b'{"a":' + b"[" * 499 + b"1" + b"]" * 499 + b"}\n"
    with pytest.raises(InvalidValue):
        dump_line({"a": [lists]})


def test_levels_beyond_what_is_left_of_the_stack_are_refused_and_do_no_harm() -> None:
    """agent-log L-31."""

    def deeper(frames: int) -> bytes:
        return dump_line(nested(490)) if frames == 0 else deeper(frames - 1)

    frames_in_use = len(inspect.stack(0))
    with pytest.raises(InvalidValue):
        deeper(sys.getrecursionlimit() - frames_in_use - 200)


def test_a_value_without_an_object_around_it_is_written_by_the_same_rules() -> None:
    """agent-log L-30."""
    assert (dump_line(1.0), dump_line([2.0]), dump_line("x")) == (b"1\n", b"[2]\n", b'"x"\n')


def test_half_an_emoji_reads_as_the_replacement_character() -> None:
    r"""agent-log L-32: only a real half; a pair, and a text that spells ``\ud83d``, stay."""
    raw = rb'{"half":"a\ud83d","low":"\uDE00","pair":"\ud83d\ude00","spelled":"\\ud83d","other":"\n\u00e9"}'
    assert load_line(raw) == {"half": "a\ufffd", "low": "\ufffd", "pair": "😀", "spelled": r"\ud83d", "other": "\né"}


@with_each("raw", [b"{", rb'{"a":"\ud83d', b"\xff", b"NaN", b""])
def test_what_is_no_json_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        load_line(raw)
    assert not isinstance(caught.value, InvalidValue)


numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_reads_back_equal(value: Any) -> None:
    """agent-log L-30: numbers are equal by value."""
    line = dump_line({"v": value})
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert load_line(line) == {"v": value}


@given(st.text(st.characters(), max_size=20))
def test_a_text_with_lone_surrogates_is_always_written(text: str) -> None:
    """agent-log L-31, L-32."""
    text += "-\udfff"  # the hyphen: two halves in a row are a pair
    assert load_line(dump_line({"v": text}))["v"].endswith("\ufffd")
