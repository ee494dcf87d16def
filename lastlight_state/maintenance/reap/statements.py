"""The statements that find sessions without a sign of life."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.conversations.lifecycle.statements import LAST_SIGN
from lastlight_state.conversations.shown import StaleSessionRow
from lastlight_state.conversations.tables import SESSIONS
from lastlight_state.conversations.words import RUNNING
from lastlight_state.db.statements import bind, constant, exactly, prepared

#: How many sessions one statement looks at.
LOOK = 100

_s = SESSIONS.c
_running = _s.status == constant(RUNNING)
_sign = LAST_SIGN.element
_after = sa.tuple_(exactly("after_at", _s.created_at), bind("after_id", _s.id))

#: The next running sessions after a place that have been silent since before an instant, the longest silent first.
SILENT = prepared(
    sa.select(_s.id, _s.owner, LAST_SIGN)
    .where(_running, _sign < bind("cutoff", _s.created_at), sa.tuple_(_sign, _s.id) > _after)
    .order_by(_sign, _s.id)
    .limit(sa.bindparam("limit", type_=sa.Integer)),
    StaleSessionRow,
)
COUNT = prepared(sa.select(sa.func.count()).select_from(SESSIONS).where(_running))
