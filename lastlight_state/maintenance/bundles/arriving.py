"""Rows of a bundle that live on where they are stored: inboxes fill, deliveries are acknowledged, chunks are replaced.

So what is stored of one stays as it is, whatever the bundle says. Refused are only a delivery at a position where the
inbox has another message, and chunks for a namespace whose embeddings have another length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.exchange.sending import ordered
from lastlight_state.conversations.tables import DELIVERIES, INBOXES, NAMESPACES, VECTORS
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.maintenance.references import family, rows

_d, _i, _n = DELIVERIES.c, INBOXES.c, NAMESPACES.c

_DELIVERED = family(lambda keys: sa.select(_d.message_id, _d.owner).where(_d.message_id.in_(keys)))
_LENGTHS = family(lambda keys: sa.select(_n.namespace, _n.dimensions).where(_n.namespace.in_(keys)))
_next = bind("next_ord", _i.next_ord)
_RAISE = prepared(
    sa.update(INBOXES).where(_i.owner == bind("owner", _i.owner), _i.next_ord < _next).values(next_ord=_next)
)

Row = dict[str, Any]


def wanted(unit: Unit, table: sa.Table, given: list[Row], *, keeps: bool) -> list[Row]:
    """Those of these rows that can be stored. ``keeps``: chunks of another length are left out, and not refused."""
    if table is DELIVERIES:
        there = {(row["owner"], row["message_id"]) for row in _found(unit, _DELIVERED, given, "message_id")}
        return [row for row in given if (row["owner"], row["message_id"]) not in there]
    if table not in (NAMESPACES, VECTORS):
        return given
    lengths = {row["namespace"]: row["dimensions"] for row in _found(unit, _LENGTHS, given, "namespace")}
    other = [row for row in given if row.get("dimensions") != lengths.get(row["namespace"], row.get("dimensions"))]
    if other and not keeps:
        raise AlreadyExists(NAMESPACES.name, other[0]["namespace"], problem="has embeddings of another length")
    return [row for row in given if row not in other] if other else given


def raise_numbers(unit: Unit, inboxes: Iterable[Row]) -> None:
    """Let inboxes give no number that a delivery of the bundle has. Locked in the order in which senders lock them."""
    numbers = {row["owner"]: row.get("next_ord", 0) for row in inboxes}
    for owner in ordered(numbers):
        unit.change(_RAISE, {"owner": owner, "next_ord": numbers[owner]})


def _found(unit: Unit, statements: Any, given: Sequence[Row], name: str) -> Iterable[Row]:
    return rows(unit, statements, {row[name] for row in given})
