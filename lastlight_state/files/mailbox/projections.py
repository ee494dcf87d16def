"""Row types of statements that return some columns of a table, or columns of several. Whole rows are in `rows`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class RoutingColumns(TypedDict):
    """The columns of a routing."""

    channel_type: str | None
    platform_id: str | None
    thread_id: str | None


class HeadRow(TypedDict):
    """The columns that decide about an inbound message, without its content."""

    id: str
    seq: int | None
    kind: str
    status: str | None
    process_after: str | None
    recurrence: str | None
    series_id: str | None
    tries: int | None
    trigger: int
    timestamp: str
    on_wake: int
    timezone: str | None
    released_at: str | None
    tries_base: int | None


class InSummaryRow(HeadRow, RoutingColumns):
    """The columns of a `MessageInSummary`. Lists are sorted by ``place``, which no record has."""

    source_session_id: str | None
    platform_message_id: str | None
    settled_at: str | None
    outcome: str | None
    error: str | None
    place: NotRequired[int | str]


class WaitingRow(TypedDict):
    """The columns that decide about an outbound message."""

    id: str
    seq: int | None
    in_reply_to: str | None
    kind: str
    deliver_after: str | None
    timestamp: str
    target_seq: int | None
    channel_type: str | None
    platform_id: str | None


class OutSummaryRow(WaitingRow):
    """The columns of a `MessageOutSummary`. Lists are sorted by ``place``, which no record has."""

    recurrence: str | None
    thread_id: str | None
    place: NotRequired[int]


class ValueRow(TypedDict):
    """A value that a side stored about its file."""

    value: str


class SeqRow(TypedDict):
    """The number of a message."""

    seq: int


class CountRow(TypedDict):
    """The number of rows."""

    rows: int


class SizedRow(TypedDict):
    """A message, and the bytes of its content."""

    id: str
    seq: int | None
    size: int | None


class SettledRow(SizedRow):
    """A settled message, and its times."""

    timestamp: str
    process_after: str | None
    released_at: str | None
    settled_at: str | None


class ReceiptTime(TypedDict):
    """A receipt, and the time when it was written."""

    message_out_id: str
    delivered_at: str


class OddNumber(TypedDict):
    """A message whose number does not belong to its side."""

    id: str
    seq: str


class LiveTwice(TypedDict):
    """A series with several live messages."""

    id: str
    series_id: str


class InId(TypedDict):
    """The id of a message."""

    id: str


class StrangeWord(TypedDict):
    """A row with an unknown word: its key, and the word as text."""

    id: str
    word: str | None


class AckedId(TypedDict):
    """The id of the message that an acknowledgement names."""

    message_id: str
