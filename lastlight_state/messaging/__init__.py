"""Chat sessions and their messages."""

from __future__ import annotations

from lastlight_state.db.repository import Context


class Messaging:
    """``store.messaging``"""

    def __init__(self, context: Context) -> None:
        self._context = context
