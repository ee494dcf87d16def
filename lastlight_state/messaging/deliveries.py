"""Appending messages that a platform may deliver twice: a message that is stored already is found, not stored again.

Two messages of a session are the same delivery if their role and platform id are equal. The session's row is locked by
a statement of its own before duplicates are looked for: on Postgres a statement that waits for a lock keeps the
snapshot from before the wait, and would miss a message that the lock's holder stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from lastlight_state.db.unit import Unit
from lastlight_state.errors import NotFound
from lastlight_state.messaging import delivery_statements as sql
from lastlight_state.messaging.message_checks import Draft
from lastlight_state.messaging.records import Appended, MessagingMessage
from lastlight_state.messaging.rows import MessagingMessageRow
from lastlight_state.messaging.words import SESSION

#: Role and platform id.
Delivery = tuple[str, str]


def append(unit: Unit, session_id: str, drafts: Sequence[Draft], now: datetime) -> list[Appended]:
    """Append the drafts in their order; a draft with a platform id is stored only once. Raises `NotFound`."""
    if any(_delivery(draft) for draft in drafts):
        if unit.row(sql.LOCK, {"session_id": session_id}) is None:
            raise NotFound(SESSION, session_id)
        return append_locked(unit, session_id, drafts, now)
    if not _count(unit, session_id, len(drafts), now):  # all will be inserted: the count is the lock
        raise NotFound(SESSION, session_id)
    statement, values = sql.insert_unless_there(drafts)
    rows = unit.rows(statement, {**values, "session_id": session_id})
    return [appended(message, created=True) for message in _made(rows)]


def append_locked(unit: Unit, session_id: str, drafts: Sequence[Draft], now: datetime) -> list[Appended]:
    """Append to a session whose row this unit has locked: insert what is not stored yet, and count it."""
    made = _insert_and_count(unit, session_id, _once_each(drafts), now)
    new = {(message.role, message.platform_message_id): message for message in made if message.platform_message_id}
    redelivered = [key for key in map(_delivery, drafts) if key is not None and key not in new]
    known = {**_stored(unit, session_id, redelivered), **new}
    plain = iter([message for message in made if message.platform_message_id is None])
    outcomes = []
    for draft in drafts:
        key = _delivery(draft)
        if key is None:
            outcomes.append(appended(next(plain), created=True))
        else:
            outcomes.append(appended(known[key], created=new.pop(key, None) is not None))
    return outcomes


def appended(message: MessagingMessage, *, created: bool) -> Appended:
    """The result of appending one message."""
    return Appended.of({"message": message, "created": created})


def _insert_and_count(unit: Unit, session_id: str, drafts: Sequence[Draft], now: datetime) -> list[MessagingMessage]:
    """Insert the drafts that are not stored yet; returns these as messages."""
    at_once = unit.backend.writes_in_ctes
    statement, values = sql.insert_unless_there(drafts, counted=at_once)
    rows = unit.rows(statement, {**values, "session_id": session_id, "at": now})
    if rows and not at_once:
        _count(unit, session_id, len(rows), now)
    return _made(rows)


def _made(rows: Iterable[MessagingMessageRow]) -> list[MessagingMessage]:
    """Return the messages of inserted rows in the order of their drafts, which ids follow and RETURNING need not."""
    return [MessagingMessage.of(row) for row in sorted(rows, key=lambda row: row["id"])]


def _count(unit: Unit, session_id: str, added: int, now: datetime) -> bool:
    return unit.row(sql.COUNT, {"session_id": session_id, "added": added, "at": now}) is not None


def _stored(unit: Unit, session_id: str, deliveries: Iterable[Delivery]) -> dict[Delivery, MessagingMessage]:
    """The stored messages by delivery; the oldest one where an older version has stored a delivery twice."""
    platform_ids = list(dict.fromkeys(platform_id for _, platform_id in deliveries))
    if not platform_ids:
        return {}
    statement, values = sql.STORED.of(platform_ids)
    found: dict[Delivery, MessagingMessage] = {}
    for row in unit.rows(statement, {**values, "session_id": session_id}):
        found.setdefault((row["role"], str(row["platform_message_id"])), MessagingMessage.of(row))
    return found


def _once_each(drafts: Iterable[Draft]) -> list[Draft]:
    """The drafts without those that repeat an earlier one of the batch."""
    seen: set[Delivery] = set()
    kept = []
    for draft in drafts:
        key = _delivery(draft)
        if key is None or key not in seen:
            kept.append(draft)
        if key is not None:
            seen.add(key)
    return kept


def _delivery(row: Draft) -> Delivery | None:
    platform_id = row["platform_message_id"]
    return None if platform_id is None else (row["role"], platform_id)
