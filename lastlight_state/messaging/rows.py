"""The rows of the tables of messaging, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class MessagingSessionRow(TypedDict):
    """A row of ``messaging_sessions``."""

    id: str
    platform: str
    channel_id: str
    thread_id: str | None
    user_id: str
    agent_session_id: str | None
    created_at: datetime
    last_activity_at: datetime
    message_count: int | None
    active: bool | None
    title: str | None
    version: int
    deactivated_at: datetime | None
    deactivated_reason: str | None
    metadata: Any


class MessagingMessageRow(TypedDict):
    """A row of ``messaging_messages``."""

    id: int
    session_id: str
    role: str
    content: str
    timestamp: datetime
    platform_message_id: str | None
