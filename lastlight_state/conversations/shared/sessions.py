"""Locks and updates the row of a session. A write locks the row first.

At its end it updates the row and adds a feed entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import words
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.records import SessionSummary
from lastlight_state.conversations.shared import orders, storing
from lastlight_state.conversations.shared.feeds import EntryParameters, entry_parameters, feed_chain, write_entry
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.conversations.tables import BRANCHES, LINKS, PROGRESSIONS, SESSIONS
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Statement, bind, columns_of, constant, number, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import AmongFew, hide_from_indexes
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue

# The columns of a session that lists show.

_c = SESSIONS.c

_MESSAGES = (
    sa.select(PROGRESSIONS.c.next_ord - PROGRESSIONS.c.start_ord)
    .where(PROGRESSIONS.c.id == _c.progression_id)
    .scalar_subquery()
    .label("message_count")
)
_BRANCHES = (
    sa.select(sa.func.count())
    .select_from(BRANCHES)
    .where(BRANCHES.c.session_id == _c.id)
    .scalar_subquery()
    .label("branch_count")
)
#: The columns of a `SessionSummary`.
SUMMARY = [*columns_of(SessionSummary, SESSIONS), _MESSAGES, _BRANCHES]


# Changing a row's metadata by a merge patch (RFC 7396). A patch must not change the keys that mirror a fork's columns.

#: The keys of a branch's metadata that repeat its columns.
FORK_KEYS = ("parent_branch_id", "forked_at_ord")


def apply_merge_patch(stored: Any, patch: Any) -> Any:
    """Apply a merge patch to a value: objects are merged, null removes a key, any other value replaces."""
    if not isinstance(patch, dict):
        return patch
    found = dict(stored) if isinstance(stored, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = apply_merge_patch(found.get(key), value)
    return found


def refuse_fork_keys(where: str, patch: dict[str, Any]) -> None:
    """Raise `InvalidValue` if a patch names one of `FORK_KEYS`."""
    for key in FORK_KEYS:
        if key in patch:
            raise InvalidValue(f"{where}.{key}", "must not be changed: it says where a branch comes from")


_THIS = _c.id == bind("session_id", _c.id)
_at = bind("at", _c.updated_at)

_LOCK = statement_of(sa.select(_c.progression_id).where(_THIS).with_for_update())
_wanted = elements_table("wanted")
#: Ordered by id: every transaction locks sessions in this order, which avoids deadlocks.
_LOCK_ALL = statement_of(
    sa.select(_c.id)
    .where(AmongFew(_c.id, sa.select(member_of(_wanted.c.value, "id"))))
    .order_by(_c.id)
    .with_for_update()
)
#: The id and status of a session that was locked without waiting.
LockedSession: TypeAlias = tuple[str, str | None]
#: Those of these sessions that nobody else has locked.
_LOCK_FREE: Statement[LockedSession] = statement_of(
    sa.select(_c.id, _c.status)
    .where(AmongFew(_c.id, sa.select(member_of(_wanted.c.value, "id"))))
    .order_by(_c.id)
    .with_for_update(skip_locked=True),
    tuple,
)
_order = bind("progression_id", _c.progression_id)
_OWNERS = statement_of(
    sa.union(
        sa.select(_c.id.label("id")).where(_c.progression_id == _order),
        sa.select(BRANCHES.c.session_id).where(BRANCHES.c.progression_id == _order),
    )
)
_holding = sa.select(LINKS.c.progression_id).where(LINKS.c.message_id == bind("message_id", LINKS.c.message_id))
_RUNNING_WITH = statement_of(
    sa.select(_c.id).where(
        AmongFew(_c.progression_id, _holding.distinct()), hide_from_indexes(_c.status == constant("running"))
    )
)
#: The columns that every change of a session sets, with their new values.
MOVED: dict[str, Any] = {
    "updated_at": later_of(_c.updated_at, _at),
    "version": _c.version + number(1),
    "change_seq": _c.change_seq + number(1),
}
_MOVE = feed_chain(sa.update(SESSIONS).where(_THIS).values(**MOVED).returning(_c.id, _c.change_seq))


def _end_of_pool(first_ord: sa.ColumnElement[int] | sa.UnaryExpression[int]) -> sa.ScalarSelect[str]:
    linked = sa.select(LINKS.c.message_id).where(LINKS.c.progression_id == _c.progression_id)
    return linked.order_by(first_ord).limit(number(1)).correlate(SESSIONS).scalar_subquery()


#: The first and last message of a session's pool, read from the links when the statement runs.
_POINTERS = {"first_msg_id": _end_of_pool(LINKS.c.ord), "last_msg_id": _end_of_pool(LINKS.c.ord.desc())}
_MOVE_ON = feed_chain(
    sa.update(SESSIONS)
    .where(_THIS)
    .values(last_message_at=later_of(sa.func.coalesce(_c.last_message_at, _at), _at), **_POINTERS, **MOVED)
    .returning(_c.id, _c.change_seq)
)
_POINT = statement_of(sa.update(SESSIONS).where(_c.progression_id == _order).values(**_POINTERS))


def lock_session(unit: Unit, session_id: str) -> str:
    """Lock a session until the transaction ends. Returns the id of its pool (its main order). Raises `NotFound`."""
    pool: str | None = unit.value(_LOCK, {"session_id": session_id})
    if pool is None:
        raise valid.not_found(words.SESSION, session_id)
    return pool


def lock_all(unit: Unit, session_ids: Collection[str]) -> None:
    """Lock these sessions, in the order of their ids, until the transaction ends."""
    if session_ids:
        unit.rows(_LOCK_ALL, _id_parameters(session_ids))


class Locks:
    """Remembers the sessions that a call must lock, over all attempts of the call, so that it cannot deadlock.

    Transactions wait for session locks in the order of ids, before they lock orders and messages. But if a message is
    revised, the other sessions that have it are known only after the message is locked. So these sessions are locked
    without waiting. If another transaction holds one of the locks, the attempt ends and releases its own locks, and the
    next attempt waits for that session first.
    """

    def __init__(self) -> None:
        self._before: set[str] = set()
        self._held: set[str] = set()

    def first(self, unit: Unit, *session_ids: str) -> None:
        """Begin an attempt. The caller then locks these sessions.

        If an earlier attempt could not lock further sessions, lock them and these sessions now, in the order of ids.
        """
        self._held = {*session_ids, *self._before}
        if self._before:
            lock_all(unit, self._held)

    def late(self, unit: Unit, session_ids: Collection[str]) -> list[LockedSession]:
        """Lock further sessions without waiting. Return the id and status of each that this call had not locked before.

        Raises `RestartUnit` if another transaction holds one of the locks.
        """
        lacking = set(session_ids) - self._held
        found = unit.rows(_LOCK_FREE, _id_parameters(lacking)) if lacking else []
        self._held |= lacking
        if len(found) < len(lacking):
            self._before = set(self._held)
            raise storing.RestartUnit
        return found


def owners_of(unit: Unit, progression_id: str) -> list[str]:
    """Return the sessions that have this order, as their pool or through a branch."""
    return unit.values(_OWNERS, {"progression_id": progression_id})


def owners_locked(unit: Unit, locks: Locks, progression_id: str) -> list[str]:
    """Lock the sessions that have this message order, before the order itself is locked. Returns their ids, sorted."""
    owners = sorted(owners_of(unit, progression_id))
    locks.first(unit, *owners)
    lock_all(unit, owners)
    return owners


def record_change(unit: Unit, listeners: Listeners, session_id: str, at: datetime, told: EntryParameters) -> None:
    """Update a session's version and times, and write the feed entry ``told``, which describes the change."""
    write_entry(unit, listeners, _MOVE, {"session_id": session_id, "at": at}, told)


