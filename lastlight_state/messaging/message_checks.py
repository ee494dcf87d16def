"""Checks of what callers say about messages; each returns parameters of statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.messaging import transcript, words
from lastlight_state.messaging.arguments import MessageDraft
from lastlight_state.messaging.tables import MESSAGES

_MOST = limits_of(MESSAGES)


class Draft(TypedDict):
    """What a new message has of a row."""

    role: str
    content: str
    timestamp: datetime
    platform_message_id: str | None


def message(
    role: Any, content: Any, platform_id: Any, timestamp: Any, *, now: datetime, max_bytes: int, where: str = ""
) -> Draft:
    """The parameters of a message. A platform id of ``""`` means None."""
    return {
        "role": valid.word(f"{where}role", role, words.ROLES),
        "content": valid.content(f"{where}content", content, max_bytes),
        "timestamp": now if timestamp is None else aware_utc(f"{where}timestamp", timestamp),
        "platform_message_id": None
        if platform_id is None or platform_id == ""
        else valid.identifier(f"{where}platform_message_id", platform_id, _MOST.platform_message_id),
    }


def draft(where: str, given: Any, now: datetime, max_bytes: int) -> Draft:
    """The parameters of a `MessageDraft`."""
    one = valid.group(where, given, MessageDraft)
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
    """The parameters of 1 to 500 messages."""
    if not isinstance(given, Sequence):
        raise InvalidValue("drafts", f"expected a sequence of MessageDraft, got {type(given).__name__}")
    valid.number("drafts", len(given), least=1, most=words.BATCH)
    return [draft(f"drafts[{i}]", one, now, max_bytes) for i, one in enumerate(given)]


def posted(given: Any, now: datetime, max_bytes: int, clip: int | None) -> Draft | None:
    """The parameters of a message posted into a thread, stripped and clipped. None if it is blank."""
    one = valid.group("draft", given, MessageDraft)
    if clip is not None:
        valid.number("clip", clip, least=transcript.LEAST)
    said = valid.sought("draft.content", one.content).strip()
    kept = said if clip is None else transcript.clip_tail(said, clip)
    row = draft("draft", replace(one, content=kept), now, max_bytes)
    return row if kept else None
