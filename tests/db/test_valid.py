import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st
from support.each import with_each

from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue, NotFound, PayloadTooLarge
from lastlight_state.workflows import Trigger

PRINTABLE = st.text(
    st.characters(codec="utf-8", min_codepoint=32, exclude_characters="\x7f"), min_size=1, max_size=60
).filter(str.strip)


@given(text=PRINTABLE)
def test_names_are_kept_verbatim(text: str) -> None:
    """house H-22."""
    assert valid.identifier("name", text) == text
    assert valid.optional("name", text) == text
    assert valid.optional("name", None) is None


@with_each(
    ("name", "problem"),
    [
        ("", "must not be blank"),
        (" \u2003 ", "must not be blank"),
        ("a\0b", "must not contain a NUL"),
        ("a\nb", "must not contain control characters"),
        ("a\x7fb", "must not contain control characters"),
        ("half \ud83d", "must not contain a lone surrogate"),
        ("é" * 129, "258 bytes, more than the limit of 256"),
        (5, "expected text, got int"),
        (b"bytes", "expected text, got bytes"),
        (None, "expected text, got NoneType"),
    ],
)
def test_what_is_no_name_is_refused(name: Any, problem: str) -> None:
    """house H-22: limits count UTF-8 bytes."""
    with pytest.raises(InvalidValue, match=f"name: {problem}"):
        valid.identifier("name", name)


@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50))
def test_free_text_is_kept_verbatim_to_the_last_byte_of_its_limit(text: str) -> None:
    """house H-22."""
    size = len(text.encode())
    assert valid.content("text", text, size) == text
    if size:
        with pytest.raises(PayloadTooLarge) as raised:
            valid.content("text", text, size - 1, hint="write less")
        assert (raised.value.limit, raised.value.actual) == (size - 1, size)


def test_free_text_may_be_empty_and_missing_text_stays_missing() -> None:
    assert valid.content("text", "", 0) == ""
    assert valid.optional_content("text", None, 0) is None
    with pytest.raises(InvalidValue, match="NUL"):
        valid.optional_content("text", "a\0b", 10)


def test_a_word_is_one_of_its_vocabulary() -> None:
    """house H-21: strict on write."""
    vocabulary = valid.words(Literal["running", "failed"])
    assert valid.word("status", "running", vocabulary) == "running"
    for wrong in ("Running", "", 5, None, ["running"]):
        with pytest.raises(InvalidValue) as raised:
            valid.word("status", wrong, vocabulary)
        assert raised.value.details["permitted"] == ("failed", "running")


def test_a_wrong_word_is_not_repeated_at_length() -> None:
    with pytest.raises(InvalidValue) as raised:
        valid.word("status", "x" * 10_000, frozenset({"running"}))
    assert len(str(raised.value)) < 200


@with_each("number", [-1, 2**63, True, 1.0, "1", None])
def test_what_is_no_number_within_bounds_is_refused(number: Any) -> None:
    with pytest.raises(InvalidValue, match="count: "):
        valid.number("count", number)


def test_bounds_belong_to_the_range() -> None:
    assert [valid.number("n", n, least=-1, most=1) for n in (-1, 0, 1)] == [-1, 0, 1]


def test_a_duration_is_a_timedelta_within_its_bounds() -> None:
    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    assert [valid.duration("lease", each, least=minute, most=hour) for each in (minute, hour)] == [minute, hour]
    assert valid.duration("age", timedelta(0)) == timedelta(0)
    for wrong, problem in [
        (60, "expected a timedelta, got int"),
        (timedelta(0), "must be between 0:01:00 and 1:00:00, got 0:00:00"),
        (timedelta(days=1), "must be between"),
    ]:
        with pytest.raises(InvalidValue, match=f"lease: {problem}"):
            valid.duration("lease", wrong, least=minute, most=hour)


def test_more_values_than_the_limit_are_refused() -> None:
    valid.at_most("ids", ["a", "b"], 2)
    with pytest.raises(InvalidValue, match="ids: 3 values, more than the limit of 2") as raised:
        valid.at_most("ids", ["a", "b", "c"], 2)
    assert (raised.value.details["limit"], raised.value.details["actual"]) == (2, 3)


def test_an_argument_group_is_of_its_class() -> None:
    trigger = Trigger(type="cli", id="t")
    assert valid.argument_group("trigger", trigger, Trigger) is trigger
    with pytest.raises(InvalidValue, match="trigger: expected a Trigger, got dict"):
        valid.argument_group("trigger", {"type": "cli", "id": "t"}, Trigger)


