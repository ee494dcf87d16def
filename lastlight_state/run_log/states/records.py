"""Snapshots of sessions, and what lists tell of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.db.records import Page, Record
from lastlight_state.run_log.parts import JsonObject, Messages, Open, Text, Time, Whole


class SessionState(Open):
    """The snapshot from which a session resumes. Fields that are not named here are kept.

    ``updated_at`` None is stamped by `States.put`. ``run_id`` is the last run, ``invoke_seq`` the last invocation.
    """

    schema_version: Any = 1  # newer files may have any
    session_id: Text
    updated_at: Time = None
    run_id: Text | None = None
    invoke_seq: Whole | None = None
    messages: Messages
    meta: JsonObject | None = None


class SessionEntry(Record):
    """A session in a list. ``problem`` says why its snapshot cannot be read; then little else is known.

    ``last_user_message`` has at most 500 characters.
    """

    session_id: str
    updated_at: datetime | None
    run_id: str | None = None
    invoke_seq: int | None = None
    message_count: int | None = None
    last_user_message: str | None = None
    workspace_root: str | None = None
    size_bytes: int
    problem: str | None = None


class SessionPage(Page[SessionEntry]):
    """A page of sessions."""
