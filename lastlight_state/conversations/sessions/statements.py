"""The statements of sessions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.conversations.kernel.feeds import fed
from lastlight_state.conversations.kernel.summaries import LARGE, SUMMARY
from lastlight_state.conversations.shown import SessionSummaryRow, WholeSessionRow
from lastlight_state.conversations.tables import SESSIONS, TRANSITIONS
from lastlight_state.db.base import later_of
from lastlight_state.db.chains import Chain
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Row, bind, number, prepared


class SessionState(TypedDict):
    """What may change of a session while nobody has locked it."""

    version: int
    node_metadata: Any


_c = SESSIONS.c
_THIS = _c.id == bind("session_id", _c.id)

COLUMNS = [*SUMMARY, *(_c[name] for name in LARGE)]

GET = prepared(sa.select(*COLUMNS).where(_THIS), WholeSessionRow)
#: How many changes of status an earlier session of this id left: its history outlives it, and is continued.
_FORMER = (
    sa.select(sa.func.coalesce(sa.func.max(TRANSITIONS.c.seq), number(0)))
    .where(TRANSITIONS.c.session_id == bind("id", _c.id))
    .scalar_subquery()
)
INSERT = fed(
    insert(SESSIONS)
    .values(
        {column.name: bind(column.name, column) for column in SESSIONS.columns}
        | {"transition_seq": bind("transition_seq", _c.transition_seq) + _FORMER}
    )
    .on_conflict_do_nothing()
    .returning(_c.id, _c.change_seq, _c.transition_seq)
)
LOCK = prepared(sa.select(_c.version, _c.node_metadata).where(_THIS).with_for_update(), SessionState)
_at = bind("at", _c.updated_at)
TOUCH = prepared(
    sa.update(SESSIONS)
    .where(_THIS)
    .values(
        last_message_at=later_of(sa.func.coalesce(_c.last_message_at, _at), _at),
        updated_at=later_of(_c.updated_at, _at),
    )
    .returning(_c.last_message_at)
)


@lru_cache(maxsize=256)
def update(names: frozenset[str], *, versioned: bool) -> Chain:
    """Return the chain that sets these columns and says so in the feed. With a version, only if the row has it."""
    conditions = [_THIS, _c.version == bind("expected", _c.version)] if versioned else [_THIS]
    values: Row = {name: bind(name, _c[name]) for name in sorted(names)}
    counted = {"version": _c.version + number(1), "change_seq": _c.change_seq + number(1)}
    changed = sa.update(SESSIONS).where(*conditions).values(**counted, **values)
    return fed(changed.returning(_c.id, _c.change_seq))


_EQUAL = (
    "user",
    "project",
    "agent_session_id",
    "workflow_run_id",
    "invocation_kind",
    "source_kind",
    "agent_name",
    "playbook_name",
    "show_topic",
    "show_play_name",
)
LIST = Listing(
    "sessions",
    SUMMARY,
    order=(_c.updated_at, _c.id),
    filters={
        **{name: _c[name] == bind(name, _c[name]) for name in _EQUAL},
        "updated_since": _c.updated_at >= bind("updated_since", _c.updated_at),
    },
    spread={"statuses": _c.status},
    worded=("statuses",),
    row=SessionSummaryRow,
)
