"""Triggers on chat sessions and messages: rows cannot be deleted, and messages cannot be changed."""

from __future__ import annotations

from lastlight_state.db.guards import Key, append_only, declare, no_replacement, no_replacing_insert, no_update

APPEND_ONLY = declare(
    [
        *append_only("messaging_sessions"),
        *no_replacement(
            "messaging_sessions",
            Key(("id",)),
            Key(("platform", "channel_id", "thread_id", "user_id"), among=("active", "1"), nullable=("thread_id",)),
        ),
        *append_only("messaging_messages"),
        *no_replacing_insert("messaging_messages"),
        *no_update("messaging_messages"),
    ]
)
