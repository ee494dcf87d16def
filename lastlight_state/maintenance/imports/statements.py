"""The statements of imported sessions."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations.kernel import storing
from lastlight_state.conversations.tables import BRANCHES, MESSAGES, PROGRESSIONS, SESSIONS
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import listed
from lastlight_state.db.statements import bind, prepared

_s, _b = SESSIONS.c, BRANCHES.c

SESSION = prepared(sa.select(_s.id, _s.status, _s.updated_at).where(_s.id == bind("session_id", _s.id)))
_changed_at = bind("at", _s.updated_at)
#: What is appended to a session has times of its own; the session's goes never back.
TOUCH = prepared(
    sa.update(SESSIONS)
    .where(_s.id == bind("session_id", _s.id), _s.updated_at < _changed_at)
    .values(updated_at=_changed_at)
    .returning(_s.id)
)
HEADS = prepared(
    sa.select(_b.id, _b.session_id).where(AmongFew(_b.id, sa.select(member_of(listed("ids").c.value, "id"))))
)
ORDERS_THERE = prepared(
    sa.select(PROGRESSIONS.c.id).where(AmongFew(PROGRESSIONS.c.id, sa.select(member_of(listed("ids").c.value, "id"))))
)
MESSAGES_THERE = prepared(
    sa.select(*storing.COLUMNS).where(AmongFew(MESSAGES.c.id, sa.select(member_of(listed("ids").c.value, "id"))))
)
