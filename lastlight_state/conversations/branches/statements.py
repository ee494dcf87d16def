"""The statements of branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewBranch
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.records import Appended, Branch, BranchMessage, BranchSummary
from lastlight_state.conversations.shared import branching, orders, sessions, storing
from lastlight_state.conversations.shared.branching import BranchDraft, ForkDraft
from lastlight_state.conversations.shared.feeds import EntryParameters, entry_parameters
from lastlight_state.conversations.shared.sessions import FORK_KEYS
from lastlight_state.conversations.shared.storing import COLUMNS as MESSAGE_COLUMNS, KnownClasses
from lastlight_state.conversations.tables import BRANCHES, LINKS, MESSAGES, SESSIONS
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Row, Statement, bind, statement_of
from lastlight_state.db.rows.writes import cache_statements
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.ids import new_id

_b, _l, _m = BRANCHES.c, LINKS.c, MESSAGES.c
_THIS = _b.id == bind("branch_id", _b.id)

#: The facts that an append reads of a branch before it takes any lock. They never change.


class BranchHead(NamedTuple):
    """What an append has to know of a branch."""

    session_id: str
    progression_id: str
    parent_branch_id: str | None
    pool: str


HEAD = statement_of(
    sa.select(_b.session_id, _b.progression_id, _b.parent_branch_id, SESSIONS.c.progression_id.label("pool"))
    .select_from(BRANCHES.join(SESSIONS, SESSIONS.c.id == _b.session_id))
    .where(_THIS),
    BranchHead,
)
#: What may change of a branch under the lock of its session: its system message, and its metadata.
STATE: Statement[tuple[str | None, Any]] = statement_of(
    sa.select(_b.system_msg_id, _b.node_metadata).where(_THIS), tuple
)
SYSTEM = statement_of(
    sa.update(BRANCHES).where(_THIS).values(system_msg_id=bind("message_id", _b.system_msg_id)).returning(_b.id)
)
LENGTH = statement_of(sa.select(branching.SUMMARY[-1]).where(_THIS))
FIRST = statement_of(
    sa.select(_l.message_id, _l.ord)
    .where(_l.progression_id == bind("progression_id", _l.progression_id))
    .where(_l.ord == bind("ord", _l.ord))
)
RELINK = statement_of(
    sa.update(LINKS)
    .where(_l.progression_id == bind("progression_id", _l.progression_id), _l.ord == bind("ord", _l.ord))
    .values(message_id=bind("message_id", _l.message_id))
)

#: The messages at the given positions of a history, with the columns of `branching.ORDER`.
BODIES = statement_of(
    sa.select(_l.ord, branching.BRANCH_ID, *MESSAGE_COLUMNS)
    .select_from(branching.PLACES.join(MESSAGES, _m.id == _l.message_id))
    .order_by(_l.ord),
    BranchMessage,
)


def _contents(*bound: sa.Column[Any]) -> Statement[tuple[Any, ...]]:
    """Return what reads what messages of an order say, in a range of its positions. The content is the last column."""
    return statement_of(
        sa.select(*bound, _m.content)
        .select_from(LINKS.join(MESSAGES, _m.id == _l.message_id))
        .where(_l.progression_id == bind("progression_id", _l.progression_id))
        .where(_l.ord >= bind("start", _l.ord), _l.ord < bind("until", _l.ord))
        .order_by(_l.ord),
        tuple,
    )


#: Statements for message contents, by whether values are sealed. Sealed contents need the columns that bind the seal.
CONTENTS = {False: _contents(), True: _contents(_m.id, _m.role)}

LIST = Listing(
    "branches",
    branching.SUMMARY,
    row=BranchSummary,
    order=(_b.created_at, _b.id),
    filters={"session_id": _b.session_id == bind("session_id", _b.session_id)},
    descending=False,
)


@cache_statements
def update(names: frozenset[str]) -> Statement:
    """Return the statement that sets the named columns of a branch."""
    values: Row = {name: bind(name, _b[name]) for name in sorted(names)}
    return statement_of(sa.update(BRANCHES).where(_THIS).values(values).returning(_b.id))


# Appending to a branch: one transaction, whose number of statements depends neither on the batch nor on the history.
#
# Every transaction takes locks in one order: the session, its orders by id, then messages. The check for messages that
# are there already follows the locks, so it is still true when the links are stored.


def head(unit: Unit, branch_id: str) -> BranchHead:
    """Return the ids of a branch's session, message order, parent and pool. Raises `NotFound`."""
    found = unit.row(HEAD, {"branch_id": branch_id})
    if found is None:
        raise valid.not_found(words.BRANCH, branch_id)
    return found


