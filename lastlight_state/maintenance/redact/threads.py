"""The threads of checkpoints and the states of a person, which go whole: nobody here can read what is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from lastlight_state.checkpoints import removing
from lastlight_state.checkpoints.statements import TABLES
from lastlight_state.checkpoints.tables import THREADS
from lastlight_state.db import columns
from lastlight_state.db.keyed import IdRow, KeyRow, family, rows
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.receipts import Receipt
from lastlight_state.states.models import STATES

_c = THREADS.c
_person = sa.bindparam("person", type_=columns.Text)

#: Found by a scan: a person is erased rarely.
_OWN = prepared(sa.select(_c.id.label("key")).where(_c.user == _person).order_by(_c.id), KeyRow)
_LOCK = family(
    lambda keys: sa.select(_c.id).where(_c.id.in_(keys), _c.user == _person).order_by(_c.id).with_for_update(), IdRow
)
_OWN_STATES = prepared(
    sa.select(STATES.c.id.label("key")).where(STATES.c.user == _person).order_by(STATES.c.id), KeyRow
)
_REMOVE_STATES = family(lambda keys: sa.delete(STATES).where(STATES.c.id.in_(keys), STATES.c.user == _person))
_COUNT = {
    str(table.name): family(
        lambda keys, table=table: sa.select(sa.func.count().label("rows")).where(table.c.thread_id.in_(keys))
    )
    for table in TABLES
}


def of(unit: Unit, person: str) -> list[str]:
    """Return the threads of a person."""
    return [row["key"] for row in unit.rows(_OWN, {"person": person})]


def counted(unit: Unit, ids: Collection[str]) -> Counter[str]:
    """Return how many rows these threads have, by table."""
    found = Counter({table: sum(row["rows"] for row in rows(unit, count, ids)) for table, count in _COUNT.items()})
    found[str(THREADS.name)] = len(ids)
    return +found


def remove(person: str, key: str, unit: Unit, _receipt: Receipt, _at: datetime) -> Counter[str]:
    """Remove a thread with everything of it, if it is the person's now. Returns the rows by table."""
    removed: Counter[str] = Counter()
    for row in list(rows(unit, _LOCK, [key], {"person": person})):
        removed += removing.thread(unit, row["id"])
    return removed


def states_of(unit: Unit, person: str) -> list[str]:
    """Return the states of a person, expired ones too."""
    return [row["key"] for row in unit.rows(_OWN_STATES, {"person": person})]


def remove_states(person: str, keys: Collection[str], unit: Unit, _receipt: Receipt, _at: datetime) -> Counter[str]:
    """Remove those of these states that are the person's now."""
    statement, named = _REMOVE_STATES.of(list(keys))
    return Counter({str(STATES.name): unit.change(statement, {**named, "person": person})})
