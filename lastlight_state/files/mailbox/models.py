"""The tables of the two files of a mailbox.

Names, types and order are those of the original program, so that the files of both programs are interchangeable. This
library's additional columns come last and may be NULL. The database checks only the parity of message numbers: the
original program may write words that this library does not know, and an acknowledgement may name a message that the
other file no longer has.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from lastlight_state.clock import iso_text, parse_foreign_time
from lastlight_state.db.schema.columns import Integer, Text
from lastlight_state.db.valid import words
from lastlight_state.errors import InvalidValue

# Words and limits of mailboxes.

Side: TypeAlias = Literal["host", "agent"]
MessageStatus: TypeAlias = Literal["pending", "completed", "failed", "paused"]
AckStatus: TypeAlias = Literal["processing", "completed", "failed"]
DeliveryStatus: TypeAlias = Literal["pending", "delivered", "failed"]
DestinationType: TypeAlias = Literal["channel", "agent"]

STATUSES = words(MessageStatus)
DESTINATION_TYPES = words(DestinationType)
ACK_STATUSES = words(AckStatus)
#: The outcomes that a receipt may have.
RECEIPTS = ("delivered", "failed")
#: Statuses of unsettled and of settled messages. Other programs may have stored any other word.
LIVE, ENDED = ("pending", "paused"), ("completed", "failed")

#: The names of objects in errors.
MAILBOX, MESSAGE, TASK, DESTINATION, STATE = "mailbox", "message", "task", "destination", "agent state"

#: The columns that lists are ordered by, besides the columns that they show.
PLACE = "place"

#: The version of our file layout, stored in ``mailbox_meta``.
LAYOUT = "1"

#: Fixed limits, in bytes of UTF-8 unless stated otherwise. The others are in `Settings.limits`.
ID_BYTES = ROUTING_BYTES = 512
KIND_CHARACTERS = 64
CONTENT_DEPTH = 64
CONTENT_TEXT_BYTES = 1024 * 1024
STATE_KEY_BYTES = 256
ERROR_BYTES = 4096
MOST_SENT = 500
MOST_POLLED = 100

#: The delay before a message is retried, doubled with each try.
FIRST_DELAY = timedelta(seconds=5)
#: The longest that a call waits for messages, and the longest that an agent may be silent.
LONGEST_WAIT, LONGEST_SILENCE = timedelta(days=1), timedelta(days=366)
#: The longest lease of a delivery.
LONGEST_LEASE = timedelta(days=1)
#: The number of tries of an inbound message, and of a delivery, before they fail.
MOST_TRIES, MOST_ATTEMPTS = 5, 3
EXHAUSTED, CANCELLED, EXPIRED, COMPLETED, FAILED = "exhausted", "cancelled", "expired", "completed", "failed"

ONE_SECOND, ONE_MINUTE = timedelta(seconds=1), timedelta(minutes=1)


# Times in the files, as text.
#
# Other programs write them with or without a zone (then they are UTC), with a blank or a ``T``, to the second or finer.
# They are compared as times, never as text. The original program compares some columns as text, so these are written in
# the form that it compares with.


def plain_text(moment: datetime) -> str:
    """Return a time as ``2026-02-03 12:34:56.789``, in UTC: the form that the original program compares as text."""
    return iso_text(moment)[:-1].replace("T", " ")


def instant(text: str | None) -> datetime | None:
    """Return the time in a text, in UTC; None for None, and for a text that is not a time."""
    return parse_foreign_time(text.strip()) if isinstance(text, str) else None


def is_unreadable(text: str | None) -> bool:
    """True if a column that should hold a time holds a text that is not a time."""
    return text is not None and instant(text) is None


def is_due(text: str | None, now: datetime) -> bool:
    """True if the time has come.

    A text that is not a time counts as due, because its message would otherwise never be.
    """
    moment = instant(text)
    return moment is None or moment <= now


# Numbers of messages: the host's are even, the agent's odd, and all grow over both files.

#: The limit for numbers: other languages read them as doubles.
GREATEST = 2**53 - 1


def side_of(seq: int) -> Side:
    """Return the side whose message has this number."""
    return "agent" if seq % 2 else "host"


def next_number(side: Side, highest: int) -> int:
    """Return the smallest number of this side above ``highest``. Raises `InvalidValue` if there is none."""
    found = highest + 1 if side_of(highest + 1) == side else highest + 2
    if found > GREATEST:
        raise InvalidValue("seq", f"must be at most {GREATEST}")
    return found


INBOUND, OUTBOUND = sa.MetaData(), sa.MetaData()


def _text(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, Text, **options)


def _required_text(name: str, **options: Any) -> sa.Column[Any]:
    return _text(name, nullable=False, **options)


def _whole(name: str, default: int | None = None, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, Integer, server_default=None if default is None else sa.text(str(default)), **options)


def _seq(remainder: int) -> tuple[Any, ...]:
    rule = f"seq IS NULL OR (typeof(seq) = 'integer' AND seq > 0 AND seq % 2 = {remainder})"
    return _whole("seq", unique=True), sa.CheckConstraint(rule)


def _only_row() -> tuple[Any, ...]:
    return _whole("id", primary_key=True, autoincrement=False), sa.CheckConstraint("id = 1")


def _meta(metadata: sa.MetaData) -> sa.Table:
    """Return the table of stored values of a side's file, such as ``layout``, ``highest_seq`` or ``settled_seq``."""
    return sa.Table("mailbox_meta", metadata, _text("key", primary_key=True), _required_text("value"))


