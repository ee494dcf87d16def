"""Message orders (progressions): lock them, append to them, and look up the messages that they hold.

An append locks the order's row until the commit. So positions have no gaps, and a check of the order's messages stays
true until the new links are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import words
from lastlight_state.conversations.records import Appended
from lastlight_state.conversations.tables import BRANCHES, LINKS, PROGRESSIONS, SESSIONS
from lastlight_state.db.rows.statements import Statement, bind, number, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import NotFound


class OrderHead(NamedTuple):
    """An order as a unit that locks it finds it."""

    id: str
    start_ord: int
    next_ord: int
    version: int


class NewOrder(TypedDict):
    """The row of an order without links."""

    id: str
    created_at: datetime
    created_at_unix: float | None
    name: str | None
    node_metadata: str | None
    extra: str | None
    start_ord: int
    next_ord: int


_p, _l, _b = PROGRESSIONS.c, LINKS.c, BRANCHES.c

_wanted, _added, _segments = elements_table("ids"), elements_table("added"), elements_table("segments")

_LOCK = statement_of(
    sa.select(_p.id, _p.start_ord, _p.next_ord, _p.version)
    .where(AmongFew(_p.id, sa.select(member_of(_wanted.c.value, "id"))))
    .order_by(_p.id)
    .with_for_update(),
    OrderHead,
)
_INSERT = statement_of(
    sa.insert(PROGRESSIONS).values(
        {column.name: bind(column.name, column) for column in PROGRESSIONS.columns if column.name != "version"}
    )
)
_LINK = statement_of(sa.insert(LINKS).values({column.name: bind(column.name, column) for column in LINKS.columns}))
_known = bind("session_id", SESSIONS.c.id)
#: A literal column, because in RETURNING for SQLite, SQLAlchemy omits table names, even inside subqueries.
_grown: sa.ColumnClause[str] = sa.literal_column("progressions.id", _p.id.type)
#: Orders that have grown, and whether another session has them as well.
_EXTEND: Statement[tuple[str, bool]] = statement_of(
    sa.update(PROGRESSIONS)
    .where(_p.id == member_of(_added.c.value, "id"))
    .values(
        next_ord=_p.next_ord + sa.cast(member_of(_added.c.value, "count"), _p.next_ord.type),
        version=_p.version + number(1),
    )
    .returning(
        _p.id,
        sa.or_(
            sa.exists().where(SESSIONS.c.progression_id == _grown, SESSIONS.c.id != _known),
            sa.exists().where(_b.progression_id == _grown, _b.session_id != _known),
        ).label("shared"),
    ),
    tuple,
)
#: Raises the version of an order whose content changed but whose length did not.
CHANGED = statement_of(
    sa.update(PROGRESSIONS).where(_p.id == bind("progression_id", _p.id)).values(version=_p.version + number(1))
)
_owner = BRANCHES.alias("owner")
#: The greatest fork position among the forks of the branches that have an order.
INHERITED = statement_of(
    sa.select(sa.func.max(_b.forked_at_ord)).where(
        _b.parent_branch_id.in_(
            sa.select(_owner.c.id).where(_owner.c.progression_id == bind("progression_id", _b.progression_id))
        )
    )
)
#: All message ids of an order by position, without a limit.
LINKED = statement_of(
    sa.select(_l.message_id).where(_l.progression_id == bind("progression_id", _l.progression_id)).order_by(_l.ord)
)
#: Where these messages stand in these orders.
_HELD: Statement[tuple[str, str, int]] = statement_of(
    sa.select(_l.progression_id, _l.message_id, _l.ord).where(
        AmongFew(_l.message_id, sa.select(member_of(_wanted.c.value, "id"))),
        AmongFew(_l.progression_id, sa.select(member_of(_segments.c.value, "id"))),
    ),
    tuple,
)


def lock_orders(unit: Unit, ids: Sequence[str]) -> dict[str, OrderHead]:
    """Lock message orders by id until the transaction ends, and return them by id. Raises `NotFound`."""
    rows = unit.rows(_LOCK, {"ids": as_list([{"id": one} for one in sorted(set(ids), key=str.encode)])})
    found = {order.id: order for order in rows}
    for one in ids:
        if one not in found:
            raise NotFound(words.PROGRESSION, one)
    return found


def create(unit: Unit, row: NewOrder) -> None:
    """Insert a message order without links. ``row`` has a value for every column except ``version``."""
    unit.change(_INSERT, row)


def extend(
    unit: Unit, orders: Mapping[str, OrderHead], added: Mapping[str, Sequence[str]], session_id: str
) -> list[str]:
    """Append messages to message orders that this transaction has locked.

    Returns the ids of the extended orders that another session has too, as its pool or through a branch.
    """
    growing = {progression_id: ids for progression_id, ids in added.items() if ids}
    link(unit, {one: (orders[one].next_ord, ids) for one, ids in growing.items()})
    if not growing:
        return []
    counts = [{"id": progression_id, "count": len(ids)} for progression_id, ids in growing.items()]
    grown = unit.rows(_EXTEND, {"added": as_list(counts), "session_id": session_id})
    return [progression_id for progression_id, is_shared in grown if is_shared]


def link(unit: Unit, placed: Mapping[str, tuple[int, Sequence[str]]]) -> None:
    """Insert links. ``placed`` maps a message order's id to the first position and the message ids from there on."""
    rows = [
        {"progression_id": progression_id, "ord": first + i, "message_id": message_id}
        for progression_id, (first, ids) in placed.items()
        for i, message_id in enumerate(ids)
    ]
    if len(rows) == 1:
        unit.change(_LINK, rows[0])
    elif rows:
        unit.insert(LINKS, _LINK, rows)


def held_messages(unit: Unit, segments: Mapping[str, int], ids: Sequence[str]) -> dict[str, set[str]]:
    """Return, for each order, which of the given messages it has below the position in ``segments``."""
    if not ids:
        return {}
    values = {name: as_list([{"id": one} for one in given]) for name, given in (("segments", segments), ("ids", ids))}
    found: dict[str, set[str]] = {}
    for progression_id, message_id, ord_ in unit.rows(_HELD, values):
        if ord_ < segments[progression_id]:
            found.setdefault(progression_id, set()).add(message_id)
    return found


def unheld(ids: Sequence[str], held: AbstractSet[str]) -> list[str]:
    """Return the ids that are not in ``held``, without duplicates, in the given order."""
    return [one for one in dict.fromkeys(ids) if one not in held]


def append_result(order: OrderHead, new: Sequence[str], given: Sequence[Any]) -> Appended:
    """Return what an append did to an order, whose row is from before it."""
    first = order.next_ord if new else None
    return Appended.of({"first_ord": first, "appended": len(new), "skipped": len(given) - len(new)})


def fresh(
    progression_id: str,
    created: tuple[datetime, float | None],
    *,
    start: int = 0,
    name: str | None = None,
    node_metadata: str | None = None,
) -> NewOrder:
    """Return the row for a new message order without links, whose first message will get position ``start``."""
    return {
        "id": progression_id,
        "created_at": created[0],
        "created_at_unix": created[1],
        "name": name,
        "node_metadata": node_metadata,
        "extra": None,
        "start_ord": start,
        "next_ord": start,
    }
