"""Records of chat sessions and messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from lastlight_state.clock import to_millis
from lastlight_state.db import valid
from lastlight_state.db.rows.records import Record
from lastlight_state.errors import InvalidValue
from lastlight_state.messaging.models import Role

# The idle timeout of sessions.

#: Before every activity: with this cutoff no session is idle.
NEVER = datetime(1, 1, 1, tzinfo=UTC)


def oldest_fresh(now: datetime, idle_timeout: timedelta | None) -> datetime:
    """Return the earliest last activity that is not yet idle at ``now``. A timeout of None means never idle."""
    if idle_timeout is None:
        return NEVER
    try:
        return to_millis(now - idle_timeout)
    except OverflowError:
        return NEVER


def checked(idle_timeout: Any) -> timedelta | None:
    """Return a caller's timeout: a positive `timedelta`, or None."""
    if idle_timeout is None:
        return None
    timeout = valid.duration("idle_timeout", idle_timeout, least=timedelta.min)
    if timeout <= timedelta(0):
        raise InvalidValue("idle_timeout", f"must be positive, or None for never idle, got {timeout}")
    return timeout


# Argument groups: where a conversation takes place, who takes part, and a message to append.


@dataclass(frozen=True)
class ThreadPlace:
    """A thread, or with ``thread_id=None`` the channel outside any thread. ``""`` means None."""

    platform: str
    channel_id: str
    thread_id: str | None = None


@dataclass(frozen=True)
class ConversationKey:
    """One user in one place: the key of a session. Ids are compared exactly; ``thread_id=""`` means None."""

    platform: str
    channel_id: str
    user_id: str
    thread_id: str | None = None

    @property
    def place(self) -> ThreadPlace:
        """Return the place of the conversation, without the user."""
        return ThreadPlace(self.platform, self.channel_id, self.thread_id)


@dataclass(frozen=True)
class MessageDraft:
    """A message to append. ``timestamp`` is for imports; without it the message is of now."""

    role: Role
    content: str
    platform_message_id: str | None = None
    timestamp: datetime | None = None


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
    def of(cls, values: Any) -> Self:
        values["message_count"] = values["message_count"] or 0
        values["active"] = bool(values["active"])
        return super().of(values)

    @property
    def key(self) -> ConversationKey:
        """Return the conversation key of this session."""
        return ConversationKey(self.platform, self.channel_id, self.user_id, self.thread_id or None)

    def is_idle(self, now: datetime, idle_timeout: timedelta | None) -> bool:
        """Return whether the last activity is more than ``idle_timeout`` before ``now``. With None, never."""
        return self.last_activity_at < oldest_fresh(now, idle_timeout)


class MessagingSession(MessagingSessionSummary):
    """A whole session, with its metadata."""

    metadata: Any


class MessagingMessage(Record):
    """A message. Messages of a session are ordered by id, never by ``timestamp``."""

    id: int
    session_id: str
    role: str
    content: str
    timestamp: datetime
    platform_message_id: str | None


class MessagingMessageSummary(Record):
    """A message as lists show it: the first 280 characters of its content, and the number of all."""

    id: int
    session_id: str
    role: str
    timestamp: datetime
    platform_message_id: str | None
    preview: str
    content_chars: int


class ResumedSession(Record):
    """The active session of a key; whether this call made it; and the id of the session that it retired as idle."""

    session: MessagingSession
    created: bool
    replaced: str | None


class Appended(Record):
    """A message, and whether this call stored it: False if the platform had delivered it before."""

    message: MessagingMessage
    created: bool
