"""Times in the files, as text. Pure.

Others write them with or without a zone (then it is UTC), with a blank or a ``T``, to the second or finer. They are
compared as instants, never as text. The original compares some columns as text; those get the form it compares with.
"""

from __future__ import annotations

from datetime import datetime

from lastlight_state.clock import iso_text, spelled


def plain_text(moment: datetime) -> str:
    """``2026-02-03 12:34:56.789``, in UTC: the form that the original compares as text."""
    return iso_text(moment)[:-1].replace("T", " ")


def instant(text: str | None) -> datetime | None:
    """The instant of a text, in UTC. None for None, and for what is no time."""
    return spelled(text.strip()) if isinstance(text, str) else None


def is_unreadable(text: str | None) -> bool:
    """Whether a text stands where a time should, and is none."""
    return text is not None and instant(text) is None


def is_due(text: str | None, now: datetime) -> bool:
    """Whether the time has come. What is no time has come: otherwise its message would wait for ever."""
    moment = instant(text)
    return moment is None or moment <= now
