"""What `claims` accepts, checked before any statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.clock import to_millis
from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim

LONGEST = timedelta(days=366)
_SHORTEST_LEASE = timedelta(milliseconds=1)


def duration(where: str, value: Any, *, least: timedelta = timedelta(0)) -> timedelta:
    """A `timedelta` of at most 366 days."""
    if not isinstance(value, timedelta):
        raise InvalidValue(where, f"a timedelta is needed, not {type(value).__name__}")
    if not least <= value <= LONGEST:
        raise InvalidValue(where, f"{value} is not between {least} and {LONGEST}", least=least, most=LONGEST)
    return value


def holding(now: datetime, owner: str, lease: timedelta) -> dict[str, Any]:
    """The parameters of a claim that begins now."""
    return {
        "at": now,
        "claim_owner": valid.identifier("owner", owner, words.CLAIM_OWNER),
        "lease_expires_at": lease_end(now, lease),
    }


def lease_end(now: datetime, lease: timedelta) -> datetime:
    """When a lease of this length ends that begins now."""
    return to_millis(now + duration("lease", lease, least=_SHORTEST_LEASE))


def retry_at(now: datetime, retry_after: timedelta | None) -> datetime | None:
    """When a run that is given back may be taken again, None for at once."""
    return None if retry_after is None else to_millis(now + duration("retry_after", retry_after))


def epoch(where: str, value: int | None) -> int | None:
    """An epoch, or None."""
    return None if value is None else valid.number(where, value)


def claim(value: Any) -> Claim:
    """A `Claim`."""
    return valid.group("claim", value, Claim)


def claims(values: Sequence[Claim]) -> dict[str, Claim]:
    """Claims by their runs. Of two for one run the newer counts."""
    given = sorted(map(claim, valid.several("claims", values)), key=lambda each: each.epoch)
    return {each.run_id: each for each in given}


def presented(held: Claim, now: datetime) -> dict[str, Any]:
    """The parameters of a claim that is presented, and of its lease renewed from now."""
    return {
        "run_id": held.run_id,
        "epoch": held.epoch,
        "at": now,
        "lease_expires_at": lease_end(now, held.lease),
    }
