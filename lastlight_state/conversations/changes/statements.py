"""The statements of feeds."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.conversations.kernel.summaries import SUMMARY
from lastlight_state.conversations.rows import SessionChangeRow
from lastlight_state.conversations.shown import SessionSummaryRow
from lastlight_state.conversations.tables import CHANGES, SESSIONS
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import bind, number, prepared

_c = CHANGES.c
_OF = _c.session_id == bind("session_id", _c.session_id)

LIST = Listing(
    "session_changes",
    tuple(CHANGES.columns),
    row=SessionChangeRow,
    order=(_c.seq,),
    filters={"session_id": _OF, "after_seq": _c.seq > bind("after_seq", _c.seq)},
    descending=False,
)
#: The sessions that changed last, in the order of their changes.
UPDATED = Listing(
    "sessions_updated",
    SUMMARY,
    row=SessionSummaryRow,
    order=(SESSIONS.c.updated_at, SESSIONS.c.id),
    filters={"since": SESSIONS.c.updated_at >= bind("since", SESSIONS.c.updated_at)},
    descending=False,
)
HEAD = prepared(sa.select(SESSIONS.c.change_seq).where(SESSIONS.c.id == bind("session_id", SESSIONS.c.id)))
LOWEST = prepared(sa.select(sa.func.min(_c.seq)).where(_OF))
_LAST = sa.select(_c.seq).where(_OF).order_by(_c.seq.desc()).limit(number(1)).scalar_subquery()
#: Lets the counter of a session that is behind know all numbers.
SETTLE = prepared(
    sa.update(SESSIONS)
    .where(SESSIONS.c.id == bind("session_id", SESSIONS.c.id), SESSIONS.c.change_seq < _LAST)
    .values(change_seq=_LAST)
)
TRIM = prepared(sa.delete(CHANGES).where(_OF, _c.seq < bind("below", _c.seq)))
