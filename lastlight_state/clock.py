"""Every time that this library reads comes from here, so that tests can hold the clock still.

Every time in this library is an aware UTC `datetime` of millisecond precision, because that is what both
databases store: what a call returns equals what a later read returns.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from lastlight_state.errors import InvalidValue


class Clock(Protocol):
    """Tells the time. Any object with this method will do."""

    def now(self) -> datetime:
        """The present, aware, in any zone."""
        ...


class SystemClock:
    """The machine's clock, in whole milliseconds."""

    def now(self) -> datetime:
        return to_millis(datetime.now(UTC))


SYSTEM_CLOCK = SystemClock()

#: The years in which a caller's clock may be.
FIRST_YEAR, LAST_YEAR = 1000, 8999


class KeptClock:
    """A caller's clock, whose times are checked and cut to milliseconds.

    Naive times are `InvalidValue`, and so are years outside 1000 to 8999: leases, windows and timeouts are added to the
    present and taken from it, and must stay in the calendar.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        moment = aware_utc("clock", self._clock.now())
        if not FIRST_YEAR <= moment.year <= LAST_YEAR:
            raise InvalidValue("clock", f"must be between the years {FIRST_YEAR} and {LAST_YEAR}, not {moment.year}")
        return moment


def to_millis(moment: datetime) -> datetime:
    """The moment with everything below a millisecond cut off."""
    below = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - below) if below else moment


def aware_utc(where: str, moment: datetime) -> datetime:
    """A caller's time as the library keeps it. Naive values are `InvalidValue`: their zone would be a guess."""
    if not isinstance(moment, datetime):
        raise InvalidValue(where, f"expected a datetime, got {type(moment).__name__}")
    if moment.tzinfo is UTC:
        return to_millis(moment)
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidValue(where, "naive datetime: give it a time zone")
    try:
        return to_millis(moment.astimezone(UTC))
    except OverflowError:
        raise InvalidValue(where, "outside the years 1 to 9999 in UTC") from None


def iso_text(moment: datetime) -> str:
    """The 24-character text ``2026-02-03T12:34:56.789Z`` of an aware UTC time; sorts as time does."""
    return moment.isoformat(timespec="milliseconds")[:23] + "Z"
