"""The statements of `messages`.

Whoever appends holds the session's row first, so the ids of a session are in the order of its commits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.chains import Chain, from_head
from lastlight_state.db.indexes import Leading
from lastlight_state.db.statements import Statement, bind, prepared
from lastlight_state.messaging.tables import (
    ACTIVE_NOW,
    MESSAGES,
    NEWEST_ACTIVITY,
    ONE,
    SESSIONS,
    THIS_SESSION,
    at_place,
    is_active,
)

PREVIEW = 280

COLUMNS = tuple(MESSAGES.c)


def counting(added: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> Any:
    """The update of a session to which messages are added; it is the lock and the check that it is there as well."""
    return (
        sa.update(SESSIONS)
        .where(*conditions)
        .values(
            message_count=sa.func.coalesce(SESSIONS.c.message_count, sa.literal_column("0")) + added,
            last_activity_at=ACTIVE_NOW,
        )
        .returning(SESSIONS.c.id)
    )


def _appending(*conditions: sa.ColumnElement[bool]) -> Chain:
    return Chain(
        counting(ONE, *conditions),
        into=MESSAGES,
        values={
            "session_id": from_head("id"),
            "role": bind("role", MESSAGES.c.role),
            "content": bind("content", MESSAGES.c.content),
            "timestamp": bind("timestamp", MESSAGES.c.timestamp),
        },
        returning=(MESSAGES.c.id,),
    )


_candidates = SESSIONS.alias("candidates")
_newest_here = (
    sa.select(_candidates.c.id)
    .where(at_place(_candidates), is_active(_candidates))
    .order_by(_candidates.c.last_activity_at.desc(), _candidates.c.id.desc())
    .limit(ONE)
    .scalar_subquery()
)
#: The newest active session of a place; nothing if it was retired while its row was waited for.
NEWEST_HERE = (SESSIONS.c.id == _newest_here, is_active())

APPEND = _appending(THIS_SESSION)
APPEND_HERE = _appending(*NEWEST_HERE)
IS_SOMEBODY_HERE = prepared(
    sa.select(SESSIONS.c.id).where(at_place(), is_active()).order_by(*NEWEST_ACTIVITY).limit(ONE)
)


GET = prepared(sa.select(*COLUMNS).where(MESSAGES.c.id == bind("message_id", MESSAGES.c.id)))


def _window(columns: Iterable[Any], condition: sa.ColumnElement[bool], *, newest_first: bool) -> Statement:
    """Some messages of a session in the order of their ids, whatever was said elsewhere.

    The limit is a parameter: written out, Postgres would plan once for conversations of average length, and for a
    limit beyond that length sort a long one.
    """
    order = (MESSAGES.c.session_id, MESSAGES.c.id)
    return prepared(
        sa.select(*columns)
        .where(Leading(MESSAGES.c.session_id, bind("session_id", MESSAGES.c.session_id)), condition)
        .order_by(*(column.desc() if newest_first else column for column in order))
        .limit(sa.bindparam("limit", type_=sa.Integer))
    )


GREATEST_ID = 2**63 - 1

_before = MESSAGES.c.id < bind("before", MESSAGES.c.id)
_after = MESSAGES.c.id > bind("after", MESSAGES.c.id)
_summary = (
    *(MESSAGES.c[name] for name in ("id", "session_id", "role", "timestamp", "platform_message_id")),
    sa.func.substr(MESSAGES.c.content, ONE, sa.literal_column(str(PREVIEW))).label("preview"),
    sa.func.length(MESSAGES.c.content).label("content_chars"),
)

BEFORE = _window(COLUMNS, _before, newest_first=True)
SINCE = _window(COLUMNS, _after, newest_first=False)
SUMMARIES_BEFORE = _window(_summary, _before, newest_first=True)

FIND_PLATFORM_ID = prepared(
    sa.select(*COLUMNS)
    .join_from(MESSAGES, SESSIONS, SESSIONS.c.id == MESSAGES.c.session_id)
    .where(
        MESSAGES.c.platform_message_id == bind("platform_message_id", MESSAGES.c.platform_message_id),
        SESSIONS.c.platform == bind("platform", SESSIONS.c.platform),
        SESSIONS.c.channel_id == bind("channel_id", SESSIONS.c.channel_id),
    )
    .order_by(MESSAGES.c.id.desc())
    .limit(ONE)
)
