"""Conversations and chats of two people who share messages."""

from __future__ import annotations

from typing import Any

from support.conversations.talk import said

from lastlight_state.conversations import NewBranch, NewMessage, NewSession, words
from lastlight_state.messaging import ConversationKey, MessageDraft


def emptied(store: Any, *ids: str) -> list[bool]:
    """Whether the content of each is gone."""
    contents = [store.conversations.messages.get(one).content for one in ids]
    return [isinstance(content, dict) and words.REDACTED in content for content in contents]


def shared_place(store: Any) -> tuple[str, str]:
    """Sessions of two people who share messages, and two chats. Returns the first session and the first chat."""
    own = store.conversations.sessions.create(NewSession(id="own", user="ana", name="Ana's", node_metadata={"k": 1}))
    store.conversations.branches.create(own.id, NewBranch(id="own", user="ana", node_metadata={"k": 1}))
    store.conversations.branches.append("own", said("a", "both"))
    other = store.conversations.sessions.create(NewSession(id="other", user="bob"))
    store.conversations.branches.create(other.id, NewBranch(id="other"))
    sent = [
        NewMessage("user", "x", id="sender", node_metadata={"k": 1}, sender="ana"),
        NewMessage("user", "x", id="recipient", node_metadata={"k": 1}, recipient="ana"),
    ]
    store.conversations.branches.append("other", ["both", *sent, *said("bobs")])
    chats = [store.messaging.sessions.create(ConversationKey("p", "c", user)).id for user in ("ana", "bob")]
    for chat in chats:
        store.messaging.messages.append_many(chat, [MessageDraft("user", "x")] * 3)
    store.messaging.sessions.ensure_agent_session(chats[0], "agent-1")
    return own.id, chats[0]
