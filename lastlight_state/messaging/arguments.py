"""Argument groups: where a conversation takes place, who takes part, and a message to append."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lastlight_state.messaging.words import Role


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
        """The place of the conversation, without the user."""
        return ThreadPlace(self.platform, self.channel_id, self.thread_id)


@dataclass(frozen=True)
class MessageDraft:
    """A message to append. ``timestamp`` is for imports; without it the message is of now."""

    role: Role
    content: str
    platform_message_id: str | None = None
    timestamp: datetime | None = None
