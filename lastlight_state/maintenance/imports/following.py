"""How the fields and statuses of a stored session, and of its branches, follow its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastlight_state import codec
from lastlight_state.conversations import words
from lastlight_state.conversations.branches import making, statements as branch_sql
from lastlight_state.conversations.kernel import branching, sessions, statuses
from lastlight_state.conversations.kernel.feeds import feed, news
from lastlight_state.conversations.sessions import checks, statements as session_sql
from lastlight_state.conversations.sessions.checks import SessionDraft
from lastlight_state.conversations.shown import WholeSessionRow
from lastlight_state.conversations.trees.plans import BranchPlan
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.statements import Row, Values
from lastlight_state.db.unit import Unit
from lastlight_state.maintenance.imports import statements as sql
from lastlight_state.maintenance.imports.drafts import Change, Pool

_JSON = frozenset({"node_metadata", "extra", "artifact_contract", "artifact_verification"})
_FIELDS = ("name", "user", *checks.PROVENANCE, "project", "agent_session_id", "started_at", *sorted(_JSON))
#: They follow only where the status is the same: a change of the status brings its own.
_ENDS = ("ended_at", "ended_at_is_approximate")
_BRANCH_FIELDS = ("name", "user", "node_metadata", "extra", *branching.HINTS, "system_msg_id")

#: A change of status, and its reason as statements name it.
Checked = tuple[Change, statuses.Why]


def marks(pool: Pool | None, order: Sequence[str] | None) -> Row:
    """Return the bookmarks of a session: as its source says, or else the ends of the order of all messages."""
    if pool is None or not order:
        return {}
    return {"first_msg_id": pool.first or order[0], "last_msg_id": pool.last or order[-1]}


def differences(stored: WholeSessionRow, given: SessionDraft, pointers: Row) -> Row:
    """Return the columns of a session that the source has otherwise, as statements name them."""
    same_status = stored["status"] == given["status"]
    here: Values = stored
    told: Values = given
    wanted = {name: told[name] for name in (*_FIELDS, *(_ENDS if same_status else ()))} | pointers
    found = {name: value for name, value in wanted.items() if _differs(name, here[name], value)}
    last = given["last_message_at"]
    if last is not None and (stored["last_message_at"] is None or stored["last_message_at"] < last):
        found["last_message_at"] = last
    return found


def branch_differences(view: Unit, session_id: str, plans: Sequence[BranchPlan]) -> dict[str, Row]:
    """Return the columns of each stored branch that the source has otherwise, by the ids of branches."""
    stored = {row["id"]: row for row in view.rows(sql.BRANCHES_OF, {"session_id": session_id})}
    found: dict[str, Row] = {}
    for plan in plans:
        row = stored.get(plan.row["id"])
        if row is None:
            continue
        here: Values = row
        given: Row = {**plan.row, "node_metadata": making.kept(row["node_metadata"], plan.row["node_metadata"])}
        names = [name for name in _BRANCH_FIELDS if _differs(name, here[name], given[name])]
        if names:
            found[plan.row["id"]] = {name: given[name] for name in names}
    return found


def change(view: Unit, listeners: Listeners, session_id: str, changes: Row, at: Any) -> None:
    """Set columns of a session, and say so in its feed."""
    if changes:
        chain = session_sql.update(frozenset(changes), versioned=False)
        feed(view, listeners, chain, {**changes, "session_id": session_id, "at": at}, news("session.updated"))


def change_branches(view: Unit, listeners: Listeners, session_id: str, changes: Mapping[str, Row], at: Any) -> None:
    """Set columns of branches, and say so in the feed of their session."""
    for branch_id, values in changes.items():
        view.row(branch_sql.update(frozenset(values)), {**values, "branch_id": branch_id})
        sessions.move(view, listeners, session_id, at, news("branch.updated", branch_id=branch_id))


def tell(
    view: Unit, listeners: Listeners, session_id: str, history: Sequence[Checked], ids: Sequence[str | None], last: Row
) -> None:
    """Write changes of the status of a session, one after another. ``last`` are columns that the last one sets."""
    for at, (one, why) in enumerate(history):
        [row] = view.rows(statuses.LOCK, {"session_id": session_id})
        sets = last if at == len(history) - 1 else {}
        statuses.move(view, listeners, row, one.status, why, one.at, transition_id=ids[at], **sets)


def tell_branches(view: Unit, listeners: Listeners, session_id: str, ends: Mapping[str, Checked]) -> None:
    """Write the statuses of branches that have not ended here."""
    for branch_id, (one, why) in ends.items():
        [row] = view.rows(statuses.LOCK, {"session_id": session_id})
        [branch] = view.rows(statuses.BRANCH, {"branch_id": branch_id})
        if branch["status"] not in (*words.TERMINAL, one.status):
            times = {"started_at": one.started_at} if one.started_at else {}
            statuses.move_branch(view, listeners, row, branch, one.status, why, one.at, **times)


def _differs(name: str, stored: Any, given: Any) -> bool:
    if name in _JSON:
        return codec.canonical(stored) != codec.canonical(None if given is None else codec.decode(given))
    return bool(stored != given)
