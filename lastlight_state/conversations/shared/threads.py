"""Removes rows that conversation sessions share: forked branches, message orders, and messages.

An order is removed with its last owner. A message of a removed session is removed, together with its deliveries, when
no order, session or branch refers to it any more and all its deliveries are acknowledged. A message to which no session
ever referred is not examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.conversations.shared.references import (
    HOLDERS,
    ORDERS,
    OWNERS,
    POINTED,
    POINTERS,
    POINTING,
    FoundPair,
    links,
)
from lastlight_state.conversations.tables import BRANCHES, DELIVERIES, LINKS, MESSAGES, PROGRESSIONS
from lastlight_state.db.lists.filters import chunks, family, rows
from lastlight_state.db.rows.statements import Family
from lastlight_state.db.units.unit import Unit

_b, _p, _l, _m, _d = BRANCHES.c, PROGRESSIONS.c, LINKS.c, MESSAGES.c, DELIVERIES.c

_fork = BRANCHES.alias("fork")


#: The other sessions that have forks of a session's branches.
WAITS: Family[FoundPair] = family(
    lambda keys: (
        sa.select(_b.session_id.label("key"), _fork.c.session_id.label("other"))
        .select_from(BRANCHES.join(_fork, _fork.c.parent_branch_id == _b.id))
        .where(_b.session_id.in_(keys), _fork.c.session_id != _b.session_id)
        .distinct()
    ),
    tuple,
)
#: How many links orders have.
LENGTHS: Family[tuple[str, int]] = family(
    lambda keys: sa.select(_p.id.label("key"), (_p.next_ord - _p.start_ord).label("rows")).where(_p.id.in_(keys)),
    tuple,
)
#: Those of these messages that nobody has acknowledged yet, and how often the others were delivered.
OPEN: Family[tuple[str]] = family(
    lambda keys: sa.select(_d.message_id.label("key")).where(_d.message_id.in_(keys), _d.acked_at.is_(None)).distinct(),
    tuple,
)
DELIVERED: Family[tuple[int]] = family(
    lambda keys: sa.select(sa.func.count().label("rows")).where(_d.message_id.in_(keys)), tuple
)
#: Those of these messages that something refers to, open deliveries included.
USED: Family[tuple[str]] = family(
    lambda keys: sa.union(
        sa.select(_l.message_id.label("key")).where(_l.message_id.in_(keys)),
        sa.select(_d.message_id).where(_d.message_id.in_(keys), _d.acked_at.is_(None)),
        *(sa.select(column).where(column.in_(keys)) for column, _ in POINTERS),
    ),
    tuple,
)


def _lock_family(column: Any, among: Any) -> Family:
    return family(lambda keys: sa.select(column).where(among.in_(keys)).order_by(column).with_for_update())


def _removal(column: Any) -> Family:
    return family(lambda keys: sa.delete(column.table).where(column.in_(keys)))


LOCK_BRANCHES = _lock_family(_b.id, _b.session_id)
LOCK_ORDERS = _lock_family(_p.id, _p.id)
LOCK_MESSAGES = _lock_family(_m.id, _m.id)
LOCK_DELIVERIES = family(
    lambda keys: sa.select(_d.ord).where(_d.message_id.in_(keys)).order_by(_d.owner, _d.ord).with_for_update()
)
REMOVE_LINKS = _removal(_l.progression_id)
REMOVE_ORDERS = _removal(_p.id)
REMOVE_DELIVERIES = _removal(_d.message_id)
REMOVE_MESSAGES = _removal(_m.id)


class OrdersAndMessages(NamedTuple):
    """The ids of the message orders of some sessions, and of the messages that the sessions or branches point to."""

    orders: set[str]
    messages: set[str]


class Threads:
    """Locks, counts and removes rows that sessions share. A prune uses it (it implements `kind.Shared`)."""

    tables: tuple[str, ...] = ("progression_links", "progressions", "exchange_deliveries", "messages")

    def waits(self, unit: Unit, keys: Sequence[str]) -> dict[str, set[str]]:
        """Return, for each session, the other sessions that have forks of its branches."""
        found: dict[str, set[str]] = {}
        for key, other in rows(unit, WAITS, keys):
            found.setdefault(key, set()).add(other)
        return found

    def lock(self, unit: Unit, keys: Sequence[str]) -> None:
        """Lock the branches of these sessions, so that no other transaction can fork them."""
        list(rows(unit, LOCK_BRANCHES, keys))

    def hold(self, unit: Unit, keys: Sequence[str]) -> None:
        """Lock the message orders of these sessions, their messages and the messages' deliveries."""
        held = self.referenced_keys(unit, keys)
        list(rows(unit, LOCK_ORDERS, held.orders))
        messages = held.messages | {message for order in held.orders for _, message in links(unit, order)}
        list(rows(unit, LOCK_MESSAGES, messages))
        list(rows(unit, LOCK_DELIVERIES, messages))

    def sizes(self, unit: Unit, keys: Sequence[str]) -> dict[str, int]:
        """Return each session's size in rows: its orders, the orders' links, and the messages of its longest order."""
        owned: dict[str, list[str]] = {key: [] for key in keys}
        for key, order in rows(unit, ORDERS, keys):
            owned[key].append(order)
        names = {order for orders in owned.values() for order in orders}
        lengths = dict(rows(unit, LENGTHS, names))
        return {
            key: sum(1 + lengths[order] for order in orders) + max((lengths[order] for order in orders), default=0)
            for key, orders in owned.items()
        }

    def count(self, unit: Unit, keys: Sequence[str]) -> Counter[str]:
        """Count, by table, the shared rows that one `release` of all these sessions together would remove."""
        going = set(keys)
        held = self.referenced_keys(unit, keys)
        orders = held.orders - {order for order, owner in rows(unit, OWNERS, held.orders) if owner not in going}
        counts = Counter({"progressions": len(orders)})
        messages = held.messages
        for order in sorted(orders):
            held_here = [message for _, message in links(unit, order)]
            counts["progression_links"] += len(held_here)
            messages.update(held_here)
        staying = {message for message, order in rows(unit, HOLDERS, messages) if order not in orders}
        staying |= {message for message, owner in rows(unit, POINTING, messages) if owner not in going}
        staying |= {message for (message,) in rows(unit, OPEN, messages)}
        counts["messages"] = len(messages) - len(staying)
        counts["exchange_deliveries"] = sum(count for (count,) in rows(unit, DELIVERED, messages - staying))
        return +counts

    def referenced_keys(self, unit: Unit, keys: Sequence[str]) -> OrdersAndMessages:
        """Return the orders of these sessions, and the messages that they point to."""
        orders = {order for _, order in rows(unit, ORDERS, keys)}
        return OrdersAndMessages(orders, {message for (message,) in rows(unit, POINTED, keys)})

    def release(self, unit: Unit, held: OrdersAndMessages) -> Counter[str]:
        """Remove orders that have no owner and messages without a reference.

        Return the numbers of removed rows by table.
        """
        list(rows(unit, LOCK_ORDERS, held.orders))
        orders = held.orders - {order for order, _ in rows(unit, OWNERS, held.orders)}
        messages = held.messages | {message for order in orders for _, message in links(unit, order)}
        counts = Counter({"progression_links": _remove_rows(unit, REMOVE_LINKS, orders)})
        counts["progressions"] = _remove_rows(unit, REMOVE_ORDERS, orders)
        unused = _lock_unused(unit, messages, USED)
        counts["exchange_deliveries"] = _remove_rows(unit, REMOVE_DELIVERIES, unused)
        counts["messages"] = _remove_rows(unit, REMOVE_MESSAGES, unused)
        return +counts


def removed_unused(unit: Unit, messages: set[str], used: Family[tuple[str]]) -> int:
    """Remove, under their locks, the messages that are not among the ``used``. Returns how many were removed."""
    return _remove_rows(unit, REMOVE_MESSAGES, _lock_unused(unit, messages, used))


def _lock_unused(unit: Unit, messages: set[str], used: Family[tuple[str]]) -> set[str]:
    list(rows(unit, LOCK_MESSAGES, messages))
    return messages - {message for (message,) in rows(unit, used, messages)}


def _remove_rows(unit: Unit, family: Family, keys: Iterable[str]) -> int:
    return sum(unit.change(*family.of(chunk)) for chunk in chunks(keys))
