"""Answers that hold while nobody changes a mailbox: a call that found nothing to do need not open the files again.

The same bytes give the same answer, until something in them falls due. An answer is noted with the stamps of both
files, and holds while they are the same. Now and then a call looks all the same, whatever the stamps say.
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

#: How often an answer is given before the files are opened all the same.
MOST_ANSWERS = 20
#: And for how many seconds: where a stat tells each change, and where it may be old.
MOST_SECONDS, MOST_SECONDS_COUNTED = 1200.0, 60.0
#: How many answers are noted of one mailbox.
_MOST_NOTES = 16


class Horizon:
    """The first of the moments ahead that a look has met: until then the same rows give the same answer."""

    def __init__(self) -> None:
        self.until: datetime | None = None

    def meet(self, text: str | None, now: datetime) -> None:
        """Note a stored time, if it lies ahead."""
        moment = instant(text)
        if moment is not None and moment > now and (self.until is None or moment < self.until):
            self.until = moment


class _Note:
    """An answer, and what it holds for."""

    def __init__(self, answer: Any, stamps: tuple[Stamp, ...], since: datetime | None, until: datetime | None) -> None:
        self.answer = answer
        self.left = MOST_ANSWERS
        self._stamps = stamps
        self._since = since
        self._until = until
        most = MOST_SECONDS_COUNTED if any(stamp.counter for stamp in stamps) else MOST_SECONDS
        self._end = time.monotonic() + most

    def holds(self, stamps: tuple[Stamp, ...] | None, now: datetime | None) -> bool:
        """True if the files are what they were, and nothing has fallen due."""
        if self.left <= 0 or stamps != self._stamps or time.monotonic() >= self._end:
            return False
        if now is None or self._since is None:
            return True
        return self._since <= now and (self._until is None or now < self._until)


class Idle:
    """The answers of one mailbox. One that has no place notes none."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self._folder = None if place is None else place.path
        self._notes: dict[Hashable, _Note] = {}

    def look(self, key: Hashable, now: datetime | None = None) -> Look:
        """Return what is known about a question at this moment; without one, what no time changes."""
        return Look(self, key, now)

    def _stamps(self) -> tuple[Stamp, ...] | None:
        return None if self._folder is None else unchanged.stamps_of(self._folder, (INBOUND_DB, OUTBOUND_DB))


class Look:
    """One look at a mailbox. ``answer`` is what an earlier look kept, None where the files must be asked."""

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
        """Note what the files have answered, unless they may have changed since this look began."""
        before = self._stamps
        if before is None or not unchanged.are_settled(before, self._at) or self._idle._stamps() != before:
            return
        notes = self._idle._notes
        if len(notes) >= _MOST_NOTES and self._key not in notes:
            notes.clear()
        notes[self._key] = _Note(answer, before, self._now, until)
