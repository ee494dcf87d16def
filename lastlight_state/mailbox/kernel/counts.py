"""How much waits in a mailbox, as either side sees it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.statements import constant
from lastlight_state.mailbox import models, words
from lastlight_state.mailbox.kernel import acks, deliveries, messages, waiting
from lastlight_state.mailbox.kernel.readings import Both, Columns, Reading
from lastlight_state.mailbox.kernel.waiting import Poll
from lastlight_state.mailbox.records import MailboxStatus
from lastlight_state.mailbox.shown import CountRow


def _count(table: sa.Table, status: str) -> Reading[CountRow]:
    def make(columns: Columns) -> sa.Select[Any]:
        found = sa.select(sa.func.count().label("rows")).select_from(table)
        return found.where(columns["status"] == constant(status))

    return Reading(table, make, row=CountRow)


_PENDING, _PAUSED, _FAILED = (_count(models.MESSAGES_IN, status) for status in ("pending", "paused", "failed"))
_UNDELIVERABLE = _count(models.DELIVERED, "failed")


def _rows(table: sa.Table) -> Reading[CountRow]:
    """Return all rows.

    ``count(*)`` alone is one step for SQLite, which no clock ends; ``count(1)`` is a step for each row.
    """
    counted = sa.select(sa.func.count(sa.literal_column("1")).label("rows")).select_from(table)
    return Reading(table, lambda _: counted, row=CountRow)


_MESSAGES = tuple(_rows(table) for table in (models.MESSAGES_IN, models.MESSAGES_OUT))
_RECEIPTS = _rows(models.DELIVERED)


def stored(both: Both) -> tuple[int, int]:
    """Return how many messages, and how many receipts there are."""
    return sum(_number(both, reading) for reading in _MESSAGES), _number(both, _RECEIPTS)


def status(both: Both, now: datetime) -> MailboxStatus:
    """The counts of one moment of each file. ``due`` is what an agent would be woken for."""
    poll = Poll(now, words.MOST_POLLED, frozenset({"system"}))
    claimed = {ack["message_id"]: ack for ack in both.rows(acks.PROCESSING)}
    heads = both.keyed(messages.HEADS_BY_ID, list(claimed))
    return MailboxStatus(
        pending=_number(both, _PENDING),
        due=sum(1 for _ in waiting.open_to(poll, both, messages.triggers(both))),
        claimed=sum(acks.is_live(claimed[head["id"]], head) for head in heads if head["status"] in words.LIVE),
        paused=_number(both, _PAUSED),
        failed=_number(both, _FAILED),
        undelivered=sum(1 for _ in deliveries.unsettled(both)),
        undeliverable=_number(both, _UNDELIVERABLE),
    )


def _number(both: Both, reading: Reading[CountRow]) -> int:
    found = both.rows(reading)
    return int(found[0]["rows"]) if found else 0
