"""Argument groups: where a conversation takes place, and what is to be said in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lastlight_state.messaging.words import Role


@dataclass(frozen=True)
class ThreadPlace:
    """A thread, or with ``thread_id=None`` what is said in the channel outside any thread. ``""`` means None."""

    platform: str
    channel_id: str
    thread_id: str | None = None


@dataclass(frozen=True)
class ConversationKey:
    """What finds a session: one user in one place. Words are compared exactly; ``thread_id=""`` means None."""

    platform: str
    channel_id: str
    user_id: str
    thread_id: str | None = None

    @property
    def place(self) -> ThreadPlace:
        """Where the conversation takes place, whoever takes part."""
        return ThreadPlace(self.platform, self.channel_id, self.thread_id)


@dataclass(frozen=True)
class MessageDraft:
    """A message to append. ``timestamp`` is now unless given, for imports."""

    role: Role
    content: str
    platform_message_id: str | None = None
    timestamp: datetime | None = None
