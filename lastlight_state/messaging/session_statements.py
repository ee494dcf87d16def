"""The statements of `sessions`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Statement, bind, number, prepared
from lastlight_state.messaging.records import SummaryRow
from lastlight_state.messaging.rows import MessagingSessionRow
from lastlight_state.messaging.tables import (
    ACTIVE_NOW,
    NEWEST_ACTIVITY,
    SESSIONS,
    THIS_SESSION,
    at_place,
    is_active,
)

COLUMNS = tuple(SESSIONS.c)
SUMMARY = tuple(column for column in COLUMNS if column.name != "metadata")
CHANGEABLE = ("title", "metadata", "agent_session_id")

_cutoff = bind("cutoff", SESSIONS.c.last_activity_at)
_this_user = SESSIONS.c.user_id == bind("user_id", SESSIONS.c.user_id)
_this_key = sa.and_(at_place(), _this_user)
_idle = SESSIONS.c.last_activity_at < _cutoff
_one_more = SESSIONS.c.version + number(1)


def _newest(*conditions: sa.ColumnElement[bool], order: Iterable[Any]) -> Statement[MessagingSessionRow]:
    shown = sa.select(*COLUMNS).where(*conditions).order_by(*order).limit(number(1))
    return prepared(shown, MessagingSessionRow)


def _retiring(*conditions: sa.ColumnElement[bool], returning: Iterable[Any]) -> sa.Executable:
    """An UPDATE that ends active sessions. No statement makes an ended session active again."""
    return (
        sa.update(SESSIONS)
        .where(is_active(), *conditions)
        .values(
            active=sa.false(),
            version=_one_more,
            deactivated_at=bind("at", SESSIONS.c.deactivated_at),
            deactivated_reason=bind("reason", SESSIONS.c.deactivated_reason),
        )
        .returning(*returning)
    )


GET = prepared(sa.select(*COLUMNS).where(THIS_SESSION), MessagingSessionRow)
VERSION = prepared(sa.select(SESSIONS.c.version).where(THIS_SESSION))
#: The caller checks whether the session is idle: with that condition in the statement Postgres prefers the index of the
#: place, and reads all active sessions there.
FIND_KEY = prepared(sa.select(*COLUMNS).where(_this_key, is_active()), MessagingSessionRow)
FIND_PLACE_FRESH = _newest(at_place(), is_active(), SESSIONS.c.last_activity_at >= _cutoff, order=NEWEST_ACTIVITY)
FIND_AGENT = _newest(
    SESSIONS.c.agent_session_id == bind("agent_session_id", SESSIONS.c.agent_session_id),
    order=(SESSIONS.c.created_at.desc(), SESSIONS.c.id.desc()),
)

#: Inserts nothing if the id is taken or the key has an active session.
INSERT = prepared(
    insert(SESSIONS)
    .values(
        **{name: bind(name, SESSIONS.c[name]) for name in ("id", "platform", "channel_id", "thread_id", "user_id")},
        created_at=bind("at", SESSIONS.c.created_at),
        last_activity_at=bind("at", SESSIONS.c.last_activity_at),
        message_count=number(0),
        active=sa.true(),
    )
    .on_conflict_do_nothing()
    .returning(*COLUMNS),
    MessagingSessionRow,
)

RETIRE_IDLE = prepared(_retiring(_this_key, _idle, returning=[SESSIONS.c.id]))
RETIRE = prepared(_retiring(_this_key, returning=[SESSIONS.c.id]))
CLOSE = prepared(_retiring(THIS_SESSION, returning=COLUMNS), MessagingSessionRow)

_idle_ids = through(
    sa.select(SESSIONS.c.id).where(is_active(), _idle), SESSIONS, "ix_messaging_sessions_active_place"
)  # else SQLite reads all inactive sessions, which are older
_oldest_idle = (  # a CTE, which Postgres runs once: a subquery may run again, and then finds other rows
    _idle_ids.order_by(SESSIONS.c.last_activity_at, SESSIONS.c.id)
    .limit(sa.bindparam("limit", type_=sa.Integer))
    .with_for_update(skip_locked=True, key_share=True)
    .cte("oldest")
)
#: Rows locked by others are skipped, because they are about to become fresh or inactive.
CLOSE_IDLE = prepared(_retiring(SESSIONS.c.id.in_(sa.select(_oldest_idle.c.id)), returning=[SESSIONS.c.id]))

TOUCH = prepared(
    sa.update(SESSIONS).where(THIS_SESSION).values(last_activity_at=ACTIVE_NOW).returning(SESSIONS.c.last_activity_at)
)

_agent = SESSIONS.c.agent_session_id
ENSURE_AGENT = prepared(
    sa.update(SESSIONS)
    .where(THIS_SESSION)
    .values(
        agent_session_id=sa.func.coalesce(_agent, bind("proposed", _agent)),
        version=sa.case((_agent.is_(None), _one_more), else_=SESSIONS.c.version),
    )
    .returning(_agent)
)


def _changing(names: Iterable[str]) -> Statement[MessagingSessionRow]:
    return prepared(
        sa.update(SESSIONS)
        .where(THIS_SESSION, SESSIONS.c.version == bind("expected", SESSIONS.c.version))
        .values(version=_one_more, **{name: bind(name, SESSIONS.c[name]) for name in names})
        .returning(*COLUMNS),
        MessagingSessionRow,
    )


#: By the names of the columns that a call changes.
UPDATE = {
    frozenset(names): _changing(names)
    for size in range(1, len(CHANGEABLE) + 1)
    for names in combinations(CHANGEABLE, size)
}

LIST = Listing(
    "messaging_sessions",
    SUMMARY,
    order=(SESSIONS.c.last_activity_at, SESSIONS.c.id),
    filters={
        "platform": SESSIONS.c.platform == bind("platform", SESSIONS.c.platform),
        "channel_id": SESSIONS.c.channel_id == bind("channel_id", SESSIONS.c.channel_id),
        "user_id": _this_user,
        "only_active": is_active(),
        "only_inactive": sa.or_(SESSIONS.c.active == sa.false(), SESSIONS.c.active.is_(None)),
    },
    through="ix_messaging_sessions_activity",
    row=SummaryRow,
)
