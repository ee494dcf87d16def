from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from support.scratch import NOTES, THINGS, scratch_tables
from support.sent import recorded

from lastlight_state import StateStore
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.rows.writes import Chain, from_head
from lastlight_state.errors import Conflict
from lastlight_state.testing import Database

AT = datetime(2026, 2, 3, tzinfo=UTC)
c, n = THINGS.c, NOTES.c

INSERT = statement_of(sa.insert(THINGS).values(id=sa.bindparam("id"), at=sa.bindparam("at", type_=c.at.type), number=0))
RISE = Chain(
    sa.update(THINGS).where(c.id == sa.bindparam("id")).values(number=c.number + 1).returning(c.id, c.number, c.at),
    into=NOTES,
    values={
        "thing_id": from_head("id"),
        "at": from_head("at"),
        "text": sa.bindparam("text", type_=n.text.type),
    },
    returning=(n.text, n.at),
)
READ = statement_of(sa.select(n.thing_id, n.at, n.text).order_by(n.number))


def begun(store: StateStore) -> None:
    store._scope.write(lambda unit: unit.change(INSERT, {"id": "t1", "at": AT}))


def rise(store: StateStore, thing: str = "t1", text: str | None = "up") -> dict[str, Any] | None:
    return store._scope.chain_runner(lambda unit: unit.chain(RISE, {"id": thing, "text": text}))


def test_both_writes_take_place_and_both_results_come_back(scratch: StateStore) -> None:
    """backends B-63: two writes that are one."""
    begun(scratch)
    assert rise(scratch) == {"id": "t1", "number": 1, "at": AT, "new_text": "up", "new_at": AT}
    assert rise(scratch, text=None) == {"id": "t1", "number": 2, "at": AT, "new_text": None, "new_at": AT}
    notes = scratch._scope.read(lambda unit: unit.rows(READ))
    assert notes == [{"thing_id": "t1", "at": AT, "text": text} for text in ("up", None)]


def test_a_head_that_changes_nothing_records_nothing(scratch: StateStore) -> None:
    """house H-8: zero rows changed is an outcome with a name."""
    assert rise(scratch, "none") is None
    assert scratch._scope.read(lambda unit: unit.rows(READ)) == []


def test_a_tail_that_is_refused_undoes_the_head(scratch: StateStore) -> None:
    """backends B-63: all or nothing."""
    begun(scratch)
    bad = Chain(
        sa.update(THINGS).where(c.id == sa.bindparam("id")).values(number=c.number + 1).returning(c.id),
        into=NOTES,
        values={"thing_id": sa.literal_column("'nobody'", n.thing_id.type)},
    )
    with pytest.raises(Conflict) as raised:
        scratch._scope.chain_runner(lambda unit: unit.chain(bad, {"id": "t1"}))
    assert raised.value.code == "foreign_key"
    value = statement_of(sa.select(c.number))
    assert scratch._scope.read(lambda unit: unit.value(value)) == 0


def test_on_postgres_a_chain_is_one_round_trip_and_on_sqlite_one_transaction(database: Database) -> None:
    """backends B-36: one round trip, not three."""
    with recorded(database) as (store, sent), scratch_tables(store):
        begun(store)
        sent.clear()
        rise(store)
        kinds = [text.split()[0] for text in sent]
    assert kinds == (["WITH"] if database.name == "postgresql" else ["BEGIN", "UPDATE", "INSERT", "COMMIT"])
