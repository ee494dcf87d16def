"""The next occurrence of a series. Pure."""

from __future__ import annotations

from datetime import datetime

from lastlight_state import cron


def next_occurrence(recurrence: str, timezone: str, *, now: datetime, last: datetime | None) -> datetime | None:
    """The first match after both now and the last occurrence; missed ones are passed over. None when there is none.

    Raises `InvalidValue` for a pattern or zone that cannot be read.
    """
    return cron.next_after(recurrence, timezone, now if last is None else max(now, last))
