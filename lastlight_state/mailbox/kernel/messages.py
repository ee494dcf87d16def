"""The statements that find messages in either file, and the walk over those that wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import sqlalchemy as sa

from lastlight_state.db.statements import RowT, bind, constant, number
from lastlight_state.mailbox import models
from lastlight_state.mailbox.kernel.readings import Both, Columns, Reading, shown
from lastlight_state.mailbox.rows import DeliveredRow, DestinationsRow, MessagesInRow, MessagesOutRow
from lastlight_state.mailbox.shown import HeadRow

#: What is looked at to decide about an inbound message, without its content.
HEAD = tuple(
    "id seq kind status process_after recurrence series_id tries trigger timestamp on_wake timezone released_at "
    "tries_base".split()
)
#: Rows that one step of a walk reads.
STEP = 200


def _keyed(table: sa.Table, key: str, row: type[RowT]) -> Reading[RowT]:
    return Reading(
        table, lambda columns, values: sa.select(*shown(columns)).where(columns[key].in_(values)), listed=key, row=row
    )


IN_BY_ID, IN_BY_SEQ = _keyed(models.MESSAGES_IN, "id", MessagesInRow), _keyed(models.MESSAGES_IN, "seq", MessagesInRow)
OUT_BY_ID, OUT_BY_SEQ = (
    _keyed(models.MESSAGES_OUT, "id", MessagesOutRow),
    _keyed(models.MESSAGES_OUT, "seq", MessagesOutRow),
)
DELIVERED_BY_ID = _keyed(models.DELIVERED, "message_out_id", DeliveredRow)
DESTINATION_BY_NAME = _keyed(models.DESTINATIONS, "name", DestinationsRow)
HEADS_BY_ID = Reading(
    models.MESSAGES_IN,
    lambda columns, ids: sa.select(*shown(columns, *HEAD)).where(columns["id"].in_(ids)),
    listed="id",
    row=HeadRow,
)


def _pending(columns: Columns, trigger: int) -> sa.ColumnElement[bool]:
    return sa.and_(columns["status"] == constant("pending"), columns["trigger"] == number(trigger))


def _unnumbered(trigger: int) -> Reading[HeadRow]:
    def make(columns: Columns) -> sa.Select[Any]:
        found = sa.select(*shown(columns, *HEAD)).where(_pending(columns, trigger), columns["seq"].is_(None))
        return found.order_by(columns["timestamp"], columns["id"]).limit(number(STEP))

    return Reading(models.MESSAGES_IN, make, row=HeadRow)


def _numbered(trigger: int, *, newest_first: bool) -> Reading[HeadRow]:
    def make(columns: Columns) -> sa.Select[Any]:
        seq = columns["seq"]
        at = bind("at", seq)
        beyond = seq < at if newest_first else seq > at
        found = sa.select(*shown(columns, *HEAD)).where(_pending(columns, trigger), beyond)
        return found.order_by(seq.desc() if newest_first else seq).limit(number(STEP))

    return Reading(models.MESSAGES_IN, make, row=HeadRow)


_TRIGGERS, _CONTEXT = _numbered(1, newest_first=False), _numbered(0, newest_first=True)
_UNNUMBERED_TRIGGERS, _UNNUMBERED_CONTEXT = _unnumbered(1), _unnumbered(0)
_GREATEST = 2**63 - 1


def _paused(columns: Columns) -> sa.Select[Any]:
    at = bind("at", columns["id"])
    found = sa.select(*shown(columns, *HEAD)).where(columns["status"] == constant("paused"), columns["id"] > at)
    return found.order_by(columns["id"]).limit(number(STEP))


_PAUSED = Reading(models.MESSAGES_IN, _paused, row=HeadRow)


def triggers(both: Both) -> Iterator[HeadRow]:
    """Return pending messages that wake the agent, oldest first."""
    yield from both.rows(_UNNUMBERED_TRIGGERS)
    yield from _walk(both, _TRIGGERS, -1)


def context(both: Both) -> Iterator[HeadRow]:
    """Return pending messages that wake nobody, newest first."""
    yield from _walk(both, _CONTEXT, _GREATEST)
    yield from reversed(both.rows(_UNNUMBERED_CONTEXT))


def paused(both: Both) -> Iterator[HeadRow]:
    """Return paused messages, in the order of their ids."""
    return _walk(both, _PAUSED, "", key="id")


def _walk(both: Both, reading: Reading[HeadRow], at: Any, *, key: Literal["seq", "id"] = "seq") -> Iterator[HeadRow]:
    while found := both.rows(reading, {"at": at}):
        yield from found
        at = found[-1][key]
