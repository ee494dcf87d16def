"""A clock that shows a fixed time until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lastlight_state.clock import aware_utc

START = datetime(2026, 2, 3, 12, 34, 56, 789_000, tzinfo=UTC)


class FrozenClock:
    """A clock that shows the time it was set to. Pass it to `lastlight_state.StateStore.open` as ``clock``."""

    def __init__(self, start: datetime = START) -> None:
        self._now = aware_utc("start", start)

    def now(self) -> datetime:
        """Return the clock's current time."""
        return self._now

    def set(self, moment: datetime) -> datetime:
        """Set the clock to a time, later or earlier, and return that time."""
        self._now = aware_utc("moment", moment)
        return self._now

    def advance(self, step: timedelta | None = None, *, seconds: float = 0) -> datetime:
        """Move the clock by a duration, which may be negative, and return the new time."""
        return self.set(self._now + (step or timedelta()) + timedelta(seconds=seconds))