def locked_order(unit: Unit, branch_id: str, locks: sessions.Locks) -> orders.OrderHead:
    """Lock a branch's session, then the branch's own message order, and return the order. Raises `NotFound`."""
    branch = head(unit, branch_id)
    locks.first(unit, branch.session_id)
    sessions.lock_session(unit, branch.session_id)
    return orders.lock_orders(unit, [branch.progression_id])[branch.progression_id]


def append(
    unit: Unit,
    listeners: Listeners,
    known: KnownClasses,
    branch_id: str,
    given: Sequence[MessageDraft | str],
    *,
    skips: bool,
    now: datetime,
    locks: sessions.Locks,
) -> Appended:
    """Store new messages, revise changed messages, and append them to the branch.

    Messages that the session's pool lacks are appended to the pool. ``skips`` leaves out messages that the branch's
    history already holds.
    """
    branch = head(unit, branch_id)
    own, pool = branch.progression_id, branch.pool
    locks.first(unit, branch.session_id)
    sessions.lock_session(unit, branch.session_id)
    locked = orders.lock_orders(unit, [own, pool])
    there, _ = sessions.put_all(unit, listeners, known, given, now, locks=locks, own=branch.session_id)
    ids = [storing.id_of(one) for one in given]
    segments = _segments(unit, branch_id, branch, locked)
    held = orders.held_messages(unit, {pool: locked[pool].next_ord, **segments}, sorted(there))
    history = set().union(*(held.get(one, set()) for one in segments))
    new = orders.unheld(ids, history) if skips else ids
    added = {own: new}
    if pool != own:
        added[pool] = orders.unheld(new, held.get(pool, set()))
    shared = orders.extend(unit, locked, added, branch.session_id)
    if new:
        first = locked[own].next_ord
        told = entry_parameters(
            "messages.appended", branch_id=branch_id, progression_id=own, first=first, count=len(new)
        )
        sessions.record_append(unit, listeners, branch.session_id, now, told)

        def elsewhere(order: str) -> EntryParameters:
            first, count = locked[order].next_ord, len(added[order])
            return entry_parameters("messages.appended", progression_id=order, first=first, count=count)

        sessions.record_for_others(unit, listeners, shared, branch.session_id, now, elsewhere, locks=locks)
    return orders.append_result(locked[own], new, ids)


def _segments(unit: Unit, branch_id: str, branch: BranchHead, locked: Mapping[str, orders.OrderHead]) -> dict[str, int]:
    """Return the orders that a branch's history is made of, and below which position of each."""
    if branch.parent_branch_id is None:
        return {branch.progression_id: locked[branch.progression_id].next_ord}
    return {segment.progression_id: segment.until for segment in branching.line_of(unit, branch_id)}


# Creating a branch and replacing its system message, for calls on branches and for saving session trees.

_LIMITS = limits_of(BRANCHES)


