"""The statements of the lifecycle."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations.lifecycle_records import Transition
from lastlight_state.conversations.shared.feeds import feed_chain
from lastlight_state.conversations.shared.sessions import MOVED
from lastlight_state.conversations.shared.statuses import COLUMNS
from lastlight_state.conversations.tables import PROGRESSIONS, SESSIONS, TRANSITIONS
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Statement, bind, constant, number, statement_of
from lastlight_state.db.rows.writes import elements_table
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import AmongFew

_s, _t = SESSIONS.c, TRANSITIONS.c
_THIS = _s.id == bind("session_id", _s.id)
_RUNNING = _s.status == constant("running")

HISTORY = Listing(
    "session_transitions",
    COLUMNS,
    row=Transition,
    order=(_t.seq,),
    filters={
        "session_id": _t.session_id == bind("session_id", _t.session_id),
        "branch_id": _t.branch_id == bind("branch_id", _t.branch_id),
    },
)
_of_session = _t.session_id == bind("session_id", _t.session_id)
#: The last status change of a session itself, and of one of its branches.
LAST = statement_of(
    sa.select(*COLUMNS).where(_of_session, _t.branch_id.is_(None)).order_by(_t.seq.desc()).limit(number(1)),
    Transition,
)
LAST_OF_BRANCH = statement_of(
    sa.select(*COLUMNS)
    .where(_of_session, _t.branch_id == bind("branch_id", _t.branch_id))
    .order_by(_t.seq.desc())
    .limit(number(1)),
    Transition,
)

_heard = bind("at", _s.heartbeat_at)
HEARTBEAT = statement_of(
    sa.update(SESSIONS)
    .where(
        _THIS,
        _RUNNING,
        sa.or_(
            _s.owner.is_(None),
            _s.owner == bind("owner", _s.owner),
            _s.heartbeat_at.is_(None),
            _s.heartbeat_at < bind("stale_before", _s.heartbeat_at),
        ),
    )
    .values(owner=bind("owner", _s.owner), heartbeat_at=later_of(sa.func.coalesce(_s.heartbeat_at, _heard), _heard))
    .returning(_s.heartbeat_at)
)
#: The status of a session, and who has it.
HOLDER: Statement[tuple[str | None, str | None]] = statement_of(sa.select(_s.status, _s.owner).where(_THIS), tuple)

_sign: sa.ColumnElement[Any] = _s.created_at
for _time in (_s.last_message_at, _s.started_at, _s.heartbeat_at):
    _sign = later_of(_sign, sa.func.coalesce(_time, _s.created_at))
LAST_SIGN = _sign.label("last_sign")
VERIFIED = feed_chain(
    sa.update(SESSIONS)
    .where(_THIS)
    .values(artifact_verification=bind("result", _s.artifact_verification), **MOVED)
    .returning(_s.id, _s.change_seq)
)

_wanted = elements_table("wanted")
_last = TRANSITIONS.alias("last")
_last_seq = sa.select(sa.func.max(_t.seq)).where(_t.session_id == _s.id, _t.branch_id.is_(None)).scalar_subquery()
#: Joins a session to its last status change. A session without a status has none: a change with its id is from an
#: earlier session of the same id.
_explains = sa.and_(_last.c.session_id == _s.id, _last.c.seq == _last_seq, _s.status.is_not(None))
_size = (
    sa.select(PROGRESSIONS.c.next_ord - PROGRESSIONS.c.start_ord)
    .where(PROGRESSIONS.c.id == _s.progression_id)
    .scalar_subquery()
    .label("message_count")
)
FACTS = (
    "id status invocation_kind artifacts_path started_at last_message_at heartbeat_at artifact_contract "
    "artifact_verification".split()
)
#: The prefix that tells the columns of the last transition from the session's own.
REASON = "reason_"
STATES = statement_of(
    sa.select(
        *(_s[name] for name in FACTS), _size, *(column.label(f"{REASON}{column.name}") for column in _last.columns)
    )
    .select_from(SESSIONS.outerjoin(_last, _explains))
    .where(AmongFew(_s.id, sa.select(member_of(_wanted.c.value, "id"))))
)