def refresh_ends(unit: Unit, progression_id: str) -> None:
    """Update the first and last message of the sessions whose pool is this order.

    The caller must have locked the order.
    """
    unit.change(_POINT, {"progression_id": progression_id})


def record_append(unit: Unit, listeners: Listeners, session_id: str, at: datetime, told: EntryParameters) -> None:
    """Write the feed entry for an append, and update the session's times and its first and last message."""
    write_entry(unit, listeners, _MOVE_ON, {"session_id": session_id, "at": at}, told)


def owners_late(unit: Unit, locks: Locks, progression_id: str) -> list[str]:
    """Lock the sessions that have this message order, without waiting. Return their ids, sorted.

    The caller must have locked the order. A session or branch with this order can only be created under that lock, so
    no owner is added before the transaction ends. Raises `RestartUnit`.
    """
    owners = owners_of(unit, progression_id)
    locks.late(unit, owners)
    return sorted(owners)


def record_for_owners(
    unit: Unit, listeners: Listeners, progression_id: str, at: datetime, told: EntryParameters, *, locks: Locks
) -> None:
    """Update all sessions that have a changed order: set their first and last message, and write a feed entry for each.

    Raises `RestartUnit`.
    """
    owners = owners_late(unit, locks, progression_id)
    if owners:
        refresh_ends(unit, progression_id)
    for owner in owners:
        record_change(unit, listeners, owner, at, told)


