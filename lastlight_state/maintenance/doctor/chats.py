"""What the checks look for in chat sessions: counts, places with two active sessions, idle ones, unsafe log names."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import sqlalchemy as sa

from lastlight_state.agent_log.paths import is_safe_id
from lastlight_state.db.keyed import IdRow
from lastlight_state.db.statements import bind, constant, number, prepared
from lastlight_state.maintenance.doctor.check import MOST, Fault, Look, Snapshot, found, named
from lastlight_state.maintenance.doctor.records import Finding
from lastlight_state.messaging.tables import MESSAGES, SESSIONS, is_active

LOGS, STUCK, AGREEMENT = "DOC-10", "DOC-15", "DOC-16"

#: From when on an active session counts as idle.
_IDLE = timedelta(days=30)

_c = SESSIONS.c
_PLACE = (_c.platform, _c.channel_id, sa.func.coalesce(_c.thread_id, sa.literal_column("''")), _c.user_id)
_message_count = (
    sa.select(sa.func.count()).select_from(MESSAGES).where(MESSAGES.c.session_id == _c.id).scalar_subquery()
)

AGREEMENTS = (
    Fault(
        AGREEMENT,
        "warning",
        SESSIONS,
        "message_count is not the number of its messages",
        sa.select(_c.id).where(_c.message_count != _message_count),
    ),
    Fault(
        AGREEMENT,
        "error",
        SESSIONS,
        "a user has several active sessions in one place",
        sa.select(sa.func.min(_c.id)).where(is_active()).group_by(*_PLACE).having(sa.func.count() > number(1)),
    ),
    Fault(
        AGREEMENT,
        "info",
        SESSIONS,
        "retired as a duplicate when the database was migrated: its messages were not joined with the other one's",
        sa.select(_c.id).where(_c.deactivated_reason == constant("duplicate")),
    ),
)


class NamingChat(IdRow):
    """A chat session that names a log."""

    agent_session_id: str


_IDLING = Fault(
    STUCK,
    "info",
    SESSIONS,
    "active, and silent for thirty days: `sessions.close_idle` ends it",
    sa.select(_c.id).where(is_active(), _c.last_activity_at < bind("now", _c.last_activity_at)),
)
_NAMING = prepared(
    sa.select(_c.id, _c.agent_session_id)
    .where(_c.agent_session_id.is_not(None))
    .order_by(_c.last_activity_at.desc(), _c.id.desc())
    .limit(number(MOST)),
    NamingChat,
)


def idle(look: Look, snapshot: Snapshot) -> Iterator[Finding]:
    """Return active sessions in which nobody says anything."""
    yield from _IDLING.look(Look(look.backend, look.settings, look.now - _IDLE, look.deep), snapshot)


def unsafe_names(_: Look, snapshot: Snapshot) -> Iterator[Finding]:
    """Return names of agent sessions under which no log could be written."""
    rows = snapshot.unit.rows(_NAMING) if SESSIONS.name in snapshot.tables else []
    unsafe = [named(row) for row in rows if not is_safe_id(row["agent_session_id"])]
    if unsafe:
        yield found(LOGS, "warning", str(SESSIONS.name), "agent_session_id cannot be the name of a log", unsafe)