@with_each("limit", [0, 501, -1, None, "10", True])
def test_a_page_has_one_to_five_hundred_items(limit: Any) -> None:
    """house H-12: at most 500."""
    with pytest.raises(InvalidValue, match="limit: "):
        valid.page_limit(limit)
    assert [valid.page_limit(n) for n in (1, 500)] == [1, 500]


@with_each("check", [valid.flag, valid.several])
def test_a_truth_value_and_several_values_are_not_guessed(check: Callable[[str, Any], Any]) -> None:
    for wrong in ("true", 1, None):
        with pytest.raises(InvalidValue, match="what: "):
            check("what", wrong)
    assert valid.flag("what", False) is False
    assert valid.several("what", ("a", "b")) == ["a", "b"]


@with_each("name", ["a", "é" * 128, "a" * 256, "a\u00a0b"])
def test_a_name_may_be_as_long_as_its_limit(name: str) -> None:
    """house H-22: of UTF-8."""
    assert valid.identifier("name", name) == name
    assert valid.is_identifier(name)


@with_each("name", ["", " ", "\u2003", "a\nb", "a\x7f", "\0", "\ud83d", "é" * 129, "a" * 257, 5, None, b"a"])
def test_what_is_no_name_is_known_without_an_error(name: Any) -> None:
    """house H-22."""
    assert not valid.is_identifier(name)
    with pytest.raises(InvalidValue):
        valid.identifier("name", name)


def test_a_number_has_the_64_bits_of_the_databases() -> None:
    assert [valid.number("n", n) for n in (0, 2**63 - 1)] == [0, 2**63 - 1]


@with_each("name", ["A-z_9", "a" * 200])
def test_the_id_of_a_session_names_a_file(name: str) -> None:
    assert valid.session_id("session_id", name) == name


@with_each("name", ["", "a" * 201, "a b", "a\n", "a.b", "../a", "é"])
def test_what_cannot_name_a_file_is_no_id_of_a_session(name: str) -> None:
    with pytest.raises(InvalidValue, match="session_id: must be 1 to 200 of") as raised:
        valid.session_id("session_id", name)
    assert (raised.value.details["limit"], raised.value.details["actual"]) == (200, len(name))


@with_each("wait", [0, 0.25, 1, 86_400])
def test_a_call_waits_for_up_to_a_day(wait: float) -> None:
    assert valid.seconds("timeout", wait) == wait
    assert type(valid.seconds("timeout", wait)) is float


@with_each(
    ("wait", "problem"),
    [
        (-0.001, "must be between 0 and 86400 seconds, got -0.001"),
        (86_400.001, "must be between 0 and 86400 seconds"),
        (float("nan"), "must be between 0 and 86400 seconds, got nan"),
        (float("inf"), "must be between 0 and 86400 seconds, got inf"),
        (True, "expected a number of seconds, got bool"),
        ("1", "expected a number of seconds, got str"),
        (None, "expected a number of seconds, got NoneType"),
    ],
)
def test_nobody_waits_for_anything_else(wait: Any, problem: str) -> None:
    with pytest.raises(InvalidValue, match=f"^timeout: {problem}"):
        valid.seconds("timeout", wait)


def test_a_following_without_a_stop_is_stopped_by_nobody() -> None:
    ends = threading.Event()
    assert valid.stop(ends) is ends
    assert not valid.stop(None).is_set()
    assert valid.stop(None) is not valid.stop(None)
    with pytest.raises(InvalidValue, match=r"^stop: expected a threading.Event, got bool$"):
        valid.stop(True)


@with_each("key", ["a", "é", 5, ("a", 5), b"\0"])
def test_a_key_that_finds_nothing_is_told(key: Any) -> None:
    error = valid.not_found("run", key)
    assert isinstance(error, NotFound)


@with_each("key", [None, ("a", None), "a\0", ("a", "\ud83d")])
def test_a_key_that_no_database_can_hold_is_an_invalid_value(key: Any) -> None:
    """backends B-86: the same on both databases."""

    def find() -> None:
        raise valid.not_found("run", key)

    with pytest.raises(InvalidValue, match=r"^run: "):
        find()


def test_a_text_that_is_looked_for_is_one_that_a_database_can_hold() -> None:
    assert [valid.lookup_text("name", text) for text in ("", "a", "é")] == ["", "a", "é"]
    for wrong in ("a\0", "é\0", "\ud83d", 5, None, b"a"):
        with pytest.raises(InvalidValue, match=r"^name: "):
            valid.lookup_text("name", wrong)
