from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st

from lastlight_state.db.columns import read_time
from lastlight_state.db.rows import builder


def test_a_row_becomes_a_dict_in_the_order_of_its_columns() -> None:
    build = builder(("b", "a"), {"a": str.upper})
    assert build([(1, "x"), (None, "y")]) == [{"b": 1, "a": "X"}, {"b": None, "a": "Y"}]
    assert list(build([(1, "x")])[0]) == ["b", "a"]


def test_null_is_none_whatever_the_converter() -> None:
    build = builder(("a", "at"), {"a": int, "at": read_time})
    assert build([(None, None)]) == [{"a": None, "at": None}]


def test_a_statement_without_columns_has_rows_all_the_same() -> None:
    assert builder((), {})([(), ()]) == [{}, {}]


def test_any_name_of_a_column_is_a_name() -> None:
    build = builder(("it's", 'a"b\\n', "class"), {})
    assert build([(1, 2, 3)]) == [{"it's": 1, 'a"b\\n': 2, "class": 3}]


@given(moment=st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]) | st.none()))
def test_times_are_read_as_by_the_column(moment: datetime | None) -> None:
    """house H-31: our own form, and those that other programs left."""
    text = None if moment is None else moment.isoformat()
    assert builder(("at",), {"at": read_time})([(text,)]) == [{"at": read_time(text)}]


def test_what_a_converter_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="no time"):
        builder(("at",), {"at": read_time})([("no time",)])
