"""Record of what reaping would do."""

from __future__ import annotations

from lastlight_state.conversations.life_records import StaleSession
from lastlight_state.db.records import Record


class ReapPlan(Record):
    """What reaping would do at this moment: nothing is written to find out.

    ``running`` counts all running sessions, ``retired`` those of them that would be ended; ``sessions`` are the first
    500 of these, the longest silent first.
    """

    running: int
    retired: int
    sessions: tuple[StaleSession, ...]
