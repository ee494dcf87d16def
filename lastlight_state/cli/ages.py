"""How long ago something was, in words of the command line: ``90s``, ``30m``, ``24h``, ``7d``, ``2w``."""

from __future__ import annotations

import re
from datetime import timedelta

_AGO = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta | None:
    """The time that these words mean, or None."""
    found = _AGO.fullmatch(text)
    return None if found is None else timedelta(**{_UNITS[found[2]]: int(found[1])})
