"""Checks of what callers say about sessions; each returns parameters of statements."""

from __future__ import annotations

from typing import Any

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET
from lastlight_state.messaging import words
from lastlight_state.messaging.arguments import ConversationKey, ThreadPlace


def place(where: str, given: Any) -> dict[str, Any]:
    """The parameters of a place; ``thread`` is empty outside a thread."""
    return _place(valid.group(where, given, ThreadPlace))


def key(given: Any) -> dict[str, Any]:
    """The parameters of a conversation key."""
    row = _place(valid.group("key", given, ConversationKey))
    row["user_id"] = valid.identifier("user_id", given.user_id, words.PLATFORM_ID)
    return row


def changes(title: Any, metadata: Any, agent_session: Any) -> dict[str, Any]:
    """The columns that an update sets: those not UNSET. None clears a column."""
    given: dict[str, Any] = {}
    if title is not UNSET:
        given["title"] = valid.optional_content("title", title, words.TITLE)
    if metadata is not UNSET:
        given["metadata"] = None if metadata is None else _metadata(metadata)
    if agent_session is not UNSET:
        given["agent_session_id"] = (
            None if agent_session is None else valid.session_id("agent_session_id", agent_session)
        )
    return given


def list_filters(platform: Any, channel_id: Any, user_id: Any, active: Any) -> dict[str, Any]:
    """The filters of a list of sessions."""
    given = {"platform": platform, "channel_id": channel_id, "user_id": user_id}
    chosen: dict[str, Any] = {
        name: None if value is None else valid.sought(name, value) for name, value in given.items()
    }
    if active is not None:
        chosen["only_active" if valid.flag("active", active) else "only_inactive"] = {}
    return chosen


def _place(given: ThreadPlace | ConversationKey) -> dict[str, Any]:
    thread_id = given.thread_id if given.thread_id != "" else None
    valid.optional("thread_id", thread_id, words.PLATFORM_ID)
    return {
        "platform": valid.identifier("platform", given.platform, words.PLATFORM),
        "channel_id": valid.identifier("channel_id", given.channel_id, words.PLATFORM_ID),
        "thread_id": thread_id,
        "thread": thread_id or "",
    }


def _metadata(value: Any) -> str:
    return codec.encode("metadata", value, max_bytes=words.METADATA, max_depth=words.METADATA_DEPTH)
