"""The only source of times in this library, so that tests can fix the clock.

Every time in this library is an aware UTC `datetime` with a precision of milliseconds, because both databases store
that. So a time that a call returns equals the time that a later read returns.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from lastlight_state.errors import InvalidValue


class Clock(Protocol):
    """A source of the current time. Any object with this method can be used."""

    def now(self) -> datetime:
        """Return the current time as an aware datetime in any time zone."""
        ...


_MILLIS = tuple(timedelta(milliseconds=number) for number in range(1000))


class SystemClock:
    """The machine's clock, in whole milliseconds.

    It caches the current second, because adding to a cached datetime takes a third of the time of building a new one.
    """

    def __init__(self) -> None:
        self._second = 0, datetime.fromtimestamp(0, UTC)

    def now(self) -> datetime:
        second, millis = divmod(time.time_ns() // 1_000_000, 1000)
        known = self._second
        if known[0] != second:
            known = self._second = second, datetime.fromtimestamp(second, UTC)
        return known[1] + _MILLIS[millis]


SYSTEM_CLOCK = SystemClock()


def nanoseconds() -> int:
    """Return the time in nanoseconds, from the clock that the system also uses for times of files."""
    return time.time_ns()


#: The years that a caller's clock may return.
FIRST_YEAR, LAST_YEAR = 1000, 8999


class KeptClock:
    """A caller's clock. Its times are checked and cut to milliseconds.

    Raises `InvalidValue` for naive times and for years outside 1000 to 8999. Leases, windows and timeouts are added to
    the current time and subtracted from it, and the result must still be a valid date.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        moment = aware_utc("clock", self._clock.now())
        if not FIRST_YEAR <= moment.year <= LAST_YEAR:
            raise InvalidValue("clock", f"must be between the years {FIRST_YEAR} and {LAST_YEAR}, not {moment.year}")
        return moment


def checked_clock(clock: Clock) -> Clock:
    """Wrap a clock so that its times are checked. The system clock is returned unchanged, because it needs no check."""
    return clock if clock is SYSTEM_CLOCK or isinstance(clock, KeptClock) else KeptClock(clock)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
_LAST = datetime(LAST_YEAR, 12, 31, tzinfo=UTC)


def of_file(nanoseconds: int) -> datetime:
    """Convert the time of a file's change from nanoseconds since 1970 to a datetime in whole milliseconds.

    A file's owner can set its time, on some file systems to years that no datetime has. Such a time becomes the first
    day of the year 1000, or the last day of 8999.
    """
    try:
        moment = _EPOCH + timedelta(milliseconds=nanoseconds // 1_000_000)
    except OverflowError:
        return _FIRST if nanoseconds < 0 else _LAST
    return min(max(moment, _FIRST), _LAST)


def to_millis(moment: datetime) -> datetime:
    """Return the time, cut to milliseconds."""
    below = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - below) if below else moment


def aware_utc(where: str, moment: datetime) -> datetime:
    """Return a caller's time in UTC, cut to milliseconds.

    Raises `InvalidValue` for a naive time, because its zone is unknown.
    """
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
    """Return an aware UTC time as 24 characters, ``2026-02-03T12:34:56.789Z``. Sorting these texts sorts the times."""
    day = moment.toordinal()
    text = _day_texts.get(day) or _day_text(day, moment)
    return (
        f"{text}{_HOURS[moment.hour]}{_SIXTY[moment.minute]}{_SIXTY[moment.second]}{_TAILS[moment.microsecond // 1000]}"
    )


def exact_iso_text(moment: datetime) -> str:
    """Return an aware time as text, keeping the microseconds that another program wrote."""
    moment = moment.astimezone(UTC)
    return iso_text(moment) if moment.microsecond % 1000 == 0 else f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


#: The parts of texts of times. Joining them takes a fifth of the time of `datetime.isoformat`.
_HOURS = tuple(f"T{number:02}" for number in range(24))
_SIXTY = tuple(f":{number:02}" for number in range(60))
_TAILS = tuple(f".{number:03}Z" for number in range(1000))
#: A cache of the texts of recent days.
_day_texts: dict[int, str] = {}
_MOST_DAYS = 1_000


#: A day and a time of day, optionally with fraction and zone. A day alone or a number would be ambiguous.
_SPELLED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)


#: The hour 24 of a day, which Python accepts from 3.14 on.
_HOUR_24 = re.compile(r"\d{4}-?(?:\d\d-?\d\d|W\d\d(?:-?\d)?).24", re.DOTALL)


def iso_time(text: str) -> datetime:
    """Parse an ISO 8601 text and return its time. Raises ValueError for other texts, and for the hour 24."""
    if _HOUR_24.match(text):
        raise ValueError("hour must be in 0..23")
    return datetime.fromisoformat(text)


def parse_foreign_time(text: object) -> datetime | None:
    """Parse a time that another program wrote, in UTC and whole milliseconds; None if it is not such a time.

    Accepts ``T`` or a blank between day and time. The time must have at least hours and minutes. Without a zone it is
    in UTC. Digits below a millisecond are cut off.
    """
    if not isinstance(text, str) or not _SPELLED.fullmatch(text):
        return None
    try:
        moment = iso_time(text)
        return to_millis(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def _day_text(day: int, moment: datetime) -> str:
    if len(_day_texts) >= _MOST_DAYS:
        _day_texts.clear()
    text = _day_texts[day] = f"{moment.year:04}-{moment.month:02}-{moment.day:02}"
    return text


def ago(moment: datetime, now: datetime) -> str:
    """Describe how far a time is from ``now``, past or future: ``5 min ago``, ``in 2 h``."""
    past = now >= moment
    length = duration_text(abs(now - moment))
    return f"{length} ago" if past else f"in {length}"


def duration_text(length: timedelta) -> str:
    """Describe a duration in its largest unit. Below five hours, use the two largest units."""
    return seconds_text(length.total_seconds())


def seconds_text(length: float) -> str:
    """Describe a number of seconds as `duration_text` does."""
    seconds = int(length)
    if seconds < 100:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 100:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 5 and rest:
        return f"{hours} h {rest} min"
    return f"{hours} h" if hours < 48 else f"{hours // 24} d"
