"""Appends messages that a platform may deliver twice. A message that is already stored is returned, not stored again.

Two messages of a session are the same delivery if their role and platform id are equal. A separate statement locks the
session's row before duplicates are searched. Otherwise, on Postgres, a statement that waits for the lock would use a
snapshot from before the wait, and miss a message that the lock's holder stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import Family, Row, Statement, bind, number, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import NotFound
from lastlight_state.messaging.message_statements import COLUMNS, NEWEST_HERE, Draft, count_update
from lastlight_state.messaging.models import MESSAGES, SESSION, SESSIONS, THIS_SESSION
from lastlight_state.messaging.records import Appended, MessagingMessage

# Statements that append messages without duplicates.

#: The columns of a message that a draft sets.
DRAFT = ("role", "content", "timestamp", "platform_message_id")

COUNT = statement_of(count_update(sa.bindparam("added", type_=sa.Integer), THIS_SESSION).returning(SESSIONS.c.id))
COUNT_ONE = statement_of(count_update(number(1), THIS_SESSION))
LOCK = statement_of(sa.select(SESSIONS.c.id).where(THIS_SESSION).with_for_update(key_share=True))
LOCK_HERE = statement_of(sa.select(SESSIONS.c.id).where(*NEWEST_HERE).with_for_update(key_share=True))

_session_id = bind("session_id", MESSAGES.c.session_id)


def _insert_unless_there(positions: Sequence[sa.BindParameter[Any]]) -> Any:
    """Return one INSERT for many drafts.

    It skips stored ones, but sees only rows that were committed before it began.
    """
    columns = [MESSAGES.c[name] for name in DRAFT]
    drafts = (
        sa.values(sa.column("position", sa.Integer), *(sa.column(c.name, c.type) for c in columns), name="drafts")
        .data([(position, *(bind(f"{c.name}_{i}", c) for c in columns)) for i, position in enumerate(positions)])
        .cte("drafts")
    )
    stored = MESSAGES.alias("stored")
    is_stored = sa.and_(
        stored.c.session_id == _session_id,
        stored.c.platform_message_id == drafts.c.platform_message_id,
        stored.c.role == drafts.c.role,
    )
    return (
        sa.insert(MESSAGES)
        .from_select(
            ["session_id", *DRAFT],
            sa.select(_session_id, *(drafts.c[name] for name in DRAFT))
            .select_from(drafts.outerjoin(stored, is_stored))
            .where(drafts.c.role.is_not(None), stored.c.session_id.is_(None))
            .order_by(drafts.c.position),
            include_defaults=False,
        )
        .returning(*COLUMNS)
    )


def _insert_and_count_statement(positions: Sequence[sa.BindParameter[Any]]) -> Any:
    """Return the INSERT combined with the UPDATE of the message count. For databases that allow writes in CTEs."""
    made = _insert_unless_there(positions).cte("made")
    many = sa.select(sa.func.count()).select_from(made).scalar_subquery()
    counted = count_update(many, THIS_SESSION, sa.exists(sa.select(made.c.id))).returning(SESSIONS.c.id).cte("counted")
    return sa.select(*made.c).add_cte(counted)


_INSERT = Family("position", _insert_unless_there, MessagingMessage)
_INSERT_AND_COUNT = Family("position", _insert_and_count_statement, MessagingMessage)


def insert_unless_there(drafts: Sequence[Draft], *, counted: bool = False) -> tuple[Statement[MessagingMessage], Row]:
    """Return the statement that inserts these drafts in order, and its parameters.

    The caller adds the parameter ``session_id``, and ``at`` if the statement also updates the count (``counted``).
    """
    statement, values = (_INSERT_AND_COUNT if counted else _INSERT).of(range(len(drafts)))
    for position in range(len(values)):
        draft = dict(drafts[position]) if position < len(drafts) else {}
        for name in DRAFT:
            values[f"{name}_{position}"] = draft.get(name)
    return statement, values


def _insert_one_unless_there() -> Any:
    """Return an INSERT of one draft. It does nothing if the session is missing or the message is already stored."""
    stored = MESSAGES.alias("stored")
    is_stored = sa.exists(sa.literal_column("1")).where(
        stored.c.session_id == _session_id,
        stored.c.platform_message_id == bind("platform_message_id", MESSAGES.c.platform_message_id),
        stored.c.role == bind("role", MESSAGES.c.role),
    )
    given = sa.select(SESSIONS.c.id, *(bind(name, MESSAGES.c[name]) for name in DRAFT)).where(THIS_SESSION, ~is_stored)
    into = sa.insert(MESSAGES).from_select(["session_id", *DRAFT], given, include_defaults=False)
    return into.returning(MESSAGES.c.id)


_INSERT_ONE = statement_of(_insert_one_unless_there())

STORED = Family(
    "platform_id",
    lambda platform_ids: (
        sa.select(*COLUMNS)
        .where(MESSAGES.c.session_id == _session_id, MESSAGES.c.platform_message_id.in_(platform_ids))
        .order_by(MESSAGES.c.id)
    ),
    MessagingMessage,
)


#: The key of a delivery within a session: role and platform id.
Delivery = tuple[str, str]


def append_one(unit: Unit, session_id: str, draft: Draft, now: datetime) -> Appended:
    """Append one draft as `append` does. On databases with one writer at a time, storing it takes two statements."""
    if unit.backend.one_writer:
        values = {**draft, "session_id": session_id, "at": now}
        made = unit.value(_INSERT_ONE, values)
        if made is not None:
            unit.change(COUNT_ONE, values)
            return append_result(MessagingMessage.of({"id": made, "session_id": session_id, **draft}), created=True)
    return append(unit, session_id, [draft], now)[0]


def append(unit: Unit, session_id: str, drafts: Sequence[Draft], now: datetime) -> list[Appended]:
    """Append drafts in order. If a draft has a platform id, it is stored only once. Raises `NotFound`."""
    if any(_delivery(draft) for draft in drafts):
        if unit.row(LOCK, {"session_id": session_id}) is None:
            raise NotFound(SESSION, session_id)
        return append_locked(unit, session_id, drafts, now)
    if not _count(unit, session_id, len(drafts), now):  # all will be inserted, so updating the count takes the lock
        raise NotFound(SESSION, session_id)
    statement, values = insert_unless_there(drafts)
    made = unit.rows(statement, {**values, "session_id": session_id})
    return [append_result(message, created=True) for message in _in_order(made)]


def append_locked(unit: Unit, session_id: str, drafts: Sequence[Draft], now: datetime) -> list[Appended]:
    """Append drafts to a session whose row this transaction has locked: insert the new messages and count them."""
    made = _insert_and_count(unit, session_id, _once_each(drafts), now)
    new = {(message.role, message.platform_message_id): message for message in made if message.platform_message_id}
    redelivered = [key for key in map(_delivery, drafts) if key is not None and key not in new]
    known = {**_stored_messages(unit, session_id, redelivered), **new}
    plain = iter([message for message in made if message.platform_message_id is None])
    outcomes = []
    for draft in drafts:
        key = _delivery(draft)
        if key is None:
            outcomes.append(append_result(next(plain), created=True))
        else:
            outcomes.append(append_result(known[key], created=new.pop(key, None) is not None))
    return outcomes


def append_result(message: MessagingMessage, *, created: bool) -> Appended:
    """Return the result of appending one message."""
    return Appended.of({"message": message, "created": created})


def _insert_and_count(unit: Unit, session_id: str, drafts: Sequence[Draft], now: datetime) -> list[MessagingMessage]:
    """Insert the drafts that are not stored yet, update the message count, and return the inserted messages."""
    at_once = unit.backend.writes_in_ctes
    statement, values = insert_unless_there(drafts, counted=at_once)
    made = unit.rows(statement, {**values, "session_id": session_id, "at": now})
    if made and not at_once:
        _count(unit, session_id, len(made), now)
    return _in_order(made)


def _in_order(made: Iterable[MessagingMessage]) -> list[MessagingMessage]:
    """Return inserted messages sorted by id, which is the order of their drafts. RETURNING may give another order."""
    return sorted(made, key=lambda message: message.id)


def _count(unit: Unit, session_id: str, added: int, now: datetime) -> bool:
    return unit.row(COUNT, {"session_id": session_id, "added": added, "at": now}) is not None


def _stored_messages(unit: Unit, session_id: str, deliveries: Iterable[Delivery]) -> dict[Delivery, MessagingMessage]:
    """Return stored messages by delivery. If an older version stored a delivery twice, return the first message."""
    platform_ids = list(dict.fromkeys(platform_id for _, platform_id in deliveries))
    if not platform_ids:
        return {}
    statement, values = STORED.of(platform_ids)
    found: dict[Delivery, MessagingMessage] = {}
    for message in unit.rows(statement, {**values, "session_id": session_id}):
        found.setdefault((message.role, str(message.platform_message_id)), message)
    return found


def _once_each(drafts: Iterable[Draft]) -> list[Draft]:
    """Return the drafts, but leave out those that repeat an earlier delivery of the batch."""
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
