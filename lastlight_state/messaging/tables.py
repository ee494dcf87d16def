"""The two tables as statements name them, and the conditions that their indexes recognise.

A partial index serves a statement that repeats its predicate as it is written there: ``active = 1`` (on Postgres
``active``), which only a comparison with a literal true renders; a bare column or ``is_(True)`` scans the table.
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
    """Whether the session is in the place of ``:platform``, ``:channel_id`` and ``:thread``, empty for no thread."""
    return sa.and_(
        sessions.c.platform == bind("platform", SESSIONS.c.platform),
        sessions.c.channel_id == bind("channel_id", SESSIONS.c.channel_id),
        sa.func.coalesce(sessions.c.thread_id, sa.literal_column("''")) == bind("thread", SESSIONS.c.thread_id),
    )


ONE: sa.ColumnElement[int] = sa.literal_column("1", sa.Integer)
THIS_SESSION = SESSIONS.c.id == bind("session_id", SESSIONS.c.id)
NEWEST_ACTIVITY = (SESSIONS.c.last_activity_at.desc(), SESSIONS.c.id.desc())
#: The last activity after something happened ``:at``: it never goes back.
ACTIVE_NOW = later_of(SESSIONS.c.last_activity_at, bind("at", SESSIONS.c.last_activity_at))
