"""Operators' actions on runs that take several steps, shared by the command line and the inspector."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from lastlight_state.errors import Conflict
from lastlight_state.workflows.arguments import Claim

if TYPE_CHECKING:
    from lastlight_state.workflows.claims import Claims

#: The lease of the claim with which an operator takes a run away; it is needed for one call only.
_LEASE = timedelta(seconds=30)


def take_away(claims: Claims[Any], run_id: str, *, by: str, now: datetime) -> None:
    """Take a run away from its holder and release it. Later writes of the holder are refused. This costs no restart.

    Raises `Conflict` ``not_held`` if nobody holds the run.
    """
    holder = claims.find(run_id)
    if holder is None:
        raise Conflict(f"run {run_id}: no worker holds it", code="not_held")
    theirs = Claim(
        run_id=run_id, owner=holder.owner, epoch=holder.epoch, lease=_LEASE, taken_at=now, lease_expires_at=now
    )
    claims.release(claims.transfer(theirs, owner=by))
