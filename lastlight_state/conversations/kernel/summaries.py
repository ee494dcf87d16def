"""What lists show of a session."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.conversations.tables import BRANCHES, PROGRESSIONS, SESSIONS

_c = SESSIONS.c

#: The columns that lists leave out.
LARGE = ("node_metadata", "extra", "artifact_contract", "artifact_verification")

_MESSAGES = (
    sa.select(PROGRESSIONS.c.next_ord - PROGRESSIONS.c.start_ord)
    .where(PROGRESSIONS.c.id == _c.progression_id)
    .scalar_subquery()
    .label("message_count")
)
_BRANCHES = (
    sa.select(sa.func.count())
    .select_from(BRANCHES)
    .where(BRANCHES.c.session_id == _c.id)
    .scalar_subquery()
    .label("branch_count")
)
#: The columns of a `SessionSummary`.
SUMMARY = [*(column for column in SESSIONS.columns if column.name not in LARGE), _MESSAGES, _BRANCHES]
