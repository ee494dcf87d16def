"""The instants of a daily pattern, computed day by day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)


def daily(zone: ZoneInfo, hour: int, minute: int, start: datetime, end: datetime) -> set[datetime]:
    """The instants of each day that the zone has: at the first such time, or at the first minute behind a gap."""
    days = {(start + timedelta(minutes=10 * n)).astimezone(zone).date() for n in range((end - start) // (10 * MINUTE))}
    found = set()
    for day in days:
        wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
        while wall.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wall.replace(tzinfo=None):
            wall += MINUTE
        found.add(wall.astimezone(UTC))
    return {instant for instant in found if start < instant <= end}
