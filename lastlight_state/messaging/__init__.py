"""Chat: sessions, at most one active per key, and what was said in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.db.repository import Face
from lastlight_state.lazy import Part, public

if TYPE_CHECKING:
    from lastlight_state.messaging.arguments import (
        ConversationKey as ConversationKey,
        MessageDraft as MessageDraft,
        ThreadPlace as ThreadPlace,
    )
    from lastlight_state.messaging.messages import Messages
    from lastlight_state.messaging.records import (
        Appended as Appended,
        MessagingMessage as MessagingMessage,
        MessagingMessageSummary as MessagingMessageSummary,
        MessagingSession as MessagingSession,
        MessagingSessionSummary as MessagingSessionSummary,
        ResumedSession as ResumedSession,
    )
    from lastlight_state.messaging.sessions import DEFAULT as DEFAULT, Sessions

public(
    globals(),
    {
        "arguments": "ConversationKey MessageDraft ThreadPlace",
        "records": "Appended MessagingMessage MessagingMessageSummary MessagingSession "
        "MessagingSessionSummary ResumedSession",
        "sessions": "DEFAULT",
    },
    "Messaging",
)


class Messaging(Face):
    """``store.messaging``"""

    #: Stretches of conversation, at most one active per user and place.
    sessions: Part[Sessions] = Part("lastlight_state.messaging.sessions.Sessions")
    #: What was said, in the order it was stored.
    messages: Part[Messages] = Part("lastlight_state.messaging.messages.Messages")
