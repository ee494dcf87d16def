"""The reads and the write that all repositories have in common."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from support.scratch import THINGS

from lastlight_state import StateStore
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Record
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.errors import InvalidValue, NotFound

AT = datetime(2026, 2, 3, tzinfo=UTC)
c = THINGS.c
INSERT = statement_of(
    sa.insert(THINGS)
    .values(id=sa.bindparam("id"), at=sa.bindparam("at", type_=c.at.type), kind=sa.bindparam("kind"))
    .returning(c.id, c.kind)
)
CHANGE = statement_of(sa.update(THINGS).where(c.id == sa.bindparam("key")).values(kind="z").returning(c.id, c.kind))
GET = statement_of(sa.select(c.id, c.kind).where(c.id == sa.bindparam("id")))
ALL = statement_of(sa.select(c.id, c.kind).order_by(c.id))
COUNT = statement_of(sa.select(sa.func.count()).select_from(THINGS))
LIST = Listing("things", [c.id, c.at, c.kind], order=[c.at, c.id], filters={"kind": c.kind == sa.bindparam("kind")})


class Thing(Record):
    id: str
    kind: str | None


@pytest.fixture
def things(scratch: StateStore) -> Repository:
    """A repository over three things."""
    repository = Repository(scratch._context)
    for name, kind in (("t1", "a"), ("t2", "b"), ("t3", "a")):
        assert repository._change_row_as(Thing, INSERT, {"id": name, "kind": kind, "at": AT}) == Thing(
            id=name, kind=kind
        )
    return repository


def test_one_row_is_found_or_is_none(things: Repository) -> None:
    assert things._find_as(Thing, GET, {"id": "t1"}) == Thing(id="t1", kind="a")
    assert things._find_as(Thing, GET, {"id": "t9"}) is None


def test_a_row_that_must_be_there_is_not_found_by_its_kind_and_key(things: Repository) -> None:
    assert things._get_row_as(Thing, GET, {"id": "t1"}, kind="thing", key="t1").kind == "a"
    with pytest.raises(NotFound, match="t9") as raised:
        things._get_row_as(Thing, GET, {"id": "t9"}, kind="thing", key="t9")
    assert raised.value.kind == "thing"


def test_a_key_that_no_database_can_hold_is_an_invalid_value_on_both(things: Repository) -> None:
    with pytest.raises(InvalidValue, match="NUL"):
        things._get_row_as(Thing, GET, {"id": "t\0"}, kind="thing", key="t\0")


def test_all_rows_and_a_single_value_are_read(things: Repository) -> None:
    assert [thing.id for thing in things._list_rows_as(Thing, ALL)] == ["t1", "t2", "t3"]
    assert things._value(COUNT) == 3
    assert things._value(GET, {"id": "t9"}) is None


def test_a_write_gives_its_row_or_none_where_it_changed_nothing(things: Repository) -> None:
    assert things._change_row_as(Thing, CHANGE, {"key": "t2"}, repeatable=True) == Thing(id="t2", kind="z")
    assert things._change_row_as(Thing, CHANGE, {"key": "t9"}) is None


def test_a_page_is_filtered_limited_and_goes_on(things: Repository) -> None:
    """house H-12."""
    first = things._page_as(LIST, Thing.of, {"kind": "a"}, 1, None)
    rest = things._page_as(LIST, Thing.of, {"kind": "a"}, 1, first.next_page_token)
    assert [thing.id for thing in (*first, *rest)] == ["t3", "t1"]
    assert len(things._page_as(LIST, Thing.of, None, 500, None)) == 3
    for limit in (0, 501):
        with pytest.raises(InvalidValue, match="limit: "):
            things._page_as(LIST, Thing.of, None, limit, None)
