"""Chat sessions and their messages. Each conversation key has at most one active session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.db.repository import Face
from lastlight_state.lazy import Part, public

if TYPE_CHECKING:
    from lastlight_state.messaging.messages import Messages
    from lastlight_state.messaging.records import (
        Appended as Appended,
        ConversationKey as ConversationKey,
        MessageDraft as MessageDraft,
        MessagingMessage as MessagingMessage,
        MessagingMessageSummary as MessagingMessageSummary,
        MessagingSession as MessagingSession,
        MessagingSessionSummary as MessagingSessionSummary,
        ResumedSession as ResumedSession,
        ThreadPlace as ThreadPlace,
    )
    from lastlight_state.messaging.sessions import Sessions

public(
    globals(),
    {
        "records": "ConversationKey MessageDraft ThreadPlace Appended MessagingMessage MessagingMessageSummary"
        " MessagingSession MessagingSessionSummary ResumedSession",
    },
    "Messaging",
)


class Messaging(Face):
    """``store.messaging``"""

    #: Chat sessions: at most one is active per user and place.
    sessions: Part[Sessions] = Part("lastlight_state.messaging.sessions.Sessions")
    #: Messages of chat sessions, in the order in which they were stored.
    messages: Part[Messages] = Part("lastlight_state.messaging.messages.Messages")
