"""What callers of this domain get."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.db.records import Record


class Appended(Record):
    """The number of an event, and whether this call stored it: False for one that was there already."""

    seq: int
    created: bool
    event_id: str | None
    occurred_at: datetime


class Event(Record):
    """Something that happened in a run. ``seq`` starts at 0 and has no gaps within the run."""

    run_id: str
    seq: int
    type: str
    occurred_at: datetime
    node_id: str | None
    event_id: str | None
    payload: dict[str, Any]


class SignalSent(Record):
    """The number of a signal, and whether this call stored it: False for one that was there already."""

    seq: int
    created: bool
    signal_id: str | None
    received_at: datetime


class Signal(Record):
    """A message that was sent into a run, and who took it. ``seq`` starts at 0 and has no gaps within the run."""

    run_id: str
    seq: int
    signal_name: str
    correlation_id: str | None
    received_at: datetime
    received_by: str | None
    signal_id: str | None
    consumed_at: datetime | None
    consumed_by: str | None
    payload: Any
