"""Rows of a bundle that live on where they are stored: inboxes fill, deliveries are acknowledged, chunks are replaced.

So what is stored of one stays as it is, whatever the bundle says. Refused are only a delivery at a position where the
inbox has another message, and chunks for a namespace whose embeddings have another length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.exchange.sending import ordered
from lastlight_state.conversations.tables import (
    DELIVERIES,
    INBOXES,
    LINKS,
    NAMESPACES,
    PROGRESSIONS,
    SESSIONS,
    TRANSITIONS,
    VECTORS,
)
from lastlight_state.db.keyed import family, rows
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists
from lastlight_state.journal.tables import SEQUENCES
from lastlight_state.maintenance import placing
from lastlight_state.maintenance.counters.counted import COUNTERS
from lastlight_state.workflows.tables import RUNS

_d, _i, _n, _p, _t = DELIVERIES.c, INBOXES.c, NAMESPACES.c, PROGRESSIONS.c, TRANSITIONS.c

_DELIVERED = family(lambda keys: sa.select(_d.message_id, _d.owner).where(_d.message_id.in_(keys)))
_MOVED = family(lambda keys: sa.select(_t.session_id, _t.seq).where(_t.session_id.in_(keys)))
_ORDERS = family(lambda keys: sa.select(_p.id).where(_p.id.in_(keys)))
_LENGTHS = family(lambda keys: sa.select(_n.namespace, _n.dimensions).where(_n.namespace.in_(keys)))
_next = bind("next_ord", _i.next_ord)
_RAISE = prepared(
    sa.update(INBOXES).where(_i.owner == bind("owner", _i.owner), _i.next_ord < _next).values(next_ord=_next)
)

#: Of runs and sessions. Those of inboxes and orders are seen to where their rows are stored.
_OWN_COUNTERS = [one for one in COUNTERS if one.column.table in (RUNS, SEQUENCES, SESSIONS)]

Row = dict[str, Any]


def wanted(unit: Unit, table: sa.Table, given: list[Row], *, keeps: bool) -> list[Row]:
    """Return those of these rows that can be stored.

    ``keeps``: chunks of another length, and transitions with a number that another one has, are left out, not refused.
    """
    if table is DELIVERIES:
        there = {(row["owner"], row["message_id"]) for row in _found(unit, _DELIVERED, given, "message_id")}
        return [row for row in given if (row["owner"], row["message_id"]) not in there]
    if table is TRANSITIONS and keeps:
        taken = {(row["session_id"], row["seq"]) for row in _found(unit, _MOVED, given, "session_id")}
        return [row for row in given if (row["session_id"], row.get("seq")) not in taken]
    if table not in (NAMESPACES, VECTORS):
        return given
    lengths = {row["namespace"]: row["dimensions"] for row in _found(unit, _LENGTHS, given, "namespace")}
    other = [row for row in given if row.get("dimensions") != lengths.get(row["namespace"], row.get("dimensions"))]
    if other and not keeps:
        raise AlreadyExists(NAMESPACES.name, other[0]["namespace"], problem="has embeddings of another length")
    return [row for row in given if row not in other] if other else given


def stored_orders(unit: Unit, given: Sequence[Row]) -> set[str]:
    """Return those of these orders that are stored."""
    return {row["id"] for row in _found(unit, _ORDERS, given, "id")}


def new_links(unit: Unit, given: Sequence[Row], held: set[str], *, keeps: bool) -> list[Row]:
    """Return the links but for those that orders of ``held`` lack. Raises `AlreadyExists` for one, unless ``keeps``."""
    asked = {LINKS.name: [row for row in given if row["progression_id"] in held]}
    lacking = placing.missing(unit, asked, keeps=True).get(LINKS.name, [])
    if lacking and not keeps:
        raise AlreadyExists(PROGRESSIONS.name, lacking[0]["progression_id"], problem="has not this message")
    left_out = {(row["progression_id"], row["ord"]) for row in lacking}
    return [row for row in given if (row["progression_id"], row["ord"]) not in left_out]


def raise_numbers(unit: Unit, inboxes: Iterable[Row]) -> None:
    """Let inboxes give no number that a delivery of the bundle has. Locked in the order in which senders lock them."""
    numbers = {row["owner"]: row.get("next_ord", 0) for row in inboxes}
    for owner in ordered(numbers):
        unit.change(_RAISE, {"owner": owner, "next_ord": numbers[owner]})


def raise_counters(unit: Unit, keys: Iterable[str]) -> None:
    """Let these runs or sessions give no number that a row of theirs has: they stayed as they were, and got rows."""
    for key in sorted(keys):
        for counter in _OWN_COUNTERS:
            unit.row(counter.mend, {"key": key})


def _found(unit: Unit, statements: Any, given: Sequence[Row], name: str) -> Iterable[Row]:
    return rows(unit, statements, {row[name] for row in given})
