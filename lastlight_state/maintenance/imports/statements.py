"""The statements of imported sessions."""

from __future__ import annotations

from typing import TypedDict

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations.kernel import branching, storing
from lastlight_state.conversations.shown import WholeBranchRow, WholeMessageRow
from lastlight_state.conversations.tables import BRANCHES, MESSAGES, PROGRESSIONS, SESSIONS, TRANSITIONS
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import listed
from lastlight_state.db.statements import bind, prepared


class Head(TypedDict):
    """Where a stored branch belongs, and which order it has."""

    id: str
    session_id: str
    progression_id: str
    forked_at_ord: int | None


class There(TypedDict):
    """What is stored under an id."""

    id: str


class ChangeThere(There):
    """A change of status that is stored, and of which session."""

    session_id: str


_s, _b = SESSIONS.c, BRANCHES.c

_changed_at = bind("at", _s.updated_at)
#: What is appended to a session has times of its own; the session's goes never back.
TOUCH = prepared(
    sa.update(SESSIONS)
    .where(_s.id == bind("session_id", _s.id), _s.updated_at < _changed_at)
    .values(updated_at=_changed_at)
    .returning(_s.id)
)
HEADS = prepared(
    sa.select(_b.id, _b.session_id, _b.progression_id, _b.forked_at_ord).where(
        AmongFew(_b.id, sa.select(member_of(listed("ids").c.value, "id")))
    ),
    Head,
)
ORDERS_THERE = prepared(
    sa.select(PROGRESSIONS.c.id).where(AmongFew(PROGRESSIONS.c.id, sa.select(member_of(listed("ids").c.value, "id")))),
    There,
)
MESSAGES_THERE = prepared(
    sa.select(*storing.COLUMNS).where(AmongFew(MESSAGES.c.id, sa.select(member_of(listed("ids").c.value, "id")))),
    WholeMessageRow,
)
ORDER_VERSION = prepared(sa.select(PROGRESSIONS.c.version).where(PROGRESSIONS.c.id == bind("id", PROGRESSIONS.c.id)))
#: Which changes of status are stored under these ids, and of which session.
CHANGES_THERE = prepared(
    sa.select(TRANSITIONS.c.id, TRANSITIONS.c.session_id).where(
        AmongFew(TRANSITIONS.c.id, sa.select(member_of(listed("ids").c.value, "id")))
    ),
    ChangeThere,
)
BRANCHES_OF = prepared(
    sa.select(*branching.COLUMNS).where(_b.session_id == bind("session_id", _b.session_id)), WholeBranchRow
)
