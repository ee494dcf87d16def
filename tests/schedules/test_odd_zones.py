"""Daily patterns around every odd change of clocks that the zones of this machine know."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from support.schedules.days import daily

from lastlight_state import cron

HOUR, DAY = 3_600, 86_400
THE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: From so many seconds on every change is looked at; of smaller ones that are no hour, one of each length.
LARGE = 3 * HOUR
TIMES = [(0, 0), (2, 30)]


def stored(zone: str) -> bytes:
    """Return the file of a zone: the machine's, or that of the package tzdata."""
    for folder in TZPATH:
        if (found := Path(folder, zone)).is_file():
            return found.read_bytes()
    return files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()


def changes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the changes in a file of a zone: when, in Unix seconds, and the distance from UTC before and after."""
    head = struct.Struct(">20x6L")
    utc, standard, leaps, times, types, names = head.unpack_from(data)
    at = 44 + times * 5 + types * 6 + names + leaps * 8 + standard + utc  # behind what readers of 32 bits read
    *_, times, types, _ = head.unpack_from(data, at)
    instants = struct.unpack_from(f">{times}q", data, at + 44)
    kinds = data[at + 44 + 8 * times : at + 44 + 9 * times]
    distances = [struct.unpack_from(">l", data, at + 44 + 9 * times + 6 * n)[0] for n in range(types)]
    before = distances[0]
    for instant, kind in zip(instants, kinds, strict=True):
        yield instant, before, distances[kind]
        before = distances[kind]


def odd_changes() -> dict[tuple[int, int], str]:
    """Return a zone for each odd change, by when it was and how many seconds were skipped."""
    found: dict[tuple[int, int], str] = {}
    for zone in sorted(available_timezones()):
        for instant, before, after in changes(stored(zone)):
            if not before % 60 and not after % 60 and before != after:
                found[instant, after - before] = zone
    newest = {length: instant for instant, length in sorted(found)}
    return {
        (instant, length): zone
        for (instant, length), zone in found.items()
        if abs(length) >= LARGE or (length % HOUR and newest[length] == instant)
    }


def test_a_daily_pattern_fires_once_on_each_day_around_every_odd_change() -> None:
    """schedules X-6: of all zones, also of those that skipped a day or had one twice."""
    found = odd_changes()
    assert {DAY, -HOUR * 23} <= {length for _, length in found}
    wrong = []
    for (instant, _), zone in found.items():
        change = THE_EPOCH + timedelta(seconds=instant)
        start, end = change - timedelta(days=2), change + timedelta(days=2)
        for hour, minute in TIMES:
            made = {one for one in cron.upcoming(f"{minute} {hour} * * *", zone, start, 7) if one <= end}
            expected = daily(ZoneInfo(zone), hour, minute, start - timedelta(days=1), end + timedelta(days=1))
            if made != {one for one in expected if start < one <= end}:
                wrong.append((zone, change, hour, minute))
    assert not wrong
