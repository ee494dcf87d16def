"""Records of chat sessions and messages."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Self, TypedDict

from lastlight_state.db.records import Record
from lastlight_state.messaging.arguments import ConversationKey
from lastlight_state.messaging.idle import oldest_fresh
from lastlight_state.messaging.rows import MessagingMessageRow, MessagingSessionRow


class SummaryRow(TypedDict):
    """What a `MessagingSessionSummary` is made of."""

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


class MessagingSessionSummary(Record):
    """One stretch of conversation of one user in one place, as lists show it.

    ``deactivated_reason`` is ``timeout``, ``closed``, ``replaced`` or ``duplicate``; None while the session is active,
    and for sessions that ended before reasons were stored. ``version`` counts changes of title, metadata, agent session
    and of being active.
    """

    id: str
    platform: str
    channel_id: str
    thread_id: str | None
    user_id: str
    agent_session_id: str | None
    created_at: datetime
    last_activity_at: datetime
    message_count: int
    active: bool
    title: str | None
    version: int
    deactivated_at: datetime | None
    deactivated_reason: str | None

    @classmethod
    def of(cls, values: SummaryRow) -> Self:
        values["message_count"] = values["message_count"] or 0
        values["active"] = bool(values["active"])
        return super().of(values)

    @property
    def key(self) -> ConversationKey:
        """The conversation key of this session."""
        return ConversationKey(self.platform, self.channel_id, self.user_id, self.thread_id or None)

    def is_idle(self, now: datetime, idle_timeout: timedelta | None) -> bool:
        """Whether the last activity is more than ``idle_timeout`` before ``now``. With None, never."""
        return self.last_activity_at < oldest_fresh(now, idle_timeout)


class MessagingSession(MessagingSessionSummary):
    """A whole session, with its metadata."""

    metadata: Any

    @classmethod
    def of(cls, values: MessagingSessionRow) -> Self:  # type: ignore[override]
        return super().of(values)


class MessagingMessage(Record):
    """A message. Messages of a session are ordered by id, never by ``timestamp``."""

    id: int
    session_id: str
    role: str
    content: str
    timestamp: datetime
    platform_message_id: str | None

    @classmethod
    def of(cls, values: MessagingMessageRow) -> Self:
        return super().of(values)


class MessageSummaryRow(TypedDict):
    """What a `MessagingMessageSummary` is made of."""

    id: int
    session_id: str
    role: str
    timestamp: datetime
    platform_message_id: str | None
    preview: str
    content_chars: int


class MessagingMessageSummary(Record):
    """A message as lists show it: the first 280 characters of its content, and the number of all."""

    id: int
    session_id: str
    role: str
    timestamp: datetime
    platform_message_id: str | None
    preview: str
    content_chars: int

    @classmethod
    def of(cls, values: MessageSummaryRow) -> Self:
        return super().of(values)


class ResumedSession(Record):
    """The active session of a key; whether this call made it; and the id of the session that it retired as idle."""

    session: MessagingSession
    created: bool
    replaced: str | None


class Appended(Record):
    """A message, and whether this call stored it: False if the platform had delivered it before."""

    message: MessagingMessage
    created: bool
