from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support.each import with_each
from support.stored_times import SPELLINGS, UNREADABLE

from lastlight_state.clock import iso_text
from lastlight_state.db.rows import parameters
from lastlight_state.db.rows.parameters import builders
from lastlight_state.db.schema.columns import read_time


def build(keys: Sequence[str], converters: dict[str, Any], *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """The rows as dicts, which are the same one by one."""
    one, many = builders(keys, converters)
    found = many(rows)
    assert [one(row) for row in rows] == found
    return found


def test_a_row_becomes_a_dict_in_the_order_of_its_columns() -> None:
    found = build(("b", "a"), {"a": str.upper}, (1, "x"), (None, "y"))
    assert found == [{"b": 1, "a": "X"}, {"b": None, "a": "Y"}]
    assert list(found[0]) == ["b", "a"]


def test_null_is_none_whatever_the_converter() -> None:
    assert build(("a", "at"), {"a": int, "at": read_time}, (None, None)) == [{"a": None, "at": None}]


def test_a_statement_without_columns_has_rows_all_the_same() -> None:
    assert build((), {}, (), ()) == [{}, {}]


def test_any_name_of_a_column_is_a_name() -> None:
    assert build(("it's", 'a"b\\n', "class"), {}, (1, 2, 3)) == [{"it's": 1, 'a"b\\n': 2, "class": 3}]


@given(moment=st.datetimes(timezones=st.just(UTC)) | st.none())
def test_times_are_read_as_by_the_column(moment: datetime | None) -> None:
    """house H-31, house H-61: our own form, and no other."""
    text = None if moment is None else iso_text(moment)
    assert build(("at",), {"at": read_time}, (text,)) == [{"at": read_time(text)}]


@with_each("text", [*SPELLINGS, *UNREADABLE])
def test_a_time_in_another_spelling_is_read_neither_way(text: str) -> None:
    """house H-61: in the code that is made for a statement, and by its converter."""
    with pytest.raises(ValueError, match=r"."):
        build(("at",), {"at": read_time}, (text,))


def test_what_a_converter_raises_is_raised() -> None:
    one, many = builders(("at",), {"at": read_time})
    with pytest.raises(ValueError, match="not spelled as times are stored"):
        one(("no time",))
    with pytest.raises(ValueError, match="not spelled as times are stored"):
        many([("no time",)])


def test_as_many_combinations_of_types_are_remembered_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """house H-52: others are looked at again, and let through as before."""
    monkeypatch.setattr(parameters, "_MOST_KINDS", 2)
    sound = parameters.KnownTypes([None, (str,)])
    for kind in (int, str, float, bytes, int):
        assert sound((kind, str))
        assert (kind, str) in sound.known
        assert len(sound.known) <= 2
