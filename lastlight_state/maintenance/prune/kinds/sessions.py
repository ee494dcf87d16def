"""Conversation sessions, with their branches, orders, and the messages that nothing else refers to."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.conversations.kernel.references import PROTECTIONS
from lastlight_state.conversations.kernel.threads import Threads
from lastlight_state.conversations.tables import BRANCHES, CHANGES, SESSIONS
from lastlight_state.conversations.words import SESSION
from lastlight_state.maintenance.prune.kinds.kind import Kind

SESSIONS_KIND = Kind(
    name="sessions",
    record=SESSION,
    key=SESSIONS.c.id,
    age=SESSIONS.c.updated_at,
    ended=sa.true(),
    index="ix_sessions_newest",
    protections=PROTECTIONS,
    children=(BRANCHES.c.session_id, CHANGES.c.session_id),
    shared=Threads(),
)
