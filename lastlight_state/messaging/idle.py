"""When a session counts as idle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from lastlight_state.clock import to_millis
from lastlight_state.errors import InvalidValue

NEVER = datetime(1, 1, 1, tzinfo=UTC)


def oldest_fresh(now: datetime, idle_timeout: timedelta | None) -> datetime:
    """The earliest last activity that is not idle at ``now``, itself included; None is never idle."""
    if idle_timeout is None:
        return NEVER
    try:
        return to_millis(now - idle_timeout)
    except OverflowError:
        return NEVER


def checked(idle_timeout: Any) -> timedelta | None:
    """A caller's timeout. Raises `InvalidValue` unless it is a positive duration or None."""
    if idle_timeout is None:
        return None
    if not isinstance(idle_timeout, timedelta):
        raise InvalidValue("idle_timeout", f"a timedelta is needed, not {type(idle_timeout).__name__}")
    if idle_timeout <= timedelta(0):
        raise InvalidValue("idle_timeout", "zero or negative; None means never idle")
    return idle_timeout