def row_of(
    session_id: str, branch: Any, now: datetime, where: str = "branch"
) -> tuple[BranchDraft, MessageDraft | str | None]:
    """Check a new branch. Returns its columns, with metadata not yet encoded, and its system message or None."""
    given = valid.argument_group(where, branch, NewBranch)
    created, exact = checks.creation_time(f"{where}.created_at", given.created_at, now)
    checks.encode_object(f"{where}.node_metadata", given.node_metadata, _LIMITS.node_metadata)
    system = None if given.system is None else storing.drafts(f"{where}.system", [given.system], now)[0]
    known, told = branching.hints(given.node_metadata), checks.fields(where, given, branching.HINT_CHECKS)
    row: BranchDraft = {
        "id": new_id() if given.id is None else valid.identifier(f"{where}.id", given.id, _LIMITS.id),
        "created_at": created,
        "created_at_unix": exact,
        "user": checks.name(f"{where}.user", given.user, _LIMITS.user),
        "name": checks.name(f"{where}.name", given.name, _LIMITS.name),
        "session_id": valid.identifier("session_id", session_id, _LIMITS.session_id),
        "progression_id": checks.name(f"{where}.progression_id", given.progression_id, _LIMITS.progression_id),
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
        "extra": checks.encode_object(f"{where}.extra", given.extra, _LIMITS.extra),
    }
    return row, system


def insert_branch(
    unit: Unit,
    listeners: Listeners,
    known: KnownClasses,
    row: BranchDraft,
    system: MessageDraft | str | None,
    now: datetime,
    *,
    locks: sessions.Locks,
) -> Branch:
    """Insert a branch, and add its system message to the session's pool.

    If its metadata name a parent, insert a fork.
    """
    session_id, own = row["session_id"], row["progression_id"]
    origin = branching.origin_in("branch.node_metadata", row["node_metadata"])
    if origin is not None and own is not None:
        raise InvalidValue("branch.progression_id", "must not be given for a fork")
    locks.first(unit, session_id)
    pool = sessions.lock_session(unit, session_id)
    given = [] if own is None else [own]
    if system is not None:
        inherited = [] if origin is None else [branching.get(unit, origin[0]).progression_id]
        orders.lock_orders(unit, [pool, *inherited, *given])
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
        orders.lock_orders(unit, given)
    complete: BranchDraft = {**row, "progression_id": own, "node_metadata": metadata(row["node_metadata"])}
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
    """Set a branch's system message. If the branch's order begins with the old one, replace it there too."""
    branch = head(unit, branch_id)
    locks.first(unit, branch.session_id)
    sessions.lock_session(unit, branch.session_id)
    own = orders.lock_orders(unit, sorted({branch.progression_id, branch.pool}))[branch.progression_id]
    [(former, _)] = unit.rows(STATE, {"branch_id": branch_id})
    new = storing.id_of(given)
    sessions.put_all(unit, listeners, known, [given], now, locks=locks, own=branch.session_id)
    at = {"progression_id": own.id, "ord": own.start_ord}
    first: str | None = unit.value(FIRST, at)
    if first is not None and first == former != new:
        inherited = unit.value(orders.INHERITED, {"progression_id": own.id}) or 0
        if inherited > own.start_ord:
            problem = "a fork has inherited the place of its system message"
            raise Conflict(f"branch {branch_id!r}: {problem}", code=words.FORK_PREFIX, ord=own.start_ord)
        unit.change(RELINK, {**at, "message_id": new})
        unit.change(orders.CHANGED, at)
        replaced = entry_parameters("progression.replaced", progression_id=own.id)
        sessions.record_for_others(unit, listeners, [own.id], branch.session_id, now, lambda _: replaced, locks=locks)
    sessions.pool_messages(unit, listeners, branch.session_id, branch.pool, [new], now, locks=locks)
    unit.value(SYSTEM, {"branch_id": branch_id, "message_id": new})
    told = entry_parameters("branch.updated", branch_id=branch_id, message_id=new)
    sessions.record_change(unit, listeners, branch.session_id, now, told)
    return branching.get(unit, branch_id)


def metadata(value: Mapping[str, Any] | None) -> str | None:
    """Return a branch's metadata as JSON text, or None."""
    return checks.encode_object("node_metadata", value, _LIMITS.node_metadata)


def keep_fork_keys(stored: Mapping[str, Any] | None, given: Mapping[str, Any] | None) -> str | None:
    """Return new metadata as JSON text, with the fork keys taken from the stored metadata."""
    fork = {key: stored[key] for key in FORK_KEYS if stored and key in stored}
    return metadata({**(given or {}), **fork} if fork else given)
