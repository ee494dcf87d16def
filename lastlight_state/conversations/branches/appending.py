"""Appending to a branch: one unit, whose statements do not grow with the batch or with the history.

Locks are taken in one order by every unit: the session, its orders by their ids, then messages. The check for what is
there already is made after them, so it is still true when the links are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from lastlight_state.conversations import words
from lastlight_state.conversations.branches import statements as sql
from lastlight_state.conversations.kernel import lineage, orders, sessions, storing
from lastlight_state.conversations.kernel.classes import KnownClasses
from lastlight_state.conversations.kernel.feeds import Told, news
from lastlight_state.conversations.records import Appended
from lastlight_state.conversations.shown import MessageDraft
from lastlight_state.db import valid
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit


def head(unit: Unit, branch_id: str) -> sql.BranchHead:
    """Return the session, the order, the parent and the pool of a branch. Raises `NotFound`."""
    found = unit.row(sql.HEAD, {"branch_id": branch_id})
    if found is None:
        raise valid.not_found(words.BRANCH, branch_id)
    return found


def locked_order(unit: Unit, branch_id: str, locks: sessions.Locks) -> orders.OrderHead:
    """Lock the own order of a branch, after the session of the branch. Raises `NotFound`."""
    branch = head(unit, branch_id)
    locks.first(unit, branch["session_id"])
    sessions.locked(unit, branch["session_id"])
    return orders.locked(unit, [branch["progression_id"]])[branch["progression_id"]]


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
    """Store the messages that are new, revise those that changed, and add to the branch and to the session's pool."""
    branch = head(unit, branch_id)
    own, pool = branch["progression_id"], branch["pool"]
    locks.first(unit, branch["session_id"])
    sessions.locked(unit, branch["session_id"])
    locked = orders.locked(unit, [own, pool])
    there, _ = sessions.put_all(unit, listeners, known, given, now, locks=locks, own=branch["session_id"])
    ids = [storing.id_of(one) for one in given]
    segments = _segments(unit, branch_id, branch, locked)
    held = orders.held(unit, {pool: locked[pool]["next_ord"], **segments}, sorted(there))
    history = set().union(*(held.get(one, set()) for one in segments))
    new = orders.unheld(ids, history) if skips else ids
    added = {own: new}
    if pool != own:
        added[pool] = orders.unheld(new, held.get(pool, set()))
    shared = orders.extend(unit, locked, added, branch["session_id"])
    if new:
        first = locked[own]["next_ord"]
        told = news("messages.appended", branch_id=branch_id, progression_id=own, first=first, count=len(new))
        sessions.move_on(unit, listeners, branch["session_id"], now, told)

        def elsewhere(order: str) -> Told:
            first, count = locked[order]["next_ord"], len(added[order])
            return news("messages.appended", progression_id=order, first=first, count=count)

        sessions.tell_others(unit, listeners, shared, branch["session_id"], now, elsewhere, locks=locks)
    return orders.appended(locked[own], new, ids)


def _segments(
    unit: Unit, branch_id: str, branch: sql.BranchHead, locked: Mapping[str, orders.OrderHead]
) -> dict[str, int]:
    """Return the orders that a branch's history is made of, and below which position of each."""
    if branch["parent_branch_id"] is None:
        return {branch["progression_id"]: locked[branch["progression_id"]]["next_ord"]}
    return {segment.progression_id: segment.until for segment in lineage.line_of(unit, branch_id)}
