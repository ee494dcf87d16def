import base64
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from hypothesis import given, settings, strategies as st
from support.each import with_each
from support.scratch import THINGS

from lastlight_state import StateStore
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.lists.pages import encode_token, map_page
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue

START = datetime(2026, 2, 3, tzinfo=UTC)
KINDS = ("a", "b", "c")

c = THINGS.c
FILTERS = {"since": c.at >= sa.bindparam("since", type_=c.at.type), "number": c.number == sa.bindparam("number")}
ORDERS = {
    descending: Listing(
        f"things {descending}",
        [c.id, c.at, c.kind],
        order=[c.at, c.id],
        filters=FILTERS,
        spread={"kinds": c.kind, "ids": c.id},
        descending=descending,
    )
    for descending in (True, False)
}

INSERT = sa.insert(THINGS)

# Few times and many ties, ids whose order as text is not their order of making.
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text("aB1é_~", min_size=1, max_size=4),
            "at": st.integers(0, 4).map(lambda step: START + timedelta(milliseconds=step)),
            "kind": st.sampled_from(KINDS),
            "number": st.integers(0, 1),
        }
    ),
    max_size=25,
    unique_by=lambda row: row["id"],
)
CHOSEN = st.fixed_dictionaries(
    {},
    optional={
        "kinds": st.lists(st.sampled_from(KINDS), max_size=4),
        "number": st.integers(0, 1),
        "since": st.just(START + timedelta(milliseconds=2)),
    },
)


def stored(store: StateStore, rows: Sequence[dict[str, Any]]) -> None:
    with store.transaction() as tx:
        tx.connection.execute(sa.delete(THINGS))
        if rows:
            tx.connection.execute(INSERT, list(rows))


def page(store: StateStore, listing: Listing, limit: int, token: str | None = None, **given: Any) -> Page[str]:
    found = store._scope.read(lambda unit: listing.page(unit, limit=limit, page_token=token, given=given))
    return map_page(found, lambda row: str(row["id"]))


def every_page(
    store: StateStore, listing: Listing, limit: int, between: Callable[[], object] = lambda: None, **given: Any
) -> list[list[str]]:
    found = page(store, listing, limit, **given)
    pages = [list(found.items)]
    while found.next_page_token:
        between()
        found = page(store, listing, limit, found.next_page_token, **given)
        pages.append(list(found.items))
    return pages


def admitted(row: dict[str, Any], chosen: dict[str, Any]) -> bool:
    return (
        row["kind"] in chosen.get("kinds", KINDS)
        and row["number"] == chosen.get("number", row["number"])
        and row["at"] >= chosen.get("since", START)
    )


@settings(max_examples=50)
@given(rows=ROWS, chosen=CHOSEN, limit=st.integers(1, 7), descending=st.booleans())
def test_pages_show_every_row_that_is_admitted_once_and_in_order(
    scratch: StateStore, rows: list[dict[str, Any]], chosen: dict[str, Any], limit: int, descending: bool
) -> None:
    """house H-12: keyset pages, the same order of text on both databases."""
    stored(scratch, rows)
    expected = sorted((row for row in rows if admitted(row, chosen)), key=lambda row: (row["at"], row["id"].encode()))
    ids = [row["id"] for row in (reversed(expected) if descending else expected)]
    pages = every_page(scratch, ORDERS[descending], limit, **chosen)
    assert [one for items in pages for one in items] == ids
    assert all(len(items) == limit for items in pages[:-1])


@settings(max_examples=25)
@given(rows=ROWS, limit=st.integers(1, 4))
def test_rows_that_come_or_go_between_pages_make_no_other_row_skipped_or_repeated(
    scratch: StateStore, rows: list[dict[str, Any]], limit: int
) -> None:
    """house H-12."""
    stored(scratch, rows)
    newer = iter(range(1000))

    def disturb() -> None:
        number = next(newer)
        with scratch.transaction() as tx:
            late = {"id": f"late{number}", "at": START + timedelta(days=1), "kind": "a", "number": 0}
            tx.connection.execute(INSERT, [late])
            tx.connection.execute(sa.delete(THINGS).where(c.id == f"late{number - 1}"))

    pages = every_page(scratch, ORDERS[True], limit, disturb)
    ids = [one for items in pages for one in items]
    assert sorted(ids) == sorted(row["id"] for row in rows)


def some(store: StateStore, count: int = 5) -> None:
    stored(store, [{"id": f"t{i}", "at": START, "kind": KINDS[i % 3], "number": i % 2} for i in range(count)])


def test_an_empty_sequence_admits_nothing_and_none_filters_nothing(scratch: StateStore) -> None:
    some(scratch)
    assert page(scratch, ORDERS[True], 50, kinds=[]).items == ()
    assert len(page(scratch, ORDERS[True], 50, kinds=None)) == 5


