"""The row of a session, as appends, branches and forks meet it: locked first, moved at the end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from lastlight_state.conversations import words
from lastlight_state.conversations.kernel import orders
from lastlight_state.conversations.tables import SESSIONS
from lastlight_state.db import valid
from lastlight_state.db.base import later_of
from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.db.unit import Unit

_c = SESSIONS.c
_THIS = _c.id == bind("session_id", _c.id)
_at = bind("at", _c.updated_at)

_LOCK = prepared(sa.select(_c.progression_id).where(_THIS).with_for_update())
_MOVE = prepared(
    sa.update(SESSIONS).where(_THIS).values(updated_at=later_of(_c.updated_at, _at), version=_c.version + number(1))
)
_MOVE_ON = prepared(
    sa.update(SESSIONS)
    .where(_THIS)
    .values(
        first_msg_id=sa.func.coalesce(_c.first_msg_id, bind("first", _c.id)),
        last_msg_id=sa.func.coalesce(bind("last", _c.id), _c.last_msg_id),
        last_message_at=later_of(sa.func.coalesce(_c.last_message_at, _at), _at),
        updated_at=later_of(_c.updated_at, _at),
        version=_c.version + number(1),
    )
)


def locked(unit: Unit, session_id: str) -> str:
    """Lock a session until the unit ends; the id of its pool. Raises `NotFound`."""
    pool: str | None = unit.value(_LOCK, {"session_id": session_id})
    if pool is None:
        raise valid.not_found(words.SESSION, session_id)
    return pool


def move(unit: Unit, session_id: str, at: datetime) -> None:
    """Say that the session changed."""
    unit.change(_MOVE, {"session_id": session_id, "at": at})


def move_on(unit: Unit, session_id: str, at: datetime, *, first: str | None, last: str | None) -> None:
    """Say that messages were appended, or with None that some were revised."""
    unit.change(_MOVE_ON, {"session_id": session_id, "at": at, "first": first, "last": last})


def pool_messages(unit: Unit, pool: str, ids: Sequence[str]) -> list[str]:
    """Put stored messages into the pool of a session that this unit has locked; those that were not there."""
    found = orders.locked(unit, [pool])
    new = orders.unheld(ids, orders.held(unit, {pool: found[pool]["next_ord"]}, ids).get(pool, set()))
    orders.extend(unit, found, {pool: new})
    return new
