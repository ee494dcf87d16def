"""The two tables, and the conditions that several statements share.

A partial index serves only statements that repeat its predicate as it is written there: ``active = 1`` (on Postgres
``active``). Only ``active == sa.true()`` renders it so; with a bare column or ``is_(True)`` the table is scanned.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db.base import later_of, table_of
from lastlight_state.db.statements import bind
from lastlight_state.messaging.models import MessagingMessageModel, MessagingSessionModel

SESSIONS = table_of(MessagingSessionModel)
MESSAGES = table_of(MessagingMessageModel)


def is_active(sessions: Any = SESSIONS) -> sa.ColumnElement[bool]:
    """Whether the session is active."""
    condition: sa.ColumnElement[bool] = sessions.c.active == sa.true()
    return condition


def at_place(sessions: Any = SESSIONS) -> sa.ColumnElement[bool]:
    """Whether the session is in the place ``:platform``, ``:channel_id``, ``:thread`` (empty outside a thread)."""
    return sa.and_(
        sessions.c.platform == bind("platform", SESSIONS.c.platform),
        sessions.c.channel_id == bind("channel_id", SESSIONS.c.channel_id),
        sa.func.coalesce(sessions.c.thread_id, sa.literal_column("''")) == bind("thread", SESSIONS.c.thread_id),
    )


THIS_SESSION = SESSIONS.c.id == bind("session_id", SESSIONS.c.id)
NEWEST_ACTIVITY = (SESSIONS.c.last_activity_at.desc(), SESSIONS.c.id.desc())
#: The last activity after something happened at ``:at``. It never moves back.
ACTIVE_NOW = later_of(SESSIONS.c.last_activity_at, bind("at", SESSIONS.c.last_activity_at))
