"""Loads session trees, and checks a caller's tree and turns it into a plan of the rows to save."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa

from lastlight_state.conversations import checks, sessions, words
from lastlight_state.conversations.arguments import (
    BranchTree,
    NewBranch,
    NewMessage,
    NewSession,
    Provenance,
    SessionTimes,
    SessionTree,
)
from lastlight_state.conversations.branches import statements
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.records import Branch, ConversationSession, Message
from lastlight_state.conversations.runtime import branch_order
from lastlight_state.conversations.sessions import checks as session_checks
from lastlight_state.conversations.sessions.checks import SessionDraft
from lastlight_state.conversations.shared import branching, storing
from lastlight_state.conversations.shared.branching import BranchDraft
from lastlight_state.conversations.tables import BRANCHES
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import bind, number, statement_of
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, PayloadTooLarge

# Loading a tree: reads a session, its branches and their messages from one snapshot.

_b = BRANCHES.c
_BRANCHES = statement_of(
    sa.select(*branching.COLUMNS)
    .where(_b.session_id == bind("session_id", _b.session_id))
    .order_by(_b.created_at, _b.id)
    .limit(number(words.TREE_BRANCHES + 1)),
    Branch,
)


def tree(unit: Unit, session_id: str, most: int) -> SessionTree:
    """Return the whole session. Raises `NotFound`, and `PayloadTooLarge` for more messages."""
    session = unit.row(sessions.GET, {"session_id": session_id})
    if session is None:
        raise valid.not_found(words.SESSION, session_id)
    branches = unit.rows(_BRANCHES, {"session_id": session_id})
    _refuse_more("branches", len(branches), words.TREE_BRANCHES)
    _refuse_more("messages", sum(branch.length for branch in branches), most)
    told = {one: at for at, one in enumerate(branch_order(session.extra)) if isinstance(one, str)}
    branches.sort(key=lambda branch: told.get(branch.id, len(told)))
    lines = {branch.id: branching.whole_order(unit, branch.id) for branch in branches}
    systems = [branch.system_msg_id for branch in branches if branch.system_msg_id is not None]
    bodies = _bodies(unit, [*systems, *(one for order in lines.values() for one in order)])
    return SessionTree(
        _session(session),
        tuple(BranchTree(_stored_branch(one, bodies), tuple(bodies[at] for at in lines[one.id])) for one in branches),
    )


def _refuse_more(what: str, found: int, most: int) -> None:
    if found > most:
        raise PayloadTooLarge("tree", limit=most, actual=found, unit=what, hint="use branches.history, page by page")


def _bodies(unit: Unit, ids: list[str]) -> dict[str, NewMessage]:
    wanted = [{"id": one} for one in dict.fromkeys(ids)]
    parts = [as_list(wanted[at : at + words.BATCH]) for at in range(0, len(wanted), words.BATCH)]
    return {one.id: _message(one) for some in parts for one in unit.rows(storing.MANY, {"ids": some})}


def _message(stored: Message) -> NewMessage:
    inside = (stored.node_metadata or {}).get("lion_class")
    told = None if stored.lion_class in (inside, words.UNKNOWN_CLASS) else stored.lion_class
    names = [one.name for one in fields(NewMessage) if one.name not in ("created_at", "lion_class")]
    given: dict[str, Any] = {name: getattr(stored, name) for name in names}
    return NewMessage(**given, created_at=_moment(stored), lion_class=told)


def _stored_branch(stored: Branch, bodies: dict[str, NewMessage]) -> NewBranch:
    return NewBranch(
        id=stored.id,
        name=stored.name,
        user=stored.user,
        created_at=_moment(stored),
        node_metadata=stored.node_metadata,
        system=None if stored.system_msg_id is None else bodies[stored.system_msg_id],
        extra=stored.extra,
    )


def _session(stored: ConversationSession) -> NewSession:
    times = {one.name: getattr(stored, one.name) for one in fields(SessionTimes)}
    provenance: dict[str, Any] = {one.name: getattr(stored, one.name) for one in fields(Provenance)}
    return NewSession(
        stored.id,
        name=stored.name,
        user=stored.user,
        provenance=Provenance(**provenance),
        times=SessionTimes(**{**times, "created_at": _moment(stored)}),
        node_metadata=stored.node_metadata,
        extra=stored.extra,
        status=cast("Any", stored.status),
        project=stored.project,
        agent_session_id=stored.agent_session_id,
        workflow_run_id=stored.workflow_run_id,
        artifact_contract=stored.artifact_contract,
        artifact_verification=stored.artifact_verification,
    )


def _moment(stored: Message | Branch | ConversationSession) -> Any:
    return stored.created_at if stored.created_at_unix is None else stored.created_at_unix


@dataclass(frozen=True)
class BranchPlan:
    """A branch to save: its columns, fork origin, system message's id, ordered message ids, and new messages by id."""

    row: BranchDraft
    origin: tuple[str, int] | None
    system: str | None
    order: list[str]
    bodies: dict[str, MessageDraft]


