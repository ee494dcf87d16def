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

#: A cutoff earlier than every activity, with which no session is idle.
NEVER = datetime(1, 1, 1, tzinfo=UTC)


def oldest_fresh(now: datetime, idle_timeout: timedelta | None) -> datetime:
    """Return the time before which a last activity makes a session idle at ``now``. A timeout of None means never."""
    if idle_timeout is None:
        return NEVER
    try:
        return to_millis(now - idle_timeout)
    except OverflowError:
        return NEVER


def check_idle_timeout(idle_timeout: Any) -> timedelta | None:
    """Check an idle timeout, a positive `timedelta` or None, and return it. Raises `InvalidValue`."""
    if idle_timeout is None:
        return None
    timeout = valid.duration("idle_timeout", idle_timeout, least=timedelta.min)
    if timeout <= timedelta(0):
        raise InvalidValue("idle_timeout", f"must be positive, or None for never idle, got {timeout}")
    return timeout


# Argument groups: where a conversation takes place, who takes part, and a message to append.


@dataclass(frozen=True)
class ThreadPlace:
    """A thread, or with ``thread_id=None`` the channel outside any thread. ``""`` counts as None."""

    platform: str
    channel_id: str
    thread_id: str | None = None


@dataclass(frozen=True)
class ConversationKey:
    """One user in one place: the key of a session. Ids are compared exactly; ``thread_id=""`` counts as None."""

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
    """A message to append. ``timestamp`` is for imports; the default is now."""

    role: Role
    content: str
    platform_message_id: str | None = None
    timestamp: datetime | None = None


class MessagingSessionSummary(Record):
    """A chat session as lists show it: one stretch of conversation of one user in one place.

    ``deactivated_reason`` is ``timeout``, ``closed``, ``replaced`` or ``duplicate``. It is None while the session is
    active, and for sessions that ended before reasons were stored. ``version`` counts changes of the title, the
    metadata, the agent session and the active flag.
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
        """True if the last activity is more than ``idle_timeout`` before ``now``. False if ``idle_timeout`` is None."""
        return self.last_activity_at < oldest_fresh(now, idle_timeout)


class MessagingSession(MessagingSessionSummary):
    """A whole chat session, with its metadata."""

    metadata: Any


class MessagingMessage(Record):
    """A message of a chat session. Messages are ordered by id, never by ``timestamp``."""

    id: int
    session_id: str
    role: str
    content: str
    timestamp: datetime
    platform_message_id: str | None


class MessagingMessageSummary(Record):
    """A message as lists show it: the first 280 characters of its content, and the length of the whole."""

    id: int
    session_id: str
    role: str
    timestamp: datetime
    platform_message_id: str | None
    preview: str
    content_chars: int


class ResumedSession(Record):
    """The result of `resume`: the key's active session, and ``created``: true if this call created it.

    ``replaced`` is the id of the idle session that this call retired, or None.
    """

    session: MessagingSession
    created: bool
    replaced: str | None


class Appended(Record):
    """The result of an append: the message, and ``created``, which is False if the message was stored before."""

    message: MessagingMessage
    created: bool
