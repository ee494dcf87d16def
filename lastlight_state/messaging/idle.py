"""The idle timeout of sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from lastlight_state.clock import to_millis
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue

#: Before every activity: with this cutoff no session is idle.
NEVER = datetime(1, 1, 1, tzinfo=UTC)


def oldest_fresh(now: datetime, idle_timeout: timedelta | None) -> datetime:
    """The earliest last activity that is not yet idle at ``now``. A timeout of None means never idle."""
    if idle_timeout is None:
        return NEVER
    try:
        return to_millis(now - idle_timeout)
    except OverflowError:
        return NEVER


def checked(idle_timeout: Any) -> timedelta | None:
    """A caller's timeout: a positive `timedelta`, or None."""
    if idle_timeout is None:
        return None
    timeout = valid.duration("idle_timeout", idle_timeout, least=timedelta.min)
    if timeout <= timedelta(0):
        raise InvalidValue("idle_timeout", f"must be positive, or None for never idle, got {timeout}")
    return timeout
