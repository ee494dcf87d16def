"""Computes the times of cron expressions in a given time zone. Reads no clock and no database.

An expression has five fields, or six with leading seconds. It may use names, ``L``, ``LW``, ``5L``, ``1#1``, and
``@daily`` and the like. If day of month **and** day of week are both restricted, a day matches by either of them. Times
go in aware and come out in UTC.

When the clocks change, a pattern with fixed minutes and hours still runs once. If its hour is skipped, it runs at the
first minute after the gap; if its hour comes twice, it runs the first time. If a zone skipped a whole day, it runs
after the gap only if it does not match on the following day. A pattern that has seconds, or whose minutes or hours
begin with ``*``, follows the wall clock: it does not run in a skipped hour, and runs in both of a repeated one.

The library cronsim, in the extra ``cron``, parses and steps; without it all three functions raise `MisuseError`. A
pattern that matches nothing within 50 years counts as never matching.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lastlight_state.clock import aware_utc
from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.lazy import load, run_imports
from lastlight_state.reprs import repr_of

PATTERN_BYTES = 255
ZONE_BYTES = 64
#: The most times that one call returns.
MOST = 100

_SHORTHANDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_ZONE = re.compile(r"[A-Za-z0-9_+\-]+(?:/[A-Za-z0-9_+\-]+)*")
#: Names in zone directories that are not IANA zones: the machine's own zone, and other kinds of clocks.
_LOCAL = ("localtime", "posixrules", "posix/", "right/")
_SECOND, _DAY, _WEEK = timedelta(seconds=1), timedelta(days=1), timedelta(weeks=1)
_ANY_YEAR = datetime(2000, 1, 1, tzinfo=UTC)


def available() -> bool:
    """True if the extra is installed."""
    try:
        _library()
    except MisuseError:
        return False
    return True


def trim_pattern(pattern: str) -> str:
    """Remove needless blanks from a pattern, without parsing it.

    Raises `InvalidValue` for a blank pattern or one that is too long.
    """
    if not isinstance(pattern, str):
        raise InvalidValue("pattern", f"expected text, got {type(pattern).__name__}")
    if not pattern.isascii():
        raise InvalidValue("pattern", f"{repr_of(pattern, 80)}: only ASCII characters")
    kept = " ".join(pattern.split())
    if not kept:
        raise InvalidValue("pattern", "must not be blank: it needs 5 fields, or 6 with leading seconds")
    if len(kept) > PATTERN_BYTES:
        raise InvalidValue("pattern", f"{len(kept)} characters, more than the limit of {PATTERN_BYTES}")
    return kept


def validate(pattern: str, timezone: str = "UTC") -> str:
    """Check a pattern and return it in its stored form, without needless blanks.

    Raises `InvalidValue`, which names the field, for a pattern that cannot be parsed or never matches, and for a time
    zone that this machine does not know.
    """
    kept = trim_pattern(pattern)
    _zone(timezone)
    if next(_matches(kept, UTC, _ANY_YEAR), None) is None:
        raise InvalidValue("pattern", f"{kept!r}: no day-of-month of these months ever matches")
    return kept


def next_after(pattern: str, timezone: str, after: datetime) -> datetime | None:
    """Return the first time strictly after ``after``, or None if there is none. Raises the errors of `validate`."""
    start = aware_utc("after", after)
    return next(_after(trim_pattern(pattern), _zone(timezone), start), None)


def upcoming(pattern: str, timezone: str, after: datetime, count: int) -> list[datetime]:
    """Return the next ``count`` (1 to 100) times strictly after ``after``, ascending.

    Return fewer if there are no more.
    """
    if type(count) is not int or not 1 <= count <= MOST:
        raise InvalidValue("count", f"must be a whole number from 1 to {MOST}")
    start = aware_utc("after", after)
    return list(islice(_after(trim_pattern(pattern), _zone(timezone), start), count))


def _after(pattern: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Yield times after ``after``, strictly ascending.

    For patterns with fixed hours, cronsim steps through wall-clock times: around a change of the clocks it may return
    the same time twice, or an earlier one.
    """
    last = after
    found = _by_the_wall if zone is not UTC and _follows_the_wall(pattern) else _matches
    with suppress(OverflowError):  # the end of the calendar
        for match in found(pattern, zone, after):
            instant = match.astimezone(UTC)
            if instant > last and not _stands_for_a_day(pattern, zone, instant):
                last = instant
                yield instant


def _stands_for_a_day(pattern: str, zone: tzinfo, instant: datetime) -> bool:
    """True if a time replaces a skipped day although the pattern also matches later on the same day."""
    distance = _distance(zone, instant)
    if distance - _distance(zone, instant - _SECOND) < _DAY:
        return False
    wall = instant + distance
    following = next(_matches(pattern, UTC, wall - _SECOND), wall)
    return following > wall and following.date() == wall.date()


def _by_the_wall(pattern: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Yield the times at which the zone's wall clock matches the pattern.

    Between two changes of the clock, the zone has a fixed offset from UTC, and the times are computed with that offset.
    cronsim itself steps by whole hours, so its times are wrong after a change by half an hour (Lord Howe).
    """
    asked, reached, distance = after, after, _distance(zone, after)
    while True:
        changed = None
        for wall in _matches(pattern, UTC, asked + distance):
            changed = _change(zone, reached, wall - distance)
            if changed is not None:
                break
            reached = wall - distance
            yield reached
        if changed is None:
            return
        asked, reached, distance = changed - _SECOND, changed, _distance(zone, changed)


def _change(zone: tzinfo, after: datetime, last: datetime) -> datetime | None:
    """Return the first second after ``after``, up to ``last``, at which the zone's clocks change; None without one."""
    before, end = _distance(zone, after), after
    while end < last and _distance(zone, end) == before:
        after, end = end, min(end + _WEEK, last)
    if _distance(zone, end) == before:
        return None
    after = after.replace(microsecond=0)
    while end - after > _SECOND:
        middle = after + (end - after) // _SECOND // 2 * _SECOND
        after, end = (middle, end) if _distance(zone, middle) == before else (after, middle)
    return end.replace(microsecond=0)


def _distance(zone: tzinfo, instant: datetime) -> timedelta:
    return instant.astimezone(zone).utcoffset() or timedelta(0)


def _follows_the_wall(pattern: str) -> bool:
    fields = _SHORTHANDS.get(pattern.lower(), pattern).split()
    return len(fields) == len(_FIELDS) or any(field.startswith("*") for field in fields[:2])


def _matches(pattern: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Yield the times that cronsim finds. Raises `InvalidValue` for a pattern that it cannot parse."""
    library = _library()
    expression = _SHORTHANDS.get(pattern.lower(), pattern)
    try:
        yield from library.CronSim(expression, after.astimezone(zone))
    except library.CronSimError as error:
        raise InvalidValue("pattern", f"{pattern!r}: {str(error)[:1].lower()}{str(error)[1:]}") from None


def _zone(name: str) -> tzinfo:
    if not isinstance(name, str):
        raise InvalidValue("timezone", f"expected text, got {type(name).__name__}")
    if name == "UTC":
        return UTC
    if len(name) > ZONE_BYTES or not _ZONE.fullmatch(name) or name.startswith(_LOCAL):
        raise InvalidValue("timezone", f"{repr_of(name, 80)} is not the name of an IANA time zone")
    try:
        return run_imports(partial(ZoneInfo, name))  # may import the zone's data
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidValue("timezone", f"{name!r} is not a time zone that this machine knows") from None


def _library() -> Any:
    try:
        return load("cronsim")
    except ImportError:
        raise MisuseError.missing_extra("cron", what="reading cron expressions") from None
