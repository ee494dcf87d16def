"""Loading a tree: one snapshot of a session, its branches and their messages."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import sqlalchemy as sa

from lastlight_state.conversations import words
from lastlight_state.conversations.arguments import (
    BranchTree,
    NewBranch,
    NewMessage,
    NewSession,
    Provenance,
    SessionTimes,
    SessionTree,
)
from lastlight_state.conversations.kernel import branching, lineage, storing
from lastlight_state.conversations.records import Branch, ConversationSession, Message
from lastlight_state.conversations.runtime import branch_order
from lastlight_state.conversations.sessions import statements as sessions
from lastlight_state.conversations.shown import WholeBranchRow
from lastlight_state.conversations.tables import BRANCHES
from lastlight_state.db import valid
from lastlight_state.db.listed import as_list
from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import PayloadTooLarge

_b = BRANCHES.c
_BRANCHES = prepared(
    sa.select(*branching.COLUMNS)
    .where(_b.session_id == bind("session_id", _b.session_id))
    .order_by(_b.created_at, _b.id)
    .limit(number(words.TREE_BRANCHES + 1)),
    WholeBranchRow,
)


def tree(unit: Unit, session_id: str, most: int) -> SessionTree:
    """The whole session. Raises `NotFound`, and `PayloadTooLarge` for more messages."""
    session = unit.find(ConversationSession.of, sessions.GET, {"session_id": session_id})
    if session is None:
        raise valid.not_found(words.SESSION, session_id)
    branches = unit.all(Branch.of, _BRANCHES, {"session_id": session_id})
    _refuse_more("branches", len(branches), words.TREE_BRANCHES)
    _refuse_more("messages", sum(branch.length for branch in branches), most)
    told = {one: at for at, one in enumerate(branch_order(session.extra)) if isinstance(one, str)}
    branches.sort(key=lambda branch: told.get(branch.id, len(told)))
    lines = {branch.id: lineage.whole_order(unit, branch.id) for branch in branches}
    systems = [branch.system_msg_id for branch in branches if branch.system_msg_id is not None]
    bodies = _bodies(unit, [*systems, *(one for order in lines.values() for one in order)])
    return SessionTree(
        _session(session),
        tuple(BranchTree(_branch(one, bodies), tuple(bodies[at] for at in lines[one.id])) for one in branches),
    )


def _refuse_more(what: str, found: int, most: int) -> None:
    if found > most:
        raise PayloadTooLarge("tree", limit=most, actual=found, unit=what, hint="use branches.history, page by page")


def _bodies(unit: Unit, ids: list[str]) -> dict[str, NewMessage]:
    wanted = [{"id": one} for one in dict.fromkeys(ids)]
    parts = [as_list(wanted[at : at + words.BATCH]) for at in range(0, len(wanted), words.BATCH)]
    rows = [row for some in parts for row in unit.rows(storing.MANY, {"ids": some})]
    return {row["id"]: _message(Message.of(row)) for row in rows}


def _message(stored: Message) -> NewMessage:
    inside = (stored.node_metadata or {}).get("lion_class")
    told = None if stored.lion_class in (inside, words.UNKNOWN_CLASS) else stored.lion_class
    names = [one.name for one in fields(NewMessage) if one.name not in ("created_at", "lion_class")]
    given: dict[str, Any] = {name: getattr(stored, name) for name in names}
    return NewMessage(**given, created_at=_moment(stored), lion_class=told)


def _branch(stored: Branch, bodies: dict[str, NewMessage]) -> NewBranch:
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
