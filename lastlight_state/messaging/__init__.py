"""Chat: sessions, at most one active per key, and what was said in them."""

from __future__ import annotations

from functools import cached_property

from lastlight_state.db.repository import Context
from lastlight_state.messaging.arguments import ConversationKey, MessageDraft, ThreadPlace
from lastlight_state.messaging.messages import Messages
from lastlight_state.messaging.records import (
    Appended,
    MessagingMessage,
    MessagingMessageSummary,
    MessagingSession,
    MessagingSessionSummary,
    ResumedSession,
)
from lastlight_state.messaging.sessions import DEFAULT, Sessions

__all__ = [
    "DEFAULT",
    "Appended",
    "ConversationKey",
    "MessageDraft",
    "Messaging",
    "MessagingMessage",
    "MessagingMessageSummary",
    "MessagingSession",
    "MessagingSessionSummary",
    "ResumedSession",
    "ThreadPlace",
]


class Messaging:
    """``store.messaging``"""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def sessions(self) -> Sessions:
        """Stretches of conversation, at most one active per user and place."""
        return Sessions(self._context)

    @cached_property
    def messages(self) -> Messages:
        """What was said, in the order it was stored."""
        return Messages(self._context)
