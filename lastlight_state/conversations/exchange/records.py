"""Records of the exchange."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from lastlight_state.conversations.projections import MemberRow
from lastlight_state.conversations.rows import ExchangeDeliveryRow
from lastlight_state.db.rows.records import Record


class Sent(Record):
    """The receivers of a message: ``delivered`` got it by this call, ``skipped`` had it already."""

    message_id: str
    delivered: tuple[str, ...]
    skipped: tuple[str, ...]


class Delivery(Record):
    """A message at a position of an inbox.

    ``taken_by`` has it until ``taken_until``, and ``takes`` counts how often it was taken. ``acked_by`` is who said
    that it is done, None while it is open.
    """

    owner: str
    ord: int
    message_id: str
    sender: str | None
    channel: str | None
    delivered_at: datetime
    taken_by: str | None
    taken_until: datetime | None
    takes: int
    acked_at: datetime | None
    acked_by: str | None

    @classmethod
    def of(cls, values: ExchangeDeliveryRow) -> Self:
        return super().of(values)


class Member(Record):
    """A member of a channel, who gets what is published there from a time on."""

    channel: str
    member: str
    joined_at: datetime

    @classmethod
    def of(cls, values: MemberRow) -> Self:
        return super().of(values)
