"""How long ago something was, as the command line takes it (``90s``, ``24h``, ``2w``) and as tables show it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_AGO = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta | None:
    """Return the time that these words mean, or None."""
    found = _AGO.fullmatch(text)
    return None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})


def since(moment: datetime, now: datetime) -> str:
    """Return how long before ``now`` a moment was, or how long after: ``5m ago``, ``in 2h``. Beyond 60 days the day."""
    seconds = (now - moment).total_seconds()
    for unit, length, most in (("s", 1, 100), ("m", 60, 100), ("h", 3_600, 48), ("d", 86_400, 60)):
        count = int(abs(seconds) / length)
        if count < most:
            return f"{count}{unit} ago" if seconds >= 0 else f"in {count}{unit}"
    return f"{moment:%Y-%m-%d}"