def record_for_others(
    unit: Unit,
    listeners: Listeners,
    shared: Sequence[str],
    session_id: str,
    at: datetime,
    told: Callable[[str], EntryParameters],
    *,
    locks: Locks,
) -> None:
    """Update the other sessions that share changed orders: their first and last message, and a feed entry for each.

    ``shared`` are the ids of the orders; the session ``session_id`` gets no entry. Raises `RestartUnit`.
    """
    owners = {owner: one for one in shared for owner in owners_late(unit, locks, one) if owner != session_id}
    for one in shared:
        refresh_ends(unit, one)
    for owner, one in sorted(owners.items()):
        record_change(unit, listeners, owner, at, told(one))


def running_with(unit: Unit, message_ids: Collection[str]) -> dict[str, list[str]]:
    """Return the running sessions whose pools have any of these messages, and the ids of these messages."""
    found: dict[str, list[str]] = {}
    for message_id in message_ids:
        for session_id in unit.values(_RUNNING_WITH, {"message_id": message_id}):
            found.setdefault(session_id, []).append(message_id)
    return found


def put_all(
    unit: Unit,
    listeners: Listeners,
    known: KnownClasses,
    given: Sequence[MessageDraft | str],
    now: datetime,
    *,
    locks: Locks,
    own: str | None = None,
) -> tuple[set[str], list[str]]:
    """Store messages as `storing.put_all` does, and write a feed entry for each revised message.

    The entry goes to each running session that has the message. It also goes to the session ``own``, through which the
    messages are stored, whether it is running or not. Raises `RestartUnit`.
    """
    there, revised = storing.put_all(unit, known, given, now)
    record_revisions(unit, listeners, revised, now, locks=locks, own=own)
    return there, revised


def record_revisions(
    unit: Unit, listeners: Listeners, revised: Sequence[str], now: datetime, *, locks: Locks, own: str | None
) -> None:
    """Write a feed entry for each revised message to each running session that has it, and to the session ``own``.

    Raises `RestartUnit`.
    """
    having = running_with(unit, revised)
    ended = {session_id for session_id, status in locks.late(unit, having) if status != "running"}
    if own is not None and revised:
        having[own] = list(revised)
    for session_id in sorted(having.keys() - ended):
        for message_id in having[session_id]:
            record_change(unit, listeners, session_id, now, entry_parameters("message.revised", message_id=message_id))


def pool_messages(
    unit: Unit, listeners: Listeners, session_id: str, pool: str, ids: Sequence[str], at: datetime, *, locks: Locks
) -> list[str]:
    """Append stored messages to the pool of a locked session. Returns the ids that the pool did not hold before.

    Raises `RestartUnit`.
    """
    found = orders.lock_orders(unit, [pool])
    new = orders.unheld(ids, orders.held_messages(unit, {pool: found[pool].next_ord}, ids).get(pool, set()))
    if new:
        shared = orders.extend(unit, found, {pool: new}, session_id)
        refresh_ends(unit, pool)
        told = entry_parameters("messages.appended", progression_id=pool, first=found[pool].next_ord, count=len(new))
        record_for_others(unit, listeners, shared, session_id, at, lambda _: told, locks=locks)
    return new


def _id_parameters(session_ids: Collection[str]) -> dict[str, str]:
    return {"wanted": as_list([{"id": one} for one in session_ids])}
