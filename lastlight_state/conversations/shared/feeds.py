"""The feed of a session: each change of the session adds an entry with the next number, under the session's row lock.

So the numbers have no gaps and follow the order of commits: a reader who has read entry n finds the next at n+1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import words
from lastlight_state.conversations.lifecycle_records import Change
from lastlight_state.conversations.tables import CHANGES, SESSIONS
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.news.watch import Watch, watch_of
from lastlight_state.db.rows.statements import Row, Statement, Values, bind, every_column_of, statement_of
from lastlight_state.db.rows.writes import Chain, as_list, elements_table, from_head, inserted_row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Unit

# Waiting for feed entries: one query polls the feeds of all sessions that any caller of this store waits for.


#: The number of the last entry of a session that is not there any more: greater than any other.
GONE = 2**63 - 1

_wanted = elements_table("wanted")
#: Sessions, each with the number of the last entry of its feed.
HEADS: Statement[tuple[str, int]] = statement_of(
    sa.select(SESSIONS.c.id, SESSIONS.c.change_seq).where(
        AmongFew(SESSIONS.c.id, sa.select(member_of(_wanted.c.value, "id")))
    ),
    tuple,
)


def watch_for(scope: Scope) -> Watch[str]:
    """Return the watch through which callers of a store wait for new entries in the feeds of sessions."""

    def read(keys: Collection[str]) -> dict[str, int]:
        values = {"wanted": as_list([{"id": one} for one in sorted(keys)])}
        rows = scope.read(lambda unit: unit.rows(HEADS, values))
        return dict.fromkeys(keys, GONE) | dict(rows)

    return watch_of(scope, "session_changes", read)


_LIMITS = limits_of(CHANGES)


class EntryParameters(TypedDict):
    """The parameters of an entry of a feed: those of `feed_chain`."""

    told_kind: words.ChangeKind
    told_branch_id: str | None
    told_progression_id: str | None
    told_message_id: str | None
    told_ord: int | None
    told_count: int | None
    told_details: str | None


#: The listener topic for changes of sessions.
TOPIC = "conversations.changes"

_c = CHANGES.c
#: The columns of a `Change`.
COLUMNS = every_column_of(Change, CHANGES)
_ABOUT = ("branch_id", "progression_id", "message_id", "ord", "count")


def feed_chain(head: Any) -> Chain:
    """Return a chain of two statements: ``head`` changes a session, then the feed entry for it is inserted.

    ``head`` must return the session's ``id`` and ``change_seq``.
    """
    told = ("kind", *_ABOUT, "details")
    values: dict[str, sa.ColumnElement[Any]] = {name: bind(f"told_{name}", _c[name]) for name in told}
    sessions = {"session_id": from_head("id"), "seq": from_head("change_seq")}
    return Chain(head, into=CHANGES, values={**sessions, **values, "at": bind("at", _c.at)}, returning=COLUMNS)


def entry_parameters(
    kind: words.ChangeKind,
    *,
    branch_id: str | None = None,
    progression_id: str | None = None,
    message_id: str | None = None,
    first: int | None = None,
    count: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> EntryParameters:
    """Return the parameters of a feed entry. ``first`` is the first position that the change affects."""
    return {
        "told_kind": kind,
        "told_branch_id": branch_id,
        "told_progression_id": progression_id,
        "told_message_id": message_id,
        "told_ord": first,
        "told_count": count,
        "told_details": None if details is None else codec.encode("details", details, max_bytes=_LIMITS.details),
    }


def write_entry(unit: Unit, listeners: Listeners, change: Chain, values: Values, told: EntryParameters) -> Row | None:
    """Change a session and write its feed entry by the chain. Listeners are notified after the commit.

    Returns the row that the chain's head returned, or None if it changed no session.
    """
    head = unit.chain(change, {**values, **told})
    if head is None:
        return None
    entry = Change.of(inserted_row(head))
    unit.after_commit(lambda: listeners.notify(TOPIC, entry))
    return head
