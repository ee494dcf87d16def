"""Times in the files, as text. Pure.

Others write them with or without a zone (then it is UTC), with a blank or a ``T``, to the second or finer. They are
compared as instants, never as text. The original compares some columns as text; those get the form it compares with.
"""

from __future__ import annotations

import re
from datetime import datetime

from lastlight_state.clock import iso_text, to_millis
from lastlight_state.db.columns import parse_time

#: A day and a time of day; a day alone or a bare number would be a guess.
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?")


def plain_text(moment: datetime) -> str:
    """``2026-02-03 12:34:56.789``, in UTC: the form that the original compares as text."""
    return iso_text(moment)[:-1].replace("T", " ")


def instant(text: str | None) -> datetime | None:
    """The instant of a text, in UTC. None for None, and for what is no time."""
    if not isinstance(text, str) or not _TIME.fullmatch(text.strip()):
        return None
    try:
        return to_millis(parse_time(text.strip()))
    except (ValueError, OverflowError):
        return None


def is_unreadable(text: str | None) -> bool:
    """Whether a text stands where a time should, and is none."""
    return text is not None and instant(text) is None


def is_due(text: str | None, now: datetime) -> bool:
    """Whether the time has come. What is no time has come: otherwise its message would wait for ever."""
    moment = instant(text)
    return moment is None or moment <= now
