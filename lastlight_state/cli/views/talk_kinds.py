"""The kinds of record of conversations: sessions, with their branches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.cli.views.kind import Filters, Kind, Store, column
from lastlight_state.conversations import SessionFilter
from lastlight_state.db.records import Page

SESSIONS = (
    column("ID", is_id=True),
    column("NAME"),
    column("STATUS"),
    column("KIND", "invocation_kind", rank=3),
    column("AGENT", "agent_name", rank=1),
    column("BRANCHES", "branch_count", right=True, rank=2),
    column("MESSAGES", "message_count", right=True),
    column("UPDATED", "updated_at", keep=True),
)
BRANCHES = (
    column("ID", is_id=True),
    column("NAME"),
    column("PARENT", "parent_branch_id", is_id=True, rank=1),
    column("AT", "forked_at_ord", right=True),
    column("MESSAGES", "length", right=True),
    column("CREATED", "created_at", keep=True),
)
TRANSITIONS = (
    column("SEQ", keep=True, right=True),
    column("BRANCH", "branch_id", is_id=True),
    column("FROM", "previous_status"),
    column("TO", "status"),
    column("REASON", "reason_code"),
    column("ACTOR", rank=1),
    column("AT", "created_at", keep=True),
)


def _sessions(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("sessions", "run")
    where = SessionFilter(statuses=filters.statuses, updated_since=filters.since, project=filters.project)
    return store.conversations.sessions.list(where=where, **filters.paging)


def _of_session(store: Store, session: Any) -> Mapping[str, Page[Any]]:
    talks = store.conversations
    return {"branches": talks.branches.list(session.id), "transitions": talks.lifecycle.history(session.id)}


#: By the word that ``ls`` takes.
KINDS = {
    "sessions": Kind(
        "session",
        SESSIONS,
        _sessions,
        "(no sessions)",
        lambda store, key: store.conversations.sessions.get(key),
        children=_of_session,
        by=("project",),
    ),
}

#: The columns of children, by their name in ``Kind.children``.
COLUMNS = {"branches": BRANCHES, "transitions": TRANSITIONS}
