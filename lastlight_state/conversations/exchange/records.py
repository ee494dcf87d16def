"""Records of the exchange."""

from __future__ import annotations

from datetime import datetime

from lastlight_state.db.rows.records import Record


class Sent(Record):
    """The result of sending a message: ``delivered`` has the owners that got it now, ``skipped`` those that had it."""

    message_id: str
    delivered: tuple[str, ...]
    skipped: tuple[str, ...]


class Delivery(Record):
    """A delivery: a message at a position of an inbox.

    The reader ``taken_by`` holds it until ``taken_until``; ``takes`` counts how often it was taken. ``acked_by`` is the
    reader that acknowledged it, None while it is open.
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


class Member(Record):
    """A member of a channel, who receives messages published there since ``joined_at``."""

    channel: str
    member: str
    joined_at: datetime
