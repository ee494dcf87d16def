"""The rows of the tables of the files of mailboxes, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from typing import TypedDict


class MessagesInRow(TypedDict):
    """A row of ``messages_in``."""

    id: str
    seq: int | None
    kind: str
    timestamp: str
    status: str | None
    process_after: str | None
    recurrence: str | None
    series_id: str | None
    tries: int | None
    trigger: int
    platform_id: str | None
    channel_type: str | None
    thread_id: str | None
    content: str
    source_session_id: str | None
    on_wake: int
    timezone: str | None
    platform_message_id: str | None
    released_at: str | None
    settled_at: str | None
    outcome: str | None
    error: str | None
    tries_base: int | None


class DeliveredRow(TypedDict):
    """A row of ``delivered``."""

    message_out_id: str
    platform_message_id: str | None
    status: str
    delivered_at: str
    error: str | None
    attempts: int | None


class DestinationsRow(TypedDict):
    """A row of ``destinations``."""

    name: str
    display_name: str | None
    type: str
    channel_type: str | None
    platform_id: str | None
    agent_group_id: str | None


class SessionRoutingRow(TypedDict):
    """A row of ``session_routing``."""

    id: int
    channel_type: str | None
    platform_id: str | None
    thread_id: str | None


class AttemptsRow(TypedDict):
    """A row of ``delivery_attempts``."""

    message_out_id: str
    attempts: int
    lease_token: str | None
    leased_until: str | None
    next_attempt_at: str | None
    first_attempt_at: str | None
    last_attempt_at: str | None
    last_error: str | None


class InMetaRow(TypedDict):
    """A row of ``mailbox_meta``."""

    key: str
    value: str


class MessagesOutRow(TypedDict):
    """A row of ``messages_out``."""

    id: str
    seq: int | None
    in_reply_to: str | None
    timestamp: str
    deliver_after: str | None
    recurrence: str | None
    kind: str
    platform_id: str | None
    channel_type: str | None
    thread_id: str | None
    content: str
    target_seq: int | None


class AcksRow(TypedDict):
    """A row of ``processing_ack``."""

    message_id: str
    status: str
    status_changed: str
    message_seq: int | None
    message_tries: int | None
    claimed_by: str | None
    error: str | None


class SessionStateRow(TypedDict):
    """A row of ``session_state``."""

    key: str
    value: str
    updated_at: str


class ContainerStateRow(TypedDict):
    """A row of ``container_state``."""

    id: int
    current_tool: str | None
    tool_declared_timeout_ms: int | None
    tool_started_at: str | None
    updated_at: str


class OutMetaRow(TypedDict):
    """A row of ``mailbox_meta``."""

    key: str
    value: str
