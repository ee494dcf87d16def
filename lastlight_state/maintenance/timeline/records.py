"""The entries of a timeline."""

from __future__ import annotations

from datetime import datetime

from lastlight_state.db.rows.records import Record


class TimelineEntry(Record):
    """One fact about a run: when, who did it, one line of text, and the row that records it.

    ``source`` is ``transition``, ``input``, ``approval``, ``human_request``, ``execution``, ``signal`` or ``event``,
    for a follower also ``phase``; ``key`` is its number or id. Transitions and inputs are in the order of their
    numbers. If such an entry was recorded with an earlier time than the entry before it, ``at`` is the time of the
    entry before, and ``clock`` is the recorded time. Otherwise ``clock`` is None.
    """

    source: str
    key: str
    at: datetime
    clock: datetime | None
    actor: str | None
    text: str


class FollowedEntry(TimelineEntry):
    """A timeline entry for a follower. To continue after the entry, pass its ``cursor`` as ``after``."""

    cursor: str
