"""Chat sessions that are over, with their messages."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.maintenance.prune.kinds.kind import Kind
from lastlight_state.messaging.tables import MESSAGES, SESSIONS, is_active

CHATS = Kind(
    name="messaging",
    record="messaging_session",
    key=SESSIONS.c.id,
    age=SESSIONS.c.last_activity_at,
    ended=sa.or_(SESSIONS.c.active == sa.false(), SESSIONS.c.active.is_(None)),
    open=is_active(),
    open_age=SESSIONS.c.last_activity_at,
    index="ix_messaging_sessions_activity",
    keep_days=7,
    keep_n=0,
    children=(MESSAGES.c.session_id,),
)
