"""The statements of branches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.conversations.kernel import branching, lineage
from lastlight_state.conversations.kernel.storing import COLUMNS as MESSAGE_COLUMNS
from lastlight_state.conversations.shown import BranchMessageRow, BranchSummaryRow, LinkRow
from lastlight_state.conversations.tables import BRANCHES, LINKS, MESSAGES, SESSIONS
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Row, Statement, bind, prepared

_b, _l, _m = BRANCHES.c, LINKS.c, MESSAGES.c
_THIS = _b.id == bind("branch_id", _b.id)

#: What an append has to know of a branch before it locks anything. None of it ever changes.


class BranchHead(TypedDict):
    """What an append has to know of a branch."""

    session_id: str
    progression_id: str
    parent_branch_id: str | None
    pool: str


class BranchState(TypedDict):
    """What may change of a branch under the lock of its session."""

    system_msg_id: str | None
    node_metadata: Any


HEAD = prepared(
    sa.select(_b.session_id, _b.progression_id, _b.parent_branch_id, SESSIONS.c.progression_id.label("pool"))
    .select_from(BRANCHES.join(SESSIONS, SESSIONS.c.id == _b.session_id))
    .where(_THIS),
    BranchHead,
)
STATE = prepared(sa.select(_b.system_msg_id, _b.node_metadata).where(_THIS), BranchState)
SYSTEM = prepared(
    sa.update(BRANCHES).where(_THIS).values(system_msg_id=bind("message_id", _b.system_msg_id)).returning(_b.id)
)
LENGTH = prepared(sa.select(branching.SUMMARY[-1]).where(_THIS))
FIRST = prepared(
    sa.select(_l.message_id, _l.ord)
    .where(_l.progression_id == bind("progression_id", _l.progression_id))
    .where(_l.ord == bind("ord", _l.ord)),
    LinkRow,
)
RELINK = prepared(
    sa.update(LINKS)
    .where(_l.progression_id == bind("progression_id", _l.progression_id), _l.ord == bind("ord", _l.ord))
    .values(message_id=bind("message_id", _l.message_id))
)

#: The messages at some positions, with what `lineage.ORDER` shows.
BODIES = prepared(
    sa.select(_l.ord, lineage.BRANCH_ID, *MESSAGE_COLUMNS)
    .select_from(lineage.PLACES.join(MESSAGES, _m.id == _l.message_id))
    .order_by(_l.ord),
    BranchMessageRow,
)

LIST = Listing(
    "branches",
    branching.SUMMARY,
    row=BranchSummaryRow,
    order=(_b.created_at, _b.id),
    filters={"session_id": _b.session_id == bind("session_id", _b.session_id)},
    descending=False,
)


@lru_cache(maxsize=64)
def update(names: frozenset[str]) -> Statement:
    """The statement that sets these columns."""
    values: Row = {name: bind(name, _b[name]) for name in sorted(names)}
    return prepared(sa.update(BRANCHES).where(_THIS).values(values).returning(_b.id))
