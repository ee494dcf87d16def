"""Making a branch, and giving it another system message: steps of a branch's own calls, and of a tree's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewBranch
from lastlight_state.conversations.branches import appending, statements as sql
from lastlight_state.conversations.kernel import branching, orders, sessions, storing
from lastlight_state.conversations.kernel.branching import BranchDraft, ForkDraft
from lastlight_state.conversations.kernel.classes import KnownClasses
from lastlight_state.conversations.kernel.feeds import news
from lastlight_state.conversations.kernel.metadata import FORK_KEYS
from lastlight_state.conversations.records import Branch
from lastlight_state.conversations.rows import BranchRow
from lastlight_state.conversations.shown import MessageDraft
from lastlight_state.conversations.tables import BRANCHES
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.ids import new_id

_MOST = limits_of(BRANCHES)


def row_of(
    session_id: str, branch: Any, now: datetime, where: str = "branch"
) -> tuple[BranchDraft, MessageDraft | str | None]:
    """Return the parameters of a branch, its metadata not encoded yet, and its system message."""
    given = valid.group(where, branch, NewBranch)
    created, exact = checks.created(f"{where}.created_at", given.created_at, now)
    checks.encoded(f"{where}.node_metadata", given.node_metadata, _MOST.node_metadata)
    system = None if given.system is None else storing.drafts(f"{where}.system", [given.system], now)[0]
    known, told = branching.hints(given.node_metadata), checks.fields(where, given, branching.HINT_CHECKS)
    row: BranchDraft = {
        "id": new_id() if given.id is None else valid.identifier(f"{where}.id", given.id, _MOST.id),
        "created_at": created,
        "created_at_unix": exact,
        "user": checks.name(f"{where}.user", given.user, _MOST.user),
        "name": checks.name(f"{where}.name", given.name, _MOST.name),
        "session_id": valid.identifier("session_id", session_id, _MOST.session_id),
        "progression_id": checks.name(f"{where}.progression_id", given.progression_id, _MOST.progression_id),
        "system_msg_id": None if system is None else storing.id_of(system),
        "parent_branch_id": None,
        "forked_at_ord": None,
        "fork_depth": 0,
        "status": None,
        "started_at": None,
        "ended_at": None,
        "provider": known["provider"] if told["provider"] is None else told["provider"],
        "model": known["model"] if told["model"] is None else told["model"],
        "agent_name": known["agent_name"] if told["agent_name"] is None else told["agent_name"],
        "node_metadata": given.node_metadata,
        "extra": checks.encoded(f"{where}.extra", given.extra, _MOST.extra),
    }
    return row, system


def created(
    unit: Unit,
    listeners: Listeners,
    known: KnownClasses,
    row: BranchDraft,
    system: MessageDraft | str | None,
    now: datetime,
    *,
    locks: sessions.Locks,
) -> Branch:
    """Insert a branch, with its system message in the pool. Metadata that name a parent make it a fork."""
    session_id, own = row["session_id"], row["progression_id"]
    origin = branching.origin_in("branch.node_metadata", row["node_metadata"])
    if origin is not None and own is not None:
        raise InvalidValue("branch.progression_id", "must not be given for a fork")
    locks.first(unit, session_id)
    pool = sessions.locked(unit, session_id)
    given = [] if own is None else [own]
    if system is not None:
        inherited = [] if origin is None else [branching.get(unit, origin[0]).progression_id]
        orders.locked(unit, [pool, *inherited, *given])
        sessions.put_all(unit, listeners, known, [system], now, locks=locks, own=session_id)
        sessions.pool_messages(unit, listeners, session_id, pool, [storing.id_of(system)], now, locks=locks)
    if origin is not None:
        values: ForkDraft = {**row, "parent_branch_id": origin[0]}
        where = "branch.node_metadata.forked_at_ord"
        return branching.fork(unit, listeners, values, at=origin[1], where=where, now=now)
    if own is None:
        own = new_id()
        orders.create(unit, orders.fresh(own, (row["created_at"], row["created_at_unix"])))
    else:
        orders.locked(unit, given)
    complete: BranchRow = {**row, "progression_id": own, "node_metadata": metadata(row["node_metadata"])}
    return branching.insert_branch(unit, listeners, complete, now)


def system_replaced(
    unit: Unit,
    listeners: Listeners,
    known: KnownClasses,
    branch_id: str,
    given: MessageDraft | str,
    now: datetime,
    *,
    locks: sessions.Locks,
) -> Branch:
    """Move the pointer of a branch, and put the message in the place of the former one where the order begins so."""
    branch = appending.head(unit, branch_id)
    locks.first(unit, branch["session_id"])
    sessions.locked(unit, branch["session_id"])
    own = orders.locked(unit, sorted({branch["progression_id"], branch["pool"]}))[branch["progression_id"]]
    [state] = unit.rows(sql.STATE, {"branch_id": branch_id})
    former = state["system_msg_id"]
    new = storing.id_of(given)
    sessions.put_all(unit, listeners, known, [given], now, locks=locks, own=branch["session_id"])
    at = {"progression_id": own["id"], "ord": own["start_ord"]}
    first = unit.row(sql.FIRST, at)
    if first is not None and first["message_id"] == former != new:
        inherited = unit.value(orders.INHERITED, {"progression_id": own["id"]}) or 0
        if inherited > own["start_ord"]:
            problem = "a fork has inherited the place of its system message"
            raise Conflict(f"branch {branch_id!r}: {problem}", code=words.FORK_PREFIX, ord=own["start_ord"])
        unit.change(sql.RELINK, {**at, "message_id": new})
        unit.change(orders.CHANGED, at)
        replaced = news("progression.replaced", progression_id=own["id"])
        sessions.tell_others(unit, listeners, [own["id"]], branch["session_id"], now, lambda _: replaced, locks=locks)
    sessions.pool_messages(unit, listeners, branch["session_id"], branch["pool"], [new], now, locks=locks)
    unit.value(sql.SYSTEM, {"branch_id": branch_id, "message_id": new})
    told = news("branch.updated", branch_id=branch_id, message_id=new)
    sessions.move(unit, listeners, branch["session_id"], now, told)
    return branching.get(unit, branch_id)


def metadata(value: Mapping[str, Any] | None) -> str | None:
    """Return the metadata of a branch, encoded."""
    return checks.encoded("node_metadata", value, _MOST.node_metadata)


def kept(stored: Mapping[str, Any] | None, given: Mapping[str, Any] | None) -> str | None:
    """Return new metadata, with the keys of a fork that the stored ones have."""
    fork = {key: stored[key] for key in FORK_KEYS if stored and key in stored}
    return metadata({**(given or {}), **fork} if fork else given)
