"""Series of recurring messages: when one occurrence is settled, the next one is stored in the same transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias, TypedDict

from lastlight_state import cron
from lastlight_state.clock import iso_text
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData, InvalidValue
from lastlight_state.files.mailbox.host import statements as sql
from lastlight_state.files.mailbox.models import instant
from lastlight_state.files.mailbox.projections import Head
from lastlight_state.files.mailbox.shared import pruning
from lastlight_state.files.mailbox.shared.pair import Pair
from lastlight_state.ids import new_id

# The next occurrence of a series.


def next_occurrence(recurrence: str, timezone: str, *, now: datetime, last: datetime | None) -> datetime | None:
    """Return the next match of a pattern after both now and the last occurrence, or None if there is none.

    Missed occurrences are skipped. Raises `InvalidValue` for a pattern or zone that cannot be parsed.
    """
    return cron.next_after(recurrence, timezone, now if last is None else max(now, last))


#: ``none``: the series has ended, or its next occurrence exists already.
Followed: TypeAlias = Literal["stored", "none", "unreadable"]


class FreshColumns(TypedDict):
    """The columns of a new message."""

    source_session_id: str | None
    platform_message_id: str | None
    released_at: str | None
    settled_at: str | None
    outcome: str | None
    error: str | None
    tries: int | None
    tries_base: int | None
    on_wake: int
    status: str | None


def follow(unit: Unit, pair: Pair, settled: Head, now: datetime, *, paused: bool = False) -> Followed:
    """Store the next occurrence after a settled one, paused if that was. Its periods that were missed are passed over.

    A series whose pattern, zone or content cannot be read stays unchanged, and is reported again by later calls.
    """
    if settled.recurrence is None:
        return "none"
    zone = settled.timezone or pair.settings.mailbox_timezone
    last = instant(settled.process_after)
    try:
        at = next_occurrence(settled.recurrence, zone, now=now, last=last)
        [kept] = unit.rows(sql.GET_ROW, {"id": settled.id})
    except (InvalidValue, CorruptData):
        return "unreadable"
    series = settled.series_id or settled.id
    stored = at is not None and _store(unit, pair, {**kept, "series_id": series}, now, at, paused=paused)
    unit.change(sql.STOP_RECURRING, {"series_id": series})
    return "stored" if stored else "none"


def _store(unit: Unit, pair: Pair, settled: Row, now: datetime, at: datetime, *, paused: bool) -> bool:
    """Return whether there was no live occurrence, so that one was stored."""
    live = unit.row(sql.LIVE_OF_SERIES, {"series_id": settled["series_id"]})
    if live is not None:
        return False
    prefix = "task" if settled["kind"] == "task" else "msg"
    row: Row = {
        **new_row(),
        "kind": settled["kind"],
        "content": settled["content"],
        "channel_type": settled["channel_type"],
        "platform_id": settled["platform_id"],
        "thread_id": settled["thread_id"],
        "recurrence": settled["recurrence"],
        "timezone": settled["timezone"],
        "trigger": settled["trigger"],
        "series_id": settled["series_id"],
        "id": f"{prefix}-{new_id()}",
        "seq": pruning.next_number(unit, pair),
        "timestamp": iso_text(now),
        "status": "paused" if paused else "pending",
        "process_after": iso_text(at),
    }
    return unit.row(sql.INSERT, row) is not None


def new_row() -> FreshColumns:
    """Return the columns of a new message, as initially stored."""
    return {
        "source_session_id": None,
        "platform_message_id": None,
        "released_at": None,
        "settled_at": None,
        "outcome": None,
        "error": None,
        "tries": 0,
        "tries_base": None,
        "on_wake": 0,
        "status": "pending",
    }