def test_two_filters_of_several_values_hold_together(scratch: StateStore) -> None:
    some(scratch)
    assert every_page(scratch, ORDERS[True], 1, kinds=["a", "b"], ids=["t0", "t2", "t3"]) == [["t3"], ["t0"]]


def test_values_that_stand_twice_count_once(scratch: StateStore) -> None:
    some(scratch)
    assert page(scratch, ORDERS[True], 50, kinds=["a", "a", "b"] * 5).items == ("t4", "t3", "t1", "t0")


def test_more_values_than_a_page_may_ask_for_are_refused(scratch: StateStore) -> None:
    with pytest.raises(InvalidValue, match="ids: 51 values, more than the limit of 50"):
        page(scratch, ORDERS[True], 50, ids=[str(i) for i in range(51)])


def test_a_full_last_page_has_no_token(scratch: StateStore) -> None:
    some(scratch, 4)
    first = page(scratch, ORDERS[True], 2)
    assert first.next_page_token
    assert page(scratch, ORDERS[True], 2, first.next_page_token).next_page_token is None


@pytest.mark.parametrize("given", [{"kinds": ["a"]}, {"number": 1}, {"since": START}])
def test_a_token_serves_only_the_list_and_the_filters_it_was_made_for(
    scratch: StateStore, given: dict[str, Any]
) -> None:
    """house H-13: opaque tokens."""
    some(scratch)
    token = page(scratch, ORDERS[True], 1).next_page_token
    for listing, filters in ((ORDERS[True], given), (ORDERS[False], {})):
        with pytest.raises(InvalidValue, match="made for another list or another filter"):
            page(scratch, listing, 1, token, **filters)


FORGED: list[Any] = [[], ["2026-02-03T00:00:00.000Z"], ["yesterday", "t"], [5, "t"], [{}, "t"], ["x" * 300, "t"]]
WRONG: list[Any] = [5, True, 2**80, [], {"a": 1}, "a\0b", 1.5]
FORGED += [["2026-02-03T00:00:00.000Z", wrong] for wrong in WRONG]
FORGED += ["no list", {"at": 1}, None, ["2026-02-03T00:00:00.000Z", "t", "more"]]


@with_each("key", FORGED, ids=repr)
def test_a_forged_key_is_refused_before_the_database_sees_it(scratch: StateStore, key: Any) -> None:
    """house H-13."""
    some(scratch)
    honest = encode_token(["things True", {}], [])
    digest = decoded(honest)[0]
    with pytest.raises(InvalidValue, match="damaged, or made by something else"):
        page(scratch, ORDERS[True], 1, encoded([digest, key]))


def decoded(token: str) -> Any:
    return orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))


def encoded(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


@settings(max_examples=100)
@given(token=st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.hex()))
def test_any_other_text_is_no_token(scratch: StateStore, token: str) -> None:
    """house H-13."""
    with pytest.raises(InvalidValue, match="page_token"):
        page(scratch, ORDERS[True], 1, token)


def test_each_shape_is_compiled_once(scratch: StateStore) -> None:
    """backends B-61: nothing on a hot path builds a statement."""
    listing = Listing("shapes", [c.id, c.at], order=[c.at, c.id], filters=FILTERS)
    first = listing.statement({"number": 1}, paged=False)
    assert listing.statement({"number": 2}, paged=False) is first
    assert listing.statement({"number": 2}, paged=True) is not first


def test_words_of_ours_stand_in_the_statement_whatever_their_order_and_number(every_backend: StateStore) -> None:
    """workflows W-101: a plan that is made for any word goes through all that is common to find what is rare."""
    worded = Listing("worded", [c.id, c.at], order=[c.at, c.id], spread={"kinds": c.kind}, worded=("kinds",))
    first, same = (worded.statement({"kinds": kinds}, paged=False) for kinds in (["b", "a"], ["a", "b", "a"]))
    assert first is same
    sql = first.on(every_backend.backend).sql
    assert ("'a'" in sql, "'b'" in sql) == (True, True)
    with pytest.raises(ValueError, match="a'"):
        worded.statement({"kinds": ["a'"]}, paged=False).on(every_backend.backend)


def test_a_list_may_show_the_columns_of_its_order_under_other_names(scratch: StateStore) -> None:
    """house H-12: in one range of an index, and in several that are merged."""
    shown = [c.id, c.at.label("made_at"), c.kind]
    listing = Listing("renamed", shown, order=[c.at, c.id], spread={"kinds": c.kind})
    at = {f"t{number}": START + timedelta(seconds=number) for number in range(5)}
    stored(scratch, [{"id": key, "at": made_at, "kind": "a", "number": 0} for key, made_at in at.items()])
    pages = [["t4", "t3"], ["t2", "t1"], ["t0"]]
    assert every_page(scratch, listing, 2) == every_page(scratch, listing, 2, kinds=["a", "b"]) == pages
    first = scratch._scope.read(lambda unit: listing.page(unit, limit=1))
    assert first.items[0]["made_at"] == at["t4"]
