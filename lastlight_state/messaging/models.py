"""Tables of the messaging domain. A comment marks the columns and indexes that were added after revision 0001."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import ForeignKey, Identity, Index, func, literal_column, text, true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.rows.statements import bind
from lastlight_state.db.schema.base import Base, later_of, table_of
from lastlight_state.db.schema.declarations import (
    KIB,
    Setting,
    describe_table,
    json_column,
    person_column,
    text_column,
    word_column,
)
from lastlight_state.db.schema.guards import Key, append_only, declare, no_replacement, no_replacing_insert, no_update
from lastlight_state.db.schema.indexes import first_chars, only, where
from lastlight_state.db.valid import words

# The vocabularies and limits of the messaging domain.

Role = Literal["user", "assistant"]
OnActive = Literal["refuse", "close"]
CloseReason = Literal["closed", "timeout"]
RetireReason = Literal["timeout", "closed", "replaced", "duplicate"]

ROLES = words(Role)
ON_ACTIVE = words(OnActive)
CLOSE_REASONS = words(CloseReason)

TIMEOUT: RetireReason = "timeout"
REPLACED: RetireReason = "replaced"

#: Most messages that one call appends.
BATCH = 500
#: Most UTF-16 units that are kept of a message posted into a thread, by default.
CLIP = 4_000

# The kinds of records that `NotFound` and `AlreadyExists` errors name.
SESSION = "messaging_session"
MESSAGE = "messaging_message"


class MessagingSessionModel(Base):
    """A chat session: one stretch of conversation of one user in one place."""

    __tablename__ = "messaging_sessions"
    __table_args__ = describe_table(
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
    """A message of a chat session. Messages are ordered by id."""

    __tablename__ = "messaging_messages"
    __table_args__ = describe_table(
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


#: The number of characters of a message that a list shows.
PREVIEW = 280
#: On SQLite, lists read messages with more characters than this from an index, which holds the shown columns.
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

# The columns that lists show of long messages. SQLite stores long texts inside the rows, which makes them slow to read.
only(
    "sqlite",
    Index(
        "ix_messaging_messages_large",
        _message.session_id,
        _message.id,
        _message.role,
        _message.timestamp,
        _message.platform_message_id,
        first_chars(_message.content, PREVIEW),
        func.length(_message.content),
        **where(f"length(content) > {LARGE}"),
    ),
)


# The two tables, and the conditions that several statements share.
#
# A partial index serves only statements that repeat its predicate as it is written there: ``active = 1`` (on Postgres
# ``active``). Only ``active == sa.true()`` renders it so; with a bare column or ``is_(True)`` the table is scanned.

SESSIONS = table_of(MessagingSessionModel)
MESSAGES = table_of(MessagingMessageModel)


def is_active(sessions: Any = SESSIONS) -> sa.ColumnElement[bool]:
    """Return the condition that a session is active."""
    condition: sa.ColumnElement[bool] = sessions.c.active == sa.true()
    return condition


def at_place(sessions: Any = SESSIONS) -> sa.ColumnElement[bool]:
    """Return the condition that a session is at the place ``:platform``, ``:channel_id``, ``:thread``.

    ``:thread`` is empty outside a thread.
    """
    return sa.and_(
        sessions.c.platform == bind("platform", SESSIONS.c.platform),
        sessions.c.channel_id == bind("channel_id", SESSIONS.c.channel_id),
        sa.func.coalesce(sessions.c.thread_id, sa.literal_column("''")) == bind("thread", SESSIONS.c.thread_id),
    )


THIS_SESSION = SESSIONS.c.id == bind("session_id", SESSIONS.c.id)
NEWEST_ACTIVITY = (SESSIONS.c.last_activity_at.desc(), SESSIONS.c.id.desc())
#: The new last activity of a session: the later of the stored one and ``:at``.
ACTIVE_NOW = later_of(SESSIONS.c.last_activity_at, bind("at", SESSIONS.c.last_activity_at))


# Triggers on chat sessions and messages: rows cannot be deleted, and messages cannot be changed.

APPEND_ONLY = declare(
    [
        *append_only("messaging_sessions"),
        *no_replacement(
            "messaging_sessions",
            Key(("id",)),
            Key(("platform", "channel_id", "thread_id", "user_id"), among=("active", "1"), nullable=("thread_id",)),
        ),
        *append_only("messaging_messages"),
        *no_replacing_insert("messaging_messages"),
        *no_update("messaging_messages"),
    ]
)
