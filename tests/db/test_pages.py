from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, strategies as st
from support.each import with_each

from lastlight_state.db.lists.pages import LONGEST, after, after_values, check_key, decode_token, encode_token, key
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue

PARTS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
ASKED = st.lists(st.text(max_size=5) | st.dictionaries(st.text(max_size=5), PARTS, max_size=3), max_size=3)


@given(asked=ASKED, key=st.lists(PARTS, max_size=4))
def test_a_token_gives_back_the_key_it_was_made_of(asked: list[Any], key: list[Any]) -> None:
    """house H-13."""
    token = encode_token(asked, key)
    assert decode_token(asked, token) == key
    assert token.isascii()
    assert not set(token) & set("+/= ")


def test_times_travel_as_text() -> None:
    at = datetime(2026, 2, 3, tzinfo=UTC)
    assert decode_token({"since": at}, encode_token({"since": at}, [at])) == ["2026-02-03T00:00:00Z"]


def test_sets_are_asked_without_an_order_and_lists_with_one() -> None:
    token = encode_token([{"b", "a"}, ("x", "y")], [1])
    assert decode_token([frozenset({"a", "b"}), ["x", "y"]], token) == [1]
    with pytest.raises(InvalidValue, match="another list or another filter"):
        decode_token([{"a", "b"}, ["y", "x"]], token)


def test_no_token_is_the_beginning() -> None:
    assert decode_token(["list"], None) is None


@with_each("token", ["", "=", "é", "W10", "bnVsbA", "eyJhIjoxfQ", "WzEsMl0", "not base64!", 5, b"W10"])
def test_what_is_no_token_is_refused(token: Any) -> None:
    """house H-13: opaque tokens."""
    with pytest.raises(InvalidValue, match="page_token"):
        decode_token(["list"], token)


def test_a_key_is_of_its_kinds() -> None:
    at = datetime(2026, 2, 3, tzinfo=UTC)
    given = [at, "é", -1, 3, 0.5]
    kinds = (datetime, str, int, range(4), float | str)
    assert key("list", encode_token("list", given), kinds) == given
    assert key("list", None, kinds) is None


@with_each(
    ("part", "kind"),
    [
        ("yesterday", datetime),
        (5, datetime),
        ("0001-01-01T00:00:00+10:00", datetime),
        (5, str),
        ("a\0b", str),
        ("x" * (LONGEST + 1), str),
        ("5", int),
        (True, int),
        (2**63, int),
        (4, range(4)),
        (-1, range(4)),
        (None, str),
        (True, int | str),
        ([], int | str),
    ],
)
def test_a_forged_part_of_a_key_is_refused(part: Any, kind: Any) -> None:
    """house H-13: opaque tokens."""
    with pytest.raises(InvalidValue, match=r"page_token: .*damaged, or made by something else"):
        key("list", encode_token("list", [part]), (kind,))


@with_each("parts", [[], ["a", "b"]])
def test_a_key_has_as_many_parts_as_the_order(parts: list[Any]) -> None:
    """house H-13: opaque tokens."""
    with pytest.raises(InvalidValue, match=r"page_token: .*damaged, or made by something else"):
        key("list", encode_token("list", parts), (str,))


def test_a_page_is_walked_and_counted_like_its_items() -> None:
    page = Page(items=(1, 2, 3), next_page_token="x")
    assert list(page) == [1, 2, 3]
    assert len(page) == 3
    assert Page[int].model_validate_json(page.model_dump_json()) == page


def test_parts_of_a_key_reach_to_the_ends_of_their_kinds() -> None:
    """house H-13."""
    given = [-(2**63), 2**63 - 1, 0, 3, True, "x" * LONGEST]
    assert check_key(given, (int, int, range(4), range(4), bool, str)) == given
    with pytest.raises(InvalidValue, match="this one is damaged"):
        check_key([-(2**63) - 1], (int,))


def test_a_part_may_be_missing_where_that_is_permitted() -> None:
    """house H-13."""
    assert check_key([None, "a"], (str, str), nullable=True) == [None, "a"]
    for wrong, nullable in (([None, "a"], False), (["a", 5], True)):
        with pytest.raises(InvalidValue, match="this one is damaged"):
            check_key(wrong, (str, str), nullable=nullable)


ROWS = sa.table("rows", sa.column("at", sa.Integer), sa.column("id", sa.Text))


@with_each("leading", [ROWS.c.at, sa.func.coalesce(ROWS.c.at, 0)], ids=["column", "function"])
@with_each("descending", [True, False])
def test_each_row_comes_after_the_one_before_it_once(leading: Any, descending: bool) -> None:
    """house H-13: also where several rows have the same first part."""
    stored = [(at, word) for at in (1, 2, 3) for word in "abc"]
    order = [column.desc() if descending else column for column in (leading, ROWS.c.id)]
    statement = sa.select(ROWS).where(after([leading, ROWS.c.id], descending=descending)).order_by(*order)
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE rows (at INTEGER, id TEXT)")
        connection.exec_driver_sql("INSERT INTO rows VALUES (?, ?)", stored)
        expected = sorted(stored, reverse=descending)
        for place, row in enumerate(expected):
            found = connection.execute(statement, after_values(row)).all()
            assert [tuple(one) for one in found] == expected[place + 1 :]
    engine.dispose()
