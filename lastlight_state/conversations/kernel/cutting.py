"""Taking messages off the end of an order. What stands before them is not looked at, however long the order is."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from lastlight_state.conversations import words
from lastlight_state.conversations.kernel import orders, sessions
from lastlight_state.conversations.kernel.feeds import news
from lastlight_state.conversations.tables import LINKS, PROGRESSIONS
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict

_p, _l = PROGRESSIONS.c, LINKS.c
_ITS = _l.progression_id == bind("progression_id", _l.progression_id)

#: Takes links out of their order, by which they may be deleted.
_TAKE_OUT = prepared(sa.update(LINKS).where(_ITS, _l.ord >= bind("from_ord", _l.ord)).values(ord=number(-1) - _l.ord))
_DROP = prepared(sa.delete(LINKS).where(_ITS, _l.ord < number(0)))
_SHORTEN = prepared(
    sa.update(PROGRESSIONS)
    .where(_p.id == bind("progression_id", _p.id))
    .values(next_ord=bind("from_ord", _p.next_ord), version=_p.version + number(1))
)


def first_of_last(order: orders.OrderHead, count: int) -> int:
    """Return the first of the last positions of an order, so many of them as it has.

    An order that goes on an inherited one ends no earlier than its own links begin; `refuse_inherited` says so.
    """
    first = order["next_ord"] - count
    return first if order["start_ord"] else max(first, 0)


def refuse_inherited(unit: Unit, order: orders.OrderHead, from_ord: int) -> None:
    """Refuse to change an order from a position on that belongs to its branch's parent, or that a fork has inherited.

    Raises `Conflict` ``fork_prefix``.
    """
    start = order["start_ord"]
    if from_ord < start:
        problem = f"its positions below {start} are inherited: position {from_ord} must stay"
        raise Conflict(f"progression {order['id']!r}: {problem}", code=words.FORK_PREFIX, ord=from_ord)
    inherited = unit.value(orders.INHERITED, {"progression_id": order["id"]}) or 0
    if from_ord < min(inherited, order["next_ord"]):
        problem = f"forks have inherited its positions below {inherited}: position {from_ord} must stay"
        raise Conflict(f"progression {order['id']!r}: {problem}", code=words.FORK_PREFIX, ord=from_ord)


def drop(unit: Unit, progression_id: str, from_ord: int) -> None:
    """Delete the links of an order from a position on."""
    unit.change(_TAKE_OUT, {"progression_id": progression_id, "from_ord": from_ord})
    unit.change(_DROP, {"progression_id": progression_id})


def cut(
    unit: Unit,
    listeners: Listeners,
    order: orders.OrderHead,
    from_ord: int,
    now: datetime,
    *,
    locks: sessions.Locks,
    branch_id: str | None = None,
) -> int:
    """Take the messages from a position on off a locked order, and return how many they are.

    The caller has also locked the sessions that have the order. They are told, and point to the ends of their pools.
    Raises `Conflict` ``fork_prefix``.
    """
    count = order["next_ord"] - from_ord
    if count <= 0:
        return 0
    refuse_inherited(unit, order, from_ord)
    drop(unit, order["id"], from_ord)
    unit.change(_SHORTEN, {"progression_id": order["id"], "from_ord": from_ord})
    told = news("progression.truncated", branch_id=branch_id, progression_id=order["id"], first=from_ord, count=count)
    sessions.tell_all(unit, listeners, order["id"], now, told, locks=locks)
    return count
