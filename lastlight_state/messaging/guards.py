"""What the database refuses about chat sessions and messages: to delete them, and to change what was said."""

from __future__ import annotations

from lastlight_state.db.guards import append_only, declare, no_update

APPEND_ONLY = declare(
    [
        *append_only("messaging_sessions"),
        *append_only("messaging_messages"),
        *no_update("messaging_messages"),
    ]
)
