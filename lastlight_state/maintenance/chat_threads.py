"""The session, place and last message of chat threads, from their newest turns and from messaging.

One statement for all threads of a page. Turns are counted by `usage.list_threads` of workflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db.columns import Text
from lastlight_state.db.indexes import Leading, through
from lastlight_state.db.statements import Family, constant, number
from lastlight_state.db.unit import Unit
from lastlight_state.messaging.tables import MESSAGES, SESSIONS
from lastlight_state.workflows.tables import EXECUTIONS

#: How many characters of the last message are shown.
PREVIEW = 4_000

_e = EXECUTIONS.c
_TURN = EXECUTIONS.alias("turn")
_PREVIEW = (
    sa.select(sa.func.substr(MESSAGES.c.content, number(1), number(PREVIEW)))
    .where(Leading(MESSAGES.c.session_id, SESSIONS.c.id), MESSAGES.c.role == constant("assistant"))
    .order_by(MESSAGES.c.session_id.desc(), MESSAGES.c.id.desc())
    .limit(number(1))
    .scalar_subquery()
)


def _newest_turn(shown: sa.ColumnElement[Any], trigger: sa.ColumnElement[Any], *conditions: Any) -> Any:
    """A column of the newest turn of a thread that meets the conditions."""
    return (
        through(sa.select(shown), _TURN, "ix_executions_chat")
        .where(Leading(_TURN.c.trigger_id, trigger), _TURN.c.skill == constant("chat"), *conditions)
        .order_by(_TURN.c.trigger_id.desc(), _TURN.c.started_at.desc(), _TURN.c.id.desc())
        .limit(number(1))
        .scalar_subquery()
    )


def _known(triggers: Sequence[sa.BindParameter[Any]]) -> Any:
    asked = sa.values(sa.column("trigger_id", Text), name="asked").data([(sa.cast(one, Text),) for one in triggers])
    given = asked.cte("given")
    log = _newest_turn(_TURN.c.session_id, given.c.trigger_id, _TURN.c.session_id.is_not(None))
    return (
        sa.select(
            given.c.trigger_id,
            _e.owner,
            _e.repo,
            log.label("session_id"),
            SESSIONS.c.platform,
            SESSIONS.c.agent_session_id,
            _PREVIEW.label("preview"),
        )
        .select_from(given)
        .join(EXECUTIONS, _e.id == _newest_turn(_TURN.c.id, given.c.trigger_id))
        .outerjoin(SESSIONS, SESSIONS.c.id == given.c.trigger_id)
    )


class ThreadRow(TypedDict):
    """What is known of a thread beside its turns."""

    trigger_id: str
    owner: str | None
    repo: str | None
    session_id: str | None
    platform: str | None
    agent_session_id: str | None
    preview: str | None


KNOWN = Family("trigger", _known, ThreadRow)


def known(unit: Unit, triggers: Sequence[str]) -> dict[str, ThreadRow]:
    """Return the columns of `KNOWN` by trigger, for at most 500 triggers; those without turns are absent."""
    statement, values = KNOWN.of(triggers)
    return {row["trigger_id"]: row for row in unit.rows(statement, values)}
