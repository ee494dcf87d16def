"""Executions of agent sessions: their texts are emptied, their times, usage and costs stay."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from lastlight_state.conversations.tables import SESSIONS
from lastlight_state.db import columns
from lastlight_state.db.declarations import contents, emptied
from lastlight_state.db.keyed import IdRow, KeyRow, chunks, family, rows
from lastlight_state.db.unit import Unit
from lastlight_state.messaging.tables import SESSIONS as CHATS
from lastlight_state.workflows.tables import EXECUTIONS

_e, _c, _s = EXECUTIONS.c, CHATS.c, SESSIONS.c
_person = sa.bindparam("person", type_=columns.Text)

#: What the agent said, and what was said to it or of it.
_TEXTS = contents(EXECUTIONS)
_is_full = sa.or_(*(column.is_not(None) for column in _TEXTS))

FULL = family(lambda keys: sa.select(_e.id).where(_e.session_id.in_(keys), _e.session_id.is_not(None), _is_full), IdRow)
EMPTY = family(
    lambda keys: (
        sa.update(EXECUTIONS)
        .where(_e.session_id.in_(keys), _e.session_id.is_not(None), _is_full)
        .values(emptied(_TEXTS))
    )
)
#: The agent sessions that stand behind chats or sessions of others, too.
OTHERS = family(
    lambda keys: sa.union(
        sa.select(_c.agent_session_id.label("key")).where(_c.agent_session_id.in_(keys), _c.user_id != _person),
        sa.select(_s.agent_session_id).where(_s.agent_session_id.in_(keys), _s.user != _person),
    ),
    KeyRow,
)


def own(unit: Unit, agent_sessions: Collection[str], person: str) -> set[str]:
    """Return those of these agent sessions that no chat and no session of another user has."""
    others: set[str] = set()
    for some in chunks(agent_sessions):
        statement, values = OTHERS.of(some)
        others.update(row["key"] for row in unit.rows(statement, {**values, "person": person}))
    return set(agent_sessions) - others


def counted(unit: Unit, agent_sessions: Collection[str]) -> int:
    """Return how many executions `empty` would change."""
    return sum(1 for _ in rows(unit, FULL, agent_sessions))


def empty(unit: Unit, agent_sessions: Collection[str]) -> int:
    """Empty the texts of the executions of these agent sessions. Returns how many had any."""
    return sum(unit.change(*EMPTY.of(some)) for some in chunks(agent_sessions))
