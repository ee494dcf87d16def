"""Columns of rows as works look at them, with their texts as they are stored. Made by position."""

from __future__ import annotations

from typing import NamedTuple, TypedDict


class RoutingColumns(TypedDict):
    """The columns of a routing."""

    channel_type: str | None
    platform_id: str | None
    thread_id: str | None


class Head(NamedTuple):
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


class Waiting(NamedTuple):
    """The columns that decide about an outbound message, without its content."""

    id: str
    seq: int | None
    in_reply_to: str | None
    kind: str
    deliver_after: str | None
    timestamp: str
    target_seq: int | None
    channel_type: str | None
    platform_id: str | None


class Attempt(NamedTuple):
    """The columns of the attempts to deliver a message."""

    message_out_id: str
    attempts: int
    lease_token: str | None
    leased_until: str | None
    next_attempt_at: str | None
    first_attempt_at: str | None
    last_attempt_at: str | None
    last_error: str | None


class Ack(NamedTuple):
    """The columns of an acknowledgement."""

    message_id: str
    status: str
    status_changed: str
    message_seq: int | None
    message_tries: int | None
    claimed_by: str | None
    error: str | None
