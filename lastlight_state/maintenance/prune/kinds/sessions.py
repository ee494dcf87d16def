"""Conversation sessions, with their branches, orders, and the messages that nothing else refers to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from lastlight_state.conversations.tables import BRANCHES, SESSIONS
from lastlight_state.conversations.words import SESSION
from lastlight_state.db.statements import among
from lastlight_state.maintenance.prune.kinds.kind import Kind
from lastlight_state.maintenance.prune.kinds.threads import Threads

#: Under which condition on a column a session stays, by the reason. For columns that sessions have.
_STAYS: Mapping[str, tuple[str, Callable[[Any], sa.ColumnElement[bool]]]] = {
    "not_ended": ("status", lambda status: among(status, ("running", "pending"))),
    "held": ("hold_reason", lambda reason: reason.is_not(None)),
}

SESSIONS_KIND = Kind(
    name="sessions",
    record=SESSION,
    key=SESSIONS.c.id,
    age=SESSIONS.c.updated_at,
    ended=sa.true(),
    index="ix_sessions_newest",
    protections={name: holds(SESSIONS.c[column]) for name, (column, holds) in _STAYS.items() if column in SESSIONS.c},
    children=(BRANCHES.c.session_id,),
    shared=Threads(),
)
