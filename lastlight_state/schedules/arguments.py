"""Argument groups: what a cron is, the right to run one of its fires, and how a fire ended.

What exceptions say, made into texts that can be stored. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state.db.records import Record
from lastlight_state.schedules.words import MESSAGE_CHARS, TYPE_CHARS, CatchUp, FireResult, Overlap, TargetKind

#: The end of a text that was longer.
CUT = " …[cut]"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def message_of(error: BaseException) -> str:
    """What the exception says, at most 4,000 characters of it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a job's exception may be unable to say anything
        text = "(an exception without a text)"
    return storable(text, MESSAGE_CHARS)


def storable(text: str, most: int) -> str:
    """The text, clipped and marked as such, without lone surrogates and control characters.

    Databases refuse some of these, and JSON spells the others in six bytes each.
    """
    kept = text if len(text) <= most else text[: most - len(CUT)] + CUT
    whole = kept.encode("utf-8", "replace").decode()
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole)


@dataclass(frozen=True)
class CronSpec:
    """What a cron starts, and when.

    ``payload`` is JSON of at most 64 KiB, handed to each fire. A fire is on time up to ``grace_seconds`` after its
    instant; ``catch_up`` says what becomes of later ones: ``one`` fire for all that is overdue, ``all`` of them, or
    ``none``. With ``overlap="skip"`` a fire is passed over while an earlier one runs.
    """

    pattern: str
    target: str
    target_kind: TargetKind = "workflow"
    timezone: str = "UTC"
    payload: Any = None
    catch_up: CatchUp = "one"
    grace_seconds: int = 60
    overlap: Overlap = "allow"
    enabled: bool = True


@dataclass(frozen=True)
class FireError:
    """Why a fire failed. All of it is at most 16 KiB as JSON; ``detail`` is any JSON."""

    message: str
    type: str | None = None
    detail: Any = None

    @classmethod
    def of(cls, error: BaseException, *, detail: Any = None) -> FireError:
        """The error that an exception is: its type's name, and at most 4,000 characters of its message.

        Whatever the exception says, this fits and can be stored: what a database would refuse is replaced.
        """
        return cls(message_of(error), storable(type(error).__name__, TYPE_CHARS), detail)


@dataclass(frozen=True)
class FireOutcome:
    """How a fire ended, and what it found: counts are None where they do not apply, 0 for looked and found none.

    A ``failed`` one needs an ``error``; a plain text is its message. ``note`` is one line of at most 1 KiB.
    """

    status: FireResult = "ok"
    eligible: int | None = None
    scanned: int | None = None
    discovered: int | None = None
    dispatched: int | None = None
    failures: int | None = None
    note: str | None = None
    error: FireError | str | None = None


class FireClaim(Record):
    """The right to run one fire: valid while its epoch is the fire's. Travels between processes as JSON.

    ``fire_id`` stays the same over all owners: it is the idempotency key for what the fire starts.
    """

    fire_id: str
    cron_name: str
    scheduled_for: datetime | None
    source: str
    target_kind: str | None
    target: str | None
    payload: Any
    owner: str
    epoch: int
    attempts: int
    lease_until: datetime
