"""Series of recurring messages: when one occurrence is settled, the next one is stored in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

from lastlight_state.clock import iso_text
from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData, InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.mailbox import schedule
from lastlight_state.mailbox.host import statements as sql
from lastlight_state.mailbox.kernel import numbers
from lastlight_state.mailbox.kernel.pair import Pair
from lastlight_state.mailbox.times import instant

#: ``none``: the series has ended, or has its next occurrence already.
Followed: TypeAlias = Literal["stored", "none", "unreadable"]

_KEPT = "kind content channel_type platform_id thread_id recurrence timezone trigger series_id".split()


def follow(unit: Unit, pair: Pair, settled: Mapping[str, Any], now: datetime, *, paused: bool = False) -> Followed:
    """Store the next occurrence after a settled one, paused if that was. Its periods that were missed are passed over.

    A series whose pattern, zone or content cannot be read stays as it is, to be reported again.
    """
    if settled["recurrence"] is None:
        return "none"
    zone = settled["timezone"] or pair.settings.mailbox_timezone
    last = instant(settled["process_after"])
    try:
        at = schedule.next_occurrence(settled["recurrence"], zone, now=now, last=last)
        kept = unit.row(sql.GET, {"id": settled["id"]}) or {}
    except (InvalidValue, CorruptData):
        return "unreadable"
    series = settled["series_id"] or settled["id"]
    stored = at is not None and _store(unit, pair, {**kept, "series_id": series}, now, at, paused=paused)
    unit.change(sql.STOP_RECURRING, {"series_id": series})
    return "stored" if stored else "none"


def _store(unit: Unit, pair: Pair, settled: Mapping[str, Any], now: datetime, at: datetime, *, paused: bool) -> bool:
    """Whether there was no live occurrence, so that one was stored."""
    live = unit.row(sql.LIVE_OF_SERIES, {"series_id": settled["series_id"]})
    if live is not None:
        return False
    prefix = "task" if settled["kind"] == "task" else "msg"
    row = {
        **new_row(),
        **{name: settled[name] for name in _KEPT},
        "id": f"{prefix}-{new_id()}",
        "seq": numbers.next_number(unit, pair),
        "timestamp": iso_text(now),
        "status": "paused" if paused else "pending",
        "process_after": iso_text(at),
    }
    return unit.row(sql.INSERT, row) is not None


def new_row() -> dict[str, Any]:
    """The columns of a fresh message that nobody has touched."""
    nothing = "source_session_id platform_message_id released_at settled_at outcome error tries_base timezone".split()
    return {**dict.fromkeys(nothing), "tries": 0, "on_wake": 0, "status": "pending"}
