"""Cached answers for an unchanged mailbox: a call that found nothing to do need not open the files again.

The same bytes give the same answer, until a stored time is reached. An answer is cached with the stamps of both files,
and is valid while they are the same. From time to time a call reads the files even if the stamps are the same.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from datetime import datetime
from typing import Any

from lastlight_state import clock
from lastlight_state.backends.sqlite import unchanged
from lastlight_state.backends.sqlite.unchanged import Stamp
from lastlight_state.files.mailbox.folder import INBOUND_DB, OUTBOUND_DB, Place
from lastlight_state.files.mailbox.models import instant

#: How often an answer is reused before the files are opened again.
MOST_ANSWERS = 20
#: For how many seconds it is reused: if a stat shows each change, and if it may be outdated.
MOST_SECONDS, MOST_SECONDS_COUNTED = 1200.0, 60.0
#: The most cached answers of one mailbox.
_MOST_NOTES = 16


class Horizon:
    """The earliest future time that was found while reading. Until then, the same rows give the same answer."""

    def __init__(self) -> None:
        self.until: datetime | None = None

    def meet(self, text: str | None, now: datetime) -> None:
        """Record a stored time, if the time is in the future."""
        moment = instant(text)
        if moment is not None and moment > now and (self.until is None or moment < self.until):
            self.until = moment


class _Note:
    """A cached answer, and the conditions under which it is valid."""

    def __init__(self, answer: Any, stamps: tuple[Stamp, ...], since: datetime | None, until: datetime | None) -> None:
        self.answer = answer
        self.left = MOST_ANSWERS
        self._stamps = stamps
        self._since = since
        self._until = until
        most = MOST_SECONDS_COUNTED if any(stamp.counter for stamp in stamps) else MOST_SECONDS
        self._end = time.monotonic() + most

    def holds(self, stamps: tuple[Stamp, ...] | None, now: datetime | None) -> bool:
        """True if the files are unchanged, and no recorded time has been reached."""
        if self.left <= 0 or stamps != self._stamps or time.monotonic() >= self._end:
            return False
        if now is None or self._since is None:
            return True
        return self._since <= now and (self._until is None or now < self._until)


class Idle:
    """The cached answers of one mailbox. Without a place, nothing is cached."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self._folder = None if place is None else place.path
        self._notes: dict[Hashable, _Note] = {}

    def look(self, key: Hashable, now: datetime | None = None) -> Look:
        """Return a cache lookup for this key at this moment.

        Omit the moment for answers that do not depend on the time.
        """
        return Look(self, key, now)

    def _stamps(self) -> tuple[Stamp, ...] | None:
        return None if self._folder is None else unchanged.stamps_of(self._folder, (INBOUND_DB, OUTBOUND_DB))


class Look:
    """One lookup in a mailbox's cache. ``answer`` is the cached answer, or None if the files must be read."""

    def __init__(self, idle: Idle, key: Hashable, now: datetime | None) -> None:
        self._idle = idle
        self._key = key
        self._now = now
        self._at = clock.nanoseconds()
        self._stamps = idle._stamps()
        self.answer: Any = None
        note = idle._notes.get(key)
        if note is not None and note.holds(self._stamps, now):
            note.left -= 1
            self.answer = note.answer

    def keep(self, answer: Any, until: datetime | None = None) -> None:
        """Cache the answer that was read from the files, unless they may have changed since this lookup began."""
        before = self._stamps
        if before is None or not unchanged.are_settled(before, self._at) or self._idle._stamps() != before:
            return
        notes = self._idle._notes
        if len(notes) >= _MOST_NOTES and self._key not in notes:
            notes.clear()
        notes[self._key] = _Note(answer, before, self._now, until)