MESSAGES_IN = sa.Table(
    "messages_in",
    INBOUND,
    _text("id", primary_key=True),
    *_seq(0),
    _required_text("kind"),
    _required_text("timestamp"),
    _text("status", server_default="pending"),
    _text("process_after"),
    _text("recurrence"),
    _text("series_id"),
    _whole("tries", 0),
    _whole("trigger", 1, nullable=False),
    _text("platform_id"),
    _text("channel_type"),
    _text("thread_id"),
    _required_text("content"),
    _text("source_session_id"),
    _whole("on_wake", 0, nullable=False),
    _text("timezone"),
    _text("platform_message_id"),
    _text("released_at"),
    _text("settled_at"),
    _text("outcome"),
    _text("error"),
    _whole("tries_base"),
)
DELIVERED = sa.Table(
    "delivered",
    INBOUND,
    _text("message_out_id", primary_key=True),
    _text("platform_message_id"),
    _required_text("status", server_default="delivered"),
    _required_text("delivered_at"),
    _text("error"),
    _whole("attempts"),
)
DESTINATIONS = sa.Table(
    "destinations",
    INBOUND,
    _text("name", primary_key=True),
    _text("display_name"),
    _required_text("type"),
    _text("channel_type"),
    _text("platform_id"),
    _text("agent_group_id"),
)
SESSION_ROUTING = sa.Table(
    "session_routing", INBOUND, *_only_row(), _text("channel_type"), _text("platform_id"), _text("thread_id")
)
ATTEMPTS = sa.Table(
    "delivery_attempts",
    INBOUND,
    _text("message_out_id", primary_key=True),
    _whole("attempts", 0, nullable=False),
    _text("lease_token"),
    _text("leased_until"),
    _text("next_attempt_at"),
    _text("first_attempt_at"),
    _text("last_attempt_at"),
    _text("last_error"),
)
IN_META = _meta(INBOUND)

MESSAGES_OUT = sa.Table(
    "messages_out",
    OUTBOUND,
    _text("id", primary_key=True),
    *_seq(1),
    _text("in_reply_to"),
    _required_text("timestamp"),
    _text("deliver_after"),
    _text("recurrence"),
    _required_text("kind"),
    _text("platform_id"),
    _text("channel_type"),
    _text("thread_id"),
    _required_text("content"),
    _whole("target_seq"),
)
ACKS = sa.Table(
    "processing_ack",
    OUTBOUND,
    _text("message_id", primary_key=True),
    _required_text("status"),
    _required_text("status_changed"),
    _whole("message_seq"),
    _whole("message_tries"),
    _text("claimed_by"),
    _text("error"),
)
SESSION_STATE = sa.Table(
    "session_state", OUTBOUND, _text("key", primary_key=True), _required_text("value"), _required_text("updated_at")
)
CONTAINER_STATE = sa.Table(
    "container_state",
    OUTBOUND,
    *_only_row(),
    _text("current_tool"),
    _whole("tool_declared_timeout_ms"),
    _text("tool_started_at"),
    _required_text("updated_at"),
)
OUT_META = _meta(OUTBOUND)


def unknown_word(column: sa.ColumnElement[Any], known: Iterable[str]) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a column contains none of these words. The words are literals in the SQL text.

    SQLite 3.53 removes ``IS NULL`` from a condition if the column is ``NOT NULL``, and then does not find an index that
    has this condition.
    """
    listed: list[sa.ColumnElement[str]] = [sa.literal_column(f"'{word}'") for word in sorted(known)]
    return sa.func.coalesce(column, sa.literal_column("''")).not_in(listed)


_in = MESSAGES_IN.c
#: The order of lists. Rows of other programs without a number or a time have a place in it, too.
IN_PLACE: Any
OUT_PLACE: Any
IN_PLACE, OUT_PLACE = (sa.func.coalesce(table.c.seq, sa.literal_column("0")) for table in (MESSAGES_IN, MESSAGES_OUT))
TASK_PLACE: Any = sa.func.coalesce(_in.process_after, sa.literal_column("''"))
#: Unsettled tasks.
LIVE_TASK: Any = sa.text("kind = 'task' AND status IN ('pending', 'paused')")
_pending, _recurring = sa.text("status = 'pending'"), sa.text("recurrence IS NOT NULL")

sa.Index("idx_messages_in_series", _in.series_id)
sa.Index("idx_messages_in_ready", _in.trigger, _in.seq, sqlite_where=_pending)
sa.Index("idx_messages_in_recurring", _in.series_id, sqlite_where=_recurring)
sa.Index("idx_messages_in_peer", _in.platform_id, _in.seq.desc(), sqlite_where=sa.text("source_session_id IS NOT NULL"))
sa.Index("idx_messages_in_paused", _in.id, sqlite_where=sa.text("status = 'paused'"))
sa.Index("idx_messages_in_failed", _in.seq, sqlite_where=sa.text("status = 'failed'"))
sa.Index("idx_messages_in_unknown", _in.id, sqlite_where=unknown_word(_in.status, STATUSES))
sa.Index("idx_messages_in_place", IN_PLACE, _in.id)
sa.Index("idx_messages_out_place", OUT_PLACE, MESSAGES_OUT.c.id)
sa.Index("idx_messages_in_tasks", TASK_PLACE, _in.id, sqlite_where=LIVE_TASK)
sa.Index(
    "idx_delivered_failed",
    DELIVERED.c.delivered_at,
    DELIVERED.c.message_out_id,
    sqlite_where=sa.text("status = 'failed'"),
)
sa.Index("idx_delivered_unknown", DELIVERED.c.message_out_id, sqlite_where=unknown_word(DELIVERED.c.status, RECEIPTS))
#: Permits one live message of a series, whoever writes. Left out of a file whose rows contradict it.
LIVE_SERIES = sa.Index(
    "uq_messages_in_live_series",
    _in.series_id,
    unique=True,
    sqlite_where=sa.text("recurrence IS NOT NULL AND status IN ('pending', 'paused')"),
)