@dataclass(frozen=True)
class Plan:
    """A session to save, and its branches, with parents before their forks."""

    session: SessionDraft
    branches: list[BranchPlan] = field(default_factory=list)

    def parts(self, most: int) -> Iterator[list[BranchPlan]]:
        """Yield the branches to save in each transaction: all, or one by one for more than ``most`` messages."""
        if sum(len(branch.order) for branch in self.branches) <= most:
            yield self.branches
        else:
            yield from ([branch] for branch in self.branches)


def plan_of(tree: Any, now: datetime) -> Plan:
    """Check a session tree and return the plan to save it. Raises `InvalidValue`, which names the wrong field."""
    given = valid.argument_group("tree", tree, SessionTree)
    session = session_checks.row(given.session, now)
    if given.session.id is None:
        raise InvalidValue("tree.session.id", "must be given")
    branches = checks.batch("tree.branches", given.branches, words.TREE_BRANCHES)
    drafted: dict[str, tuple[NewMessage, MessageDraft]] = {}
    plans: dict[str, BranchPlan] = {}
    for i, branch in enumerate(branches):
        one = _branch(f"tree.branches[{i}]", branch, session["id"], drafted, now)
        if plans.setdefault(one.row["id"], one) is not one:
            raise InvalidValue(f"tree.branches[{i}].branch.id", "must not stand twice in one tree")
    total = sum(len(one.order) for one in plans.values())
    if total > words.TREE:
        raise InvalidValue("tree", f"{total} messages, more than the limit of {words.TREE}", limit=words.TREE)
    return Plan(session, _parents_first(plans))


def _branch(
    where: str, branch: Any, session_id: str, drafted: dict[str, tuple[NewMessage, MessageDraft]], now: datetime
) -> BranchPlan:
    given = valid.argument_group(where, branch, BranchTree)
    row, _ = statements.row_of(session_id, given.branch, now, f"{where}.branch")
    if given.branch.id is None:
        raise InvalidValue(f"{where}.branch.id", "must be given")
    messages = checks.batch(f"{where}.messages", given.messages, words.TREE)
    said = [_draft(f"{where}.messages[{i}]", one, drafted, now) for i, one in enumerate(messages)]
    bodies = {one["id"]: one for one in said}
    system = given.branch.system
    if isinstance(system, NewMessage):
        first = _draft(f"{where}.branch.system", system, drafted, now)
        bodies[first["id"]] = first
    origin = branching.origin_in(f"{where}.branch.node_metadata", given.branch.node_metadata)
    return BranchPlan(row, origin, row["system_msg_id"], [one["id"] for one in said], bodies)


def _draft(where: str, new: Any, drafted: dict[str, tuple[NewMessage, MessageDraft]], now: datetime) -> MessageDraft:
    """Check a message of a tree and return its columns. The same message may occur several times.

    Raises `InvalidValue` for a different message of an id that occurred before.
    """
    seen = drafted.get(new.id) if isinstance(new, NewMessage) and isinstance(new.id, str) else None
    if seen is not None and seen[0] is new:
        return seen[1]
    row = storing.draft(where, new, now)
    if seen is not None and seen[1] != row:
        raise InvalidValue(where, f"another message of the id {row['id']!r:.80} stands in the tree")
    return drafted.setdefault(row["id"], (new, row))[1]


def _parents_first(plans: dict[str, BranchPlan]) -> list[BranchPlan]:
    found: dict[str, BranchPlan] = {}
    for one in plans.values():
        line: list[BranchPlan] = []
        at: BranchPlan | None = one
        while at is not None and at.row["id"] not in found:
            if len(line) > len(plans):
                raise InvalidValue("tree.branches", "must not be forks of one another in a circle")
            line.append(at)
            at = plans.get(at.origin[0]) if at.origin else None
        found.update((plan.row["id"], plan) for plan in reversed(line))
    return list(found.values())
