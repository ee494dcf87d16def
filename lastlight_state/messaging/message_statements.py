"""The SQL statements of `messages`, and the checks of messages to append.

An append locks the session's row first, so the messages of a session are committed in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Statement, bind, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import Chain, from_head
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import Leading, first_chars, through
from lastlight_state.errors import InvalidValue
from lastlight_state.messaging import models
from lastlight_state.messaging.models import (
    ACTIVE_NOW,
    LARGE,
    MESSAGES,
    NEWEST_ACTIVITY,
    PREVIEW,
    SESSIONS,
    THIS_SESSION,
    at_place,
    is_active,
)
from lastlight_state.messaging.records import MessageDraft, MessagingMessage, MessagingMessageSummary

# Cutting a text for a transcript. The tail is kept, because the next turn builds on the end of an answer.

PREFIX = "…(truncated)…\n"
#: The least limit in UTF-16 units: the prefix and one more unit.
LEAST = len(PREFIX) + 1

_LOW_SURROGATES = range(0xDC00, 0xE000)


def units(text: str) -> int:
    """Return the length of ``text`` in UTF-16 code units, as chat platforms count."""
    return len(text) if text.isascii() else len(_encode_text(text)) // 2


def clip_tail(text: str, limit: int) -> str:
    """Return ``text`` if it has at most ``limit`` UTF-16 units; else its end, after ``…(truncated)…`` and a newline.

    The result then has exactly ``limit`` units, or one less if the cut would split a surrogate pair. Raises
    `InvalidValue` for a limit below 15, which leaves no room for text.
    """
    if limit < LEAST:
        raise InvalidValue("limit", f"must be at least {LEAST}, got {limit}", least=LEAST)
    if units(text) <= limit:
        return text
    tail = _encode_text(text)[-2 * (limit - len(PREFIX)) :]
    if int.from_bytes(tail[:2], "little") in _LOW_SURROGATES:
        tail = tail[2:]
    return PREFIX + tail.decode("utf-16-le", "surrogatepass")


def _encode_text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


# Checks of callers' arguments about messages. Each returns parameters of statements.

_LIMITS = limits_of(MESSAGES)


class Draft(TypedDict):
    """What a new message has of a row."""

    role: str
    content: str
    timestamp: datetime
    platform_message_id: str | None


def message(
    role: Any, content: Any, platform_id: Any, timestamp: Any, *, now: datetime, max_bytes: int, where: str = ""
) -> Draft:
    """Check the fields of a message and return its columns. A platform id of ``""`` counts as None.

    Raises `InvalidValue`, and `PayloadTooLarge` for content above ``max_bytes``.
    """
    return {
        "role": valid.word(f"{where}role", role, models.ROLES),
        "content": valid.content(f"{where}content", content, max_bytes),
        "timestamp": now if timestamp is None else aware_utc(f"{where}timestamp", timestamp),
        "platform_message_id": None
        if platform_id is None or platform_id == ""
        else valid.identifier(f"{where}platform_message_id", platform_id, _LIMITS.platform_message_id),
    }


def draft(where: str, given: Any, now: datetime, max_bytes: int) -> Draft:
    """Check a `MessageDraft` and return its columns."""
    one = valid.argument_group(where, given, MessageDraft)
    return message(
        one.role,
        one.content,
        one.platform_message_id,
        one.timestamp,
        now=now,
        max_bytes=max_bytes,
        where=f"{where}.",
    )


def drafts(given: Any, now: datetime, max_bytes: int) -> list[Draft]:
    """Check 1 to 500 `MessageDraft` objects and return their columns, in order."""
    if not isinstance(given, Sequence):
        raise InvalidValue("drafts", f"expected a sequence of MessageDraft, got {type(given).__name__}")
    valid.number("drafts", len(given), least=1, most=models.BATCH)
    return [draft(f"drafts[{i}]", one, now, max_bytes) for i, one in enumerate(given)]


def clipped_draft(given: Any, now: datetime, max_bytes: int, clip: int | None) -> Draft | None:
    """Check a message posted into a thread, and return its columns. Return None if its content is blank.

    White space around the content is removed, and long content is cut.
    """
    one = valid.argument_group("draft", given, MessageDraft)
    if clip is not None:
        valid.number("clip", clip, least=LEAST)
    said = valid.lookup_text("draft.content", one.content).strip()
    kept = said if clip is None else clip_tail(said, clip)
    row = draft("draft", replace(one, content=kept), now, max_bytes)
    return row if kept else None


COLUMNS = every_column_of(MessagingMessage, MESSAGES)


def count_update(added: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> Any:
    """Return an UPDATE that increases a session's message count and sets its last activity. It locks the row.

    It changes nothing if no session matches the conditions.
    """
    return (
        sa.update(SESSIONS)
        .where(*conditions)
        .values(
            message_count=sa.func.coalesce(SESSIONS.c.message_count, number(0)) + added,
            last_activity_at=ACTIVE_NOW,
        )
    )


def _append_chain(*conditions: sa.ColumnElement[bool]) -> Chain:
    return Chain(
        count_update(number(1), *conditions).returning(SESSIONS.c.id),
        into=MESSAGES,
        values={
            "session_id": from_head("id"),
            "role": bind("role", MESSAGES.c.role),
            "content": bind("content", MESSAGES.c.content),
            "timestamp": bind("timestamp", MESSAGES.c.timestamp),
        },
        returning=COLUMNS,
    )


_candidates = SESSIONS.alias("candidates")
_newest_here = (
    sa.select(_candidates.c.id)
    .where(at_place(_candidates), is_active(_candidates))
    .order_by(_candidates.c.last_activity_at.desc(), _candidates.c.id.desc())
    .limit(number(1))
    .scalar_subquery()
)
#: The newest active session of a place; no row if it was retired while this statement waited for its lock.
NEWEST_HERE = (SESSIONS.c.id == _newest_here, is_active())

APPEND = _append_chain(THIS_SESSION)
APPEND_HERE = _append_chain(*NEWEST_HERE)
IS_SOMEBODY_HERE = statement_of(
    sa.select(SESSIONS.c.id).where(at_place(), is_active()).order_by(*NEWEST_ACTIVITY).limit(number(1))
)


GET = statement_of(sa.select(*COLUMNS).where(MESSAGES.c.id == bind("message_id", MESSAGES.c.id)), MessagingMessage)


def _window(
    columns: Iterable[Any], condition: sa.ColumnElement[bool], *, newest_first: bool, index: str | None = None
) -> sa.Executable:
    """Return a query for a limited number of a session's messages, by id. Its cost does not depend on other sessions.

    The limit is a parameter. With a literal, Postgres would plan once for a session of average length. If the limit
    exceeds that length, it would read and sort all messages of a long session.
    """
    order = (MESSAGES.c.session_id, MESSAGES.c.id)
    shown = sa.select(*columns) if index is None else through(sa.select(*columns), MESSAGES, index)
    return (
        shown.where(Leading(MESSAGES.c.session_id, bind("session_id", MESSAGES.c.session_id)), condition)
        .order_by(*(column.desc() if newest_first else column for column in order))
        .limit(sa.bindparam("limit", type_=sa.Integer))
    )


#: The greatest possible id of a message.
GREATEST_ID = 2**63 - 1

_before = MESSAGES.c.id < bind("before", MESSAGES.c.id)
_after = MESSAGES.c.id > bind("after", MESSAGES.c.id)
_summary = (
    *(MESSAGES.c[name] for name in ("id", "session_id", "role", "timestamp", "platform_message_id")),
    first_chars(MESSAGES.c.content, PREVIEW).label("preview"),
    sa.func.length(MESSAGES.c.content).label("content_chars"),
)

BEFORE = statement_of(_window(COLUMNS, _before, newest_first=True), MessagingMessage)
SINCE = statement_of(_window(COLUMNS, _after, newest_first=False), MessagingMessage)
_BY_LARGE = "ix_messaging_messages_large"


def _beside_large() -> sa.Select[Any]:
    """Return a query for summaries on SQLite. It reads large messages from an index instead of from their rows.

    The index also tells which messages are large, so that their content need not be read.
    """
    of_session = MESSAGES.c.session_id == bind("session_id", MESSAGES.c.session_id)
    window = through(sa.select(MESSAGES.c.id), MESSAGES, "ix_messaging_messages_order").where(of_session, _before)
    limit = sa.bindparam("limit", type_=sa.Integer)
    found = window.order_by(MESSAGES.c.session_id.desc(), MESSAGES.c.id.desc()).limit(limit).cte("found")
    is_large = sa.func.length(MESSAGES.c.content) > number(LARGE)
    here = (of_session, MESSAGES.c.id == found.c.id, is_large)
    same = MESSAGES.alias("same")
    in_index = through(sa.select(same.c.id), same, _BY_LARGE).where(
        same.c.session_id == MESSAGES.c.session_id,
        same.c.id == MESSAGES.c.id,
        sa.func.length(same.c.content) > number(LARGE),
    )
    small = sa.select(*_summary).join_from(found, MESSAGES, MESSAGES.c.id == found.c.id).where(~in_index.exists())
    large = through(sa.select(*_summary).select_from(found, MESSAGES), MESSAGES, _BY_LARGE).where(*here)
    shown = sa.union_all(small, large).subquery()
    return sa.select(shown).order_by(shown.c.id.desc())


SUMMARIES_BEFORE = Statement(
    _window(_summary, _before, newest_first=True), _beside_large(), row=MessagingMessageSummary
)

FIND_PLATFORM_ID = statement_of(
    sa.select(*COLUMNS)
    .join_from(MESSAGES, SESSIONS, SESSIONS.c.id == MESSAGES.c.session_id)
    .where(
        MESSAGES.c.platform_message_id == bind("platform_message_id", MESSAGES.c.platform_message_id),
        SESSIONS.c.platform == bind("platform", SESSIONS.c.platform),
        SESSIONS.c.channel_id == bind("channel_id", SESSIONS.c.channel_id),
    )
    .order_by(MESSAGES.c.id.desc())
    .limit(number(1)),
    MessagingMessage,
)
