"""Chat threads as the database has them: turns grouped by trigger, and what messaging knows of each.

A thread stands where its newest turn stands among all turns. A page walks the turns newest first and takes those that
are the newest of their thread, each found out by one look into the index of triggers; then it adds up the turns of the
threads that it shows. Its cost depends on the turns of these threads and of those newer than they are, not on how many
threads or executions there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db import pages
from lastlight_state.db.indexes import Leading, through
from lastlight_state.db.statements import Family, Statement, constant, prepared
from lastlight_state.messaging.tables import MESSAGES, SESSIONS
from lastlight_state.workflows.execution_rows import EXECUTIONS, MICROS
from lastlight_state.workflows.transitions import bind

PREVIEW = 4_000

_ONE: sa.ColumnElement[int] = sa.literal_column("1", sa.Integer)
_CHAT = constant("chat")
_CHATS = EXECUTIONS.alias("chat")
_LATER = EXECUTIONS.alias("later")
_COUNTERS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _newest_turn(column: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[Any]:
    """A column of the thread's newest turn, of those that meet the conditions."""
    return (
        sa.select(column)
        .where(Leading(_LATER.c.trigger_id, _CHATS.c.trigger_id), _LATER.c.skill == _CHAT, *conditions)
        .order_by(_LATER.c.trigger_id, _LATER.c.started_at.desc(), _LATER.c.id.desc())
        .limit(_ONE)
        .correlate(_CHATS)
        .scalar_subquery()
    )


_SHOWN = (
    *(_CHATS.c[name] for name in ("trigger_id", "id", "started_at", "owner", "repo")),
    _newest_turn(_LATER.c.session_id, _LATER.c.session_id.is_not(None)).label("session_id"),
)
_IS_NEWEST = sa.and_(_CHATS.c.skill == _CHAT, _CHATS.c.id == _newest_turn(_LATER.c.id))


def _page(*, after: bool) -> Statement:
    chosen = through(sa.select(*_SHOWN), _CHATS, "idx_executions_skill").where(_IS_NEWEST)
    if after:
        chosen = chosen.where(pages.after((_CHATS.c.started_at, _CHATS.c.id)))
    limit = sa.bindparam("limit", type_=sa.Integer)
    return _summed(chosen.order_by(_CHATS.c.started_at.desc(), _CHATS.c.id.desc()).limit(limit))


def _summed(chosen: sa.Select[Any]) -> Statement:
    """The threads chosen, newest first, each with the sums of its turns."""
    thread, turn = chosen.cte("thread"), EXECUTIONS.c
    sums = (
        sa.func.count().label("turn_count"),
        sa.func.min(turn.started_at).label("first_activity_at"),
        sa.func.sum(MICROS).label("micros"),
        *(sa.func.coalesce(sa.func.sum(turn[name]), sa.literal_column("0")).label(name) for name in _COUNTERS),
    )
    columns = tuple(thread.c)
    return prepared(
        sa.select(*columns, *sums)
        .select_from(thread)
        .join(EXECUTIONS, sa.and_(turn.trigger_id == thread.c.trigger_id, turn.skill == _CHAT))
        .group_by(*columns)
        .order_by(thread.c.started_at.desc(), thread.c.id.desc())
    )


FIRST_PAGE = _page(after=False)
NEXT_PAGE = _page(after=True)
ONE = _summed(sa.select(*_SHOWN).where(_CHATS.c.trigger_id == bind("trigger_id", _CHATS.c.trigger_id), _IS_NEWEST))


def _known(ids: Sequence[sa.BindParameter[Any]]) -> Any:
    """What messaging knows: the place of the session, its log, and the newest thing that the assistant said."""
    said = (
        sa.select(sa.func.substr(MESSAGES.c.content, 1, PREVIEW))
        .where(MESSAGES.c.session_id == SESSIONS.c.id, MESSAGES.c.role == constant("assistant"))
        .order_by(MESSAGES.c.session_id.desc(), MESSAGES.c.id.desc())
        .limit(_ONE)
        .scalar_subquery()
    )
    columns = (SESSIONS.c.id, SESSIONS.c.platform, SESSIONS.c.agent_session_id)
    return sa.select(*columns, said.label("preview")).where(SESSIONS.c.id.in_(ids))


KNOWN = Family("session", _known)
