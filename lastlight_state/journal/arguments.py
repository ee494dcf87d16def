"""Argument groups of the journal's calls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal


class _Any(Enum):
    ANY = "ANY"

    def __repr__(self) -> str:
        return "ANY"


#: A correlation id that was not asked for: any will do, and none as well.
ANY: Final = _Any.ANY
AnyType = Literal[_Any.ANY]


@dataclass(frozen=True)
class NewEvent:
    """An event to append. ``at`` is now unless given, for replays; ``event_id`` makes a repetition find the first."""

    type: str
    payload: dict[str, Any] | None = None
    at: datetime | None = None
    event_id: str | None = None
    node_id: str | None = None


@dataclass(frozen=True)
class EventFilter:
    """Which events: of any of these types (empty for all), of a node, from ``since`` on, before ``until``."""

    types: Collection[str] = ()
    node_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class SignalFilter:
    """Which signals: of a name, with a correlation id (None for those without one), received at or after a time."""

    signal_name: str | None = None
    correlation_id: str | AnyType | None = ANY
    received_after: datetime | None = None
