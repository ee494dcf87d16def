"""Tables of the messaging domain. Their first columns are those of revision 0001; the others follow a comment."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Identity, Index, func, literal_column, text, true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.base import Base
from lastlight_state.db.declarations import (
    KIB,
    Setting,
    described,
    json_column,
    person_column,
    text_column,
    word_column,
)
from lastlight_state.db.indexes import beginning, only, where
from lastlight_state.messaging.words import ROLES


class MessagingSessionModel(Base):
    """One stretch of conversation of one user in one place."""

    __tablename__ = "messaging_sessions"
    __table_args__ = described(
        "chat sessions, at most one active per place and user",
        pruned_as=("messaging",),
        erased="removed",
        newest=("last_activity_at",),
    )

    id: Mapped[str] = text_column(200, primary_key=True, personal=False)
    platform: Mapped[str] = text_column(64, personal=False)
    channel_id: Mapped[str] = text_column(256, personal=False)
    thread_id: Mapped[str | None] = text_column(256, personal=False)
    user_id: Mapped[str] = person_column(256)
    agent_session_id: Mapped[str | None] = text_column(200, personal=False)
    created_at: Mapped[datetime]
    last_activity_at: Mapped[datetime]
    message_count: Mapped[int | None] = mapped_column(server_default=text("0"))
    active: Mapped[bool | None] = mapped_column(server_default=true())
    # since 0002
    title: Mapped[str | None] = text_column(512, personal=True)
    version: Mapped[int] = mapped_column(server_default=text("0"))
    deactivated_at: Mapped[datetime | None]
    deactivated_reason: Mapped[str | None] = text_column(None, personal=False)
    metadata_: Mapped[Any] = json_column(16 * KIB, depth=16, personal=True, name="metadata", nullable=True)


class MessagingMessageModel(Base):
    """A message of a session. Messages are ordered by id."""

    __tablename__ = "messaging_messages"
    __table_args__ = described(
        "what was said in chat sessions, in the order of ids",
        pruned_as=("messaging",),
        erased="removed",
        newest=("timestamp",),
        sqlite_autoincrement=True,
    )

    id: Mapped[int] = mapped_column(Identity(always=False), primary_key=True)
    session_id: Mapped[str] = text_column(200, ForeignKey("messaging_sessions.id"), personal=False)
    role: Mapped[str] = word_column(ROLES)
    content: Mapped[str] = text_column(Setting("message_content"), personal=True)
    timestamp: Mapped[datetime]
    platform_message_id: Mapped[str | None] = text_column(256, personal=False)


#: How many characters of a message a list shows.
PREVIEW = 280
#: On SQLite lists read messages with more characters from an index that holds what they show.
LARGE = 2_000

_session = MessagingSessionModel.__table__.c
_message = MessagingMessageModel.__table__.c
_thread = func.coalesce(_session.thread_id, literal_column("''"))
_ACTIVE = where("active = 1", postgresql="active")

Index("idx_msg_sessions_lookup", _session.platform, _session.channel_id, _session.thread_id, _session.user_id)
Index(
    "idx_msg_sessions_unique_active",
    _session.platform,
    _session.channel_id,
    _session.thread_id,
    _session.user_id,
    unique=True,
    **_ACTIVE,
)
Index("idx_msg_messages_session", _message.session_id, _message.timestamp)

# since 0002
Index(
    "uq_messaging_sessions_active_key",
    _session.platform,
    _session.channel_id,
    _thread,
    _session.user_id,
    unique=True,
    **_ACTIVE,
)
Index(
    "ix_messaging_sessions_active_place",
    _session.platform,
    _session.channel_id,
    _thread,
    _session.last_activity_at,
    _session.id,
    **_ACTIVE,
)
Index("ix_messaging_sessions_activity", _session.last_activity_at, _session.id)
Index(
    "ix_messaging_sessions_agent",
    _session.agent_session_id,
    _session.created_at,
    **where("agent_session_id IS NOT NULL"),
)
Index("ix_messaging_messages_order", _message.session_id, _message.id)
Index(
    "ix_messaging_messages_platform_id",
    _message.platform_message_id,
    _message.session_id,
    **where("platform_message_id IS NOT NULL"),
)

# What lists show of long messages, which on SQLite stand inside their rows.
only(
    "sqlite",
    Index(
        "ix_messaging_messages_large",
        _message.session_id,
        _message.id,
        _message.role,
        _message.timestamp,
        _message.platform_message_id,
        beginning(_message.content, PREVIEW),
        func.length(_message.content),
        **where(f"length(content) > {LARGE}"),
    ),
)
