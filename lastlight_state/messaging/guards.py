"""Triggers on chat sessions and messages: rows cannot be deleted, and messages cannot be changed."""

from __future__ import annotations

from lastlight_state.db.guards import append_only, declare, no_update

APPEND_ONLY = declare(
    [
        *append_only("messaging_sessions"),
        *append_only("messaging_messages"),
        *no_update("messaging_messages"),
    ]
)
