"""Words and limits of mailboxes."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias

from lastlight_state.db.valid import words

Side: TypeAlias = Literal["host", "agent"]
MessageStatus: TypeAlias = Literal["pending", "completed", "failed", "paused"]
AckStatus: TypeAlias = Literal["processing", "completed", "failed"]
DeliveryStatus: TypeAlias = Literal["pending", "delivered", "failed"]
DestinationType: TypeAlias = Literal["channel", "agent"]

STATUSES = words(MessageStatus)
DESTINATION_TYPES = words(DestinationType)
#: Whose messages have not been settled.
LIVE = ("pending", "paused")

#: Kinds of things, as errors name them.
MAILBOX, MESSAGE, TASK, DESTINATION, STATE = "mailbox", "message", "task", "destination", "agent state"

#: What lists are ordered by, beside the columns that they show.
PLACE = "place"

#: The shape that this library gives the files, noted in ``mailbox_meta``.
LAYOUT = "1"

#: Bounds that are fixed, in bytes of UTF-8 unless said otherwise. The others are in `Settings.limits`.
ID_BYTES = ROUTING_BYTES = 512
KIND_CHARACTERS = 64
CONTENT_DEPTH = 64
CONTENT_TEXT_BYTES = 1024 * 1024
STATE_KEY_BYTES = 256
ERROR_BYTES = 4096
MOST_SENT = 500
MOST_POLLED = 100

#: The delay before a message is tried again, doubled with each try.
FIRST_DELAY = timedelta(seconds=5)
#: The longest that a call waits for messages, and that an agent may be silent.
LONGEST_WAIT, LONGEST_SILENCE = timedelta(days=1), timedelta(days=366)
#: The longest lease of a delivery.
LONGEST_LEASE = timedelta(days=1)
#: Tries of an inbound message, and of a delivery, before they fail.
MOST_TRIES, MOST_ATTEMPTS = 5, 3
EXHAUSTED, CANCELLED, EXPIRED, COMPLETED, FAILED = "exhausted", "cancelled", "expired", "completed", "failed"

ONE_SECOND, ONE_MINUTE = timedelta(seconds=1), timedelta(minutes=1)
