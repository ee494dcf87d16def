"""Deletion of a session or a branch. Messages and orders shared with other sessions are kept, as in a prune.

All checks that may refuse the deletion come before the first DELETE. Locks are taken in the same order as in all other
transactions.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import sqlalchemy as sa

from lastlight_state.conversations import words
from lastlight_state.conversations.shared import orders, sessions
from lastlight_state.conversations.shared.feeds import entry_parameters
from lastlight_state.conversations.shared.threads import OrdersAndMessages, Threads
from lastlight_state.conversations.tables import BRANCHES, CHANGES, LINKS, PROGRESSIONS, SESSIONS
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Statement, bind, number, statement_of
from lastlight_state.db.units.permits import bury, permit_deletion
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict

# Removing messages from the end of an order. The messages before them are not read, however long the order is.

_p, _l = PROGRESSIONS.c, LINKS.c
_ITS = _l.progression_id == bind("progression_id", _l.progression_id)

#: Moves links to negative positions, where the guard against deletion lets them go.
_TAKE_OUT = statement_of(
    sa.update(LINKS).where(_ITS, _l.ord >= bind("from_ord", _l.ord)).values(ord=number(-1) - _l.ord)
)
_DROP = statement_of(sa.delete(LINKS).where(_ITS, _l.ord < number(0)))
_SHORTEN = statement_of(
    sa.update(PROGRESSIONS)
    .where(_p.id == bind("progression_id", _p.id))
    .values(next_ord=bind("from_ord", _p.next_ord), version=_p.version + number(1))
)


def first_of_last(order: orders.OrderHead, count: int) -> int:
    """Return the position at which the last ``count`` messages of a message order begin, at least 0.

    In a fork's order the position may lie in the inherited part; `refuse_inherited` then refuses it.
    """
    first = order.next_ord - count
    return first if order.start_ord else max(first, 0)


def refuse_inherited(unit: Unit, order: orders.OrderHead, from_ord: int) -> None:
    """Raise `Conflict` ``fork_prefix`` if a position at or after ``from_ord`` is inherited.

    Such a position belongs to the parent of the order's branch, or a fork has inherited it from this order.
    """
    start = order.start_ord
    if from_ord < start:
        problem = f"its positions below {start} are inherited: position {from_ord} must stay"
        raise Conflict(f"progression {order.id!r}: {problem}", code=words.FORK_PREFIX, ord=from_ord)
    inherited = unit.value(orders.INHERITED, {"progression_id": order.id}) or 0
    if from_ord < min(inherited, order.next_ord):
        problem = f"forks have inherited its positions below {inherited}: position {from_ord} must stay"
        raise Conflict(f"progression {order.id!r}: {problem}", code=words.FORK_PREFIX, ord=from_ord)


def drop(unit: Unit, progression_id: str, from_ord: int) -> None:
    """Delete the links of a message order at and after position ``from_ord``."""
    unit.change(_TAKE_OUT, {"progression_id": progression_id, "from_ord": from_ord})
    unit.change(_DROP, {"progression_id": progression_id})


def cut(
    unit: Unit,
    listeners: Listeners,
    order: orders.OrderHead,
    from_ord: int,
    now: datetime,
    *,
    locks: sessions.Locks,
    branch_id: str | None = None,
) -> int:
    """Remove the messages at and after position ``from_ord`` from a locked message order. Return how many were removed.

    Each session that has the order is locked, too. It gets a feed entry and new first and last messages. Raises
    `Conflict` ``fork_prefix``, and `RestartUnit` if another transaction holds a lock of such a session.
    """
    count = order.next_ord - from_ord
    if count <= 0:
        return 0
    refuse_inherited(unit, order, from_ord)
    drop(unit, order.id, from_ord)
    unit.change(_SHORTEN, {"progression_id": order.id, "from_ord": from_ord})
    told = entry_parameters(
        "progression.truncated", branch_id=branch_id, progression_id=order.id, first=from_ord, count=count
    )
    sessions.record_for_owners(unit, listeners, order.id, now, told, locks=locks)
    return count


#: What may keep a session or a branch: its status, and why the session is held.
Blockers: TypeAlias = tuple[str | None, str | None]

_THREADS = Threads()
_s, _b = SESSIONS.c, BRANCHES.c
_IT = _s.id == bind("session_id", _s.id)
_BRANCH = _b.id == bind("branch_id", _b.id)

_LOCK: Statement[Blockers] = statement_of(sa.select(_s.status, _s.hold_reason).where(_IT).with_for_update(), tuple)
_PARTS: Statement[tuple[str, str, str | None]] = statement_of(
    sa.select(_b.session_id, _b.progression_id, _b.system_msg_id).where(_BRANCH), tuple
)
_STANDING: Statement[Blockers] = statement_of(
    sa.select(_b.status, _s.hold_reason).select_from(BRANCHES.join(SESSIONS, _s.id == _b.session_id)).where(_BRANCH),
    tuple,
)
_FORK = statement_of(sa.select(_b.id).where(_b.parent_branch_id == bind("branch_id", _b.id)).limit(number(1)))
_REMOVALS = [
    statement_of(sa.delete(BRANCHES).where(_b.session_id == bind("session_id", _s.id))),
    statement_of(sa.delete(CHANGES).where(CHANGES.c.session_id == bind("session_id", _s.id))),
    statement_of(sa.delete(SESSIONS).where(_IT)),
]
_REMOVE_BRANCH = statement_of(sa.delete(BRANCHES).where(_BRANCH))


def session(unit: Unit, session_id: str, now: datetime) -> bool:
    """Delete a session and those of its data that no other session uses. Returns False if the session does not exist.

    Raises `Conflict` if the session has not ended, is held, or another session has forks of its branches.
    """
    stored = unit.row(_LOCK, {"session_id": session_id})
    if stored is None:
        return False
    _refuse_kept(words.SESSION, session_id, stored)
    _THREADS.lock(unit, [session_id])
    others = _THREADS.waits(unit, [session_id]).get(session_id)
    if others:
        _refuse_forked(words.SESSION, session_id, f"a branch of session {min(others)!r}")
    held = _THREADS.referenced_keys(unit, [session_id])
    with permit_deletion(unit) as permit:
        bury(unit, words.SESSION, session_id, permit, now)
        for removal in _REMOVALS:
            unit.change(removal, {"session_id": session_id})
        _THREADS.release(unit, held)
    return True


def branch(unit: Unit, listeners: Listeners, branch_id: str, now: datetime) -> bool:
    """Delete a branch, and its message order unless another owner has it. Returns False if the branch does not exist.

    Raises `Conflict` if the branch has not ended, its session is held, or another branch is a fork of this one.
    """
    found = unit.row(_PARTS, {"branch_id": branch_id})
    if found is None:
        return False
    session_id, progression_id, system_msg_id = found
    sessions.lock_session(unit, session_id)
    stored = unit.row(_STANDING, {"branch_id": branch_id})
    if stored is None:  # another transaction deleted it first
        return False
    _refuse_kept(words.BRANCH, branch_id, stored)
    orders.lock_orders(unit, [progression_id])  # whoever forks the branch waits for it, or is seen
    fork: str | None = unit.value(_FORK, {"branch_id": branch_id})
    if fork is not None:
        _refuse_forked(words.BRANCH, branch_id, f"branch {fork!r}")
    pointed = set() if system_msg_id is None else {system_msg_id}
    with permit_deletion(unit):
        unit.change(_REMOVE_BRANCH, {"branch_id": branch_id})
        _THREADS.release(unit, OrdersAndMessages({progression_id}, pointed))
    told = entry_parameters("branch.deleted", branch_id=branch_id)
    sessions.record_change(unit, listeners, session_id, now, told)
    return True


def _refuse_kept(kind: str, key: str, stored: Blockers) -> None:
    status, hold_reason = stored
    if status in ("running", "pending"):
        raise Conflict(f"{kind} {key!r} is {status}: end it first", code=words.NOT_ENDED)
    if hold_reason is not None:
        raise Conflict(f"{kind} {key!r} is held", code=words.HELD)


def _refuse_forked(kind: str, key: str, by: str) -> None:
    raise Conflict(f"{kind} {key!r} has inherited messages in {by}: delete that first", code=words.FORKED)
