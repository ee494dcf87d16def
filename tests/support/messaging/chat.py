"""What tests of chats share: whose conversation it is, what was said, and rows that another program left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from support.workflows.steps import Raw, together

from lastlight_state.messaging import ConversationKey, MessageDraft, MessagingMessage, MessagingSession

KEY = ConversationKey("slack", "C1", "U1")
IN_THREAD = ConversationKey("slack", "C1", "U1", "T1")

TIMEOUT = timedelta(minutes=30)
MILLISECOND = timedelta(milliseconds=1)


def started(store: Any, key: ConversationKey = KEY) -> MessagingSession:
    """The active session of the key."""
    session: MessagingSession = store.messaging.sessions.resume(key).session
    return session


def said(store: Any, session_id: str, *contents: str) -> list[MessagingMessage]:
    """Messages of the user with these contents, one after the other."""
    append = store.messaging.messages.append
    return [append(session_id, role="user", content=content).message for content in contents]


def drafts(*contents: str, platform_id: str | None = None) -> list[MessageDraft]:
    """Messages of the user to be appended."""
    return [MessageDraft("user", content, platform_id) for content in contents]


def contents(messages: Any) -> list[str]:
    """What messages say."""
    return [message.content for message in messages]


def legacy_session(raw: Raw, session_id: str, at: datetime, **columns: Any) -> None:
    """A row as another program may have written it: an active session of `KEY` unless columns say otherwise."""
    row = {
        "id": session_id,
        "platform": KEY.platform,
        "channel_id": KEY.channel_id,
        "user_id": KEY.user_id,
        "created_at": at,
        "last_activity_at": at,
        **columns,
    }
    places = ", ".join("?" for _ in row)
    raw(f"INSERT INTO messaging_sessions ({', '.join(row)}) VALUES ({places})", *row.values())


def active_ids(raw: Raw) -> list[str]:
    """The ids of all active sessions."""
    return [row[0] for row in raw("SELECT id FROM messaging_sessions WHERE active = true ORDER BY id")]


def counted(raw: Raw, session_id: str) -> tuple[int, int]:
    """The session's counter, and how many messages there are."""
    [(counter, found)] = raw(
        "SELECT message_count, (SELECT count(*) FROM messaging_messages WHERE session_id = s.id) "
        "FROM messaging_sessions AS s WHERE id = ?",
        session_id,
    )
    return counter, found


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each work returned, all begun at the same instant. An error of one is raised."""
    outcomes = together(works)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes
