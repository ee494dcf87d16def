"""Waiting for news of sessions: one look at the feeds of all sessions that anybody in the store waits for."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypedDict

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations.tables import SESSIONS
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import as_list, listed
from lastlight_state.db.scope import Scope
from lastlight_state.db.statements import prepared
from lastlight_state.db.watch import Watch, watch_of


class FeedHead(TypedDict):
    """A session, and the number of the last entry of its feed."""

    id: str
    change_seq: int


#: The number of the last entry of a session that is not there any more: greater than any other.
GONE = 2**63 - 1

_wanted = listed("wanted")
HEADS = prepared(
    sa.select(SESSIONS.c.id, SESSIONS.c.change_seq).where(
        AmongFew(SESSIONS.c.id, sa.select(member_of(_wanted.c.value, "id")))
    ),
    FeedHead,
)


def watch_for(scope: Scope) -> Watch[str]:
    """The store's watch over the feeds of sessions."""

    def read(keys: Collection[str]) -> dict[str, int]:
        values = {"wanted": as_list([{"id": one} for one in sorted(keys)])}
        rows = scope.reading(lambda unit: unit.rows(HEADS, values))
        return dict.fromkeys(keys, GONE) | {row["id"]: row["change_seq"] for row in rows}

    return watch_of(scope, "session_changes", read)
