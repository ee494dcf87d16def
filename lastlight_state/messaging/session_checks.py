"""Checks of what callers say about sessions; each returns parameters of statements."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.declarations import depth_of, limits_of
from lastlight_state.db.repository import UNSET
from lastlight_state.db.statements import Row
from lastlight_state.messaging.arguments import ConversationKey, ThreadPlace
from lastlight_state.messaging.tables import SESSIONS

_MOST, _DEPTH = limits_of(SESSIONS), depth_of(SESSIONS.c.metadata)


class Place(TypedDict):
    """The parameters of a place; ``thread`` is empty outside a thread."""

    platform: str
    channel_id: str
    thread_id: str | None
    thread: str


class Key(Place):
    """The parameters of a conversation key."""

    user_id: str


class NewSession(Key):
    """The parameters of a session that may be made. Only ``resume`` looks at the ``cutoff``."""

    id: str
    at: datetime
    reason: str
    cutoff: datetime


def place(where: str, given: Any) -> Place:
    """The parameters of a place; ``thread`` is empty outside a thread."""
    return _place(valid.group(where, given, ThreadPlace))


def key(given: Any) -> Key:
    """The parameters of a conversation key."""
    where = _place(valid.group("key", given, ConversationKey))
    return {**where, "user_id": valid.identifier("user_id", given.user_id, _MOST.user_id)}


def changes(title: Any, metadata: Any, agent_session: Any) -> Row:
    """The columns that an update sets: those not UNSET. None clears a column."""
    given: Row = {}
    if title is not UNSET:
        given["title"] = valid.optional_content("title", title, _MOST.title)
    if metadata is not UNSET:
        given["metadata"] = None if metadata is None else _metadata(metadata)
    if agent_session is not UNSET:
        given["agent_session_id"] = (
            None if agent_session is None else valid.session_id("agent_session_id", agent_session)
        )
    return given


def list_filters(platform: Any, channel_id: Any, user_id: Any, active: Any) -> Row:
    """The filters of a list of sessions."""
    given = {"platform": platform, "channel_id": channel_id, "user_id": user_id}
    chosen: Row = {name: None if value is None else valid.sought(name, value) for name, value in given.items()}
    if active is not None:
        chosen["only_active" if valid.flag("active", active) else "only_inactive"] = {}
    return chosen


def _place(given: ThreadPlace | ConversationKey) -> Place:
    thread_id = given.thread_id if given.thread_id != "" else None
    valid.optional("thread_id", thread_id, _MOST.thread_id)
    return {
        "platform": valid.identifier("platform", given.platform, _MOST.platform),
        "channel_id": valid.identifier("channel_id", given.channel_id, _MOST.channel_id),
        "thread_id": thread_id,
        "thread": thread_id or "",
    }


def _metadata(value: Any) -> str:
    return codec.encode("metadata", value, max_bytes=_MOST.metadata, max_depth=_DEPTH)
