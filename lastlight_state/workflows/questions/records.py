"""What the records of both kinds of question have in common."""

from __future__ import annotations

from datetime import datetime

from lastlight_state.db.records import Record


class AskedQuestion(Record):
    """A question that was put to a person: whether it is open, which node waits for it, and how long it may."""

    id: str
    status: str
    node_id: str | None
    iteration: int
    expires_at: datetime | None
