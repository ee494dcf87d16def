"""The records of `claims`, besides `Claim` itself."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self, TypedDict

from lastlight_state.db.records import Record
from lastlight_state.workflows.arguments import Provenance


class ClaimableRun(Record):
    """A run that may be taken. ``seen_at`` is its last sign of life, ``last_owner`` its last holder, if it had any.

    Taking an abandoned run uses one of ``restarts_left``. With none left it is ``at_limit``: then only `Claims.give_up`
    or a higher limit helps. With ``cancel_requested`` a take uses none: whoever takes it cancels it.
    """

    run_id: str
    workflow_name: str
    kind: Literal["offered", "abandoned", "due"]
    epoch: int
    last_owner: str | None
    heartbeat_at: datetime | None
    seen_at: datetime
    restart_count: int
    restarts_left: int
    at_limit: bool
    cancel_requested: bool
    provenance: Provenance


class ClaimHolderRow(TypedDict):
    """What a `ClaimHolder` is made of."""

    run_id: str
    owner: str
    epoch: int
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None


class ClaimHolder(Record):
    """Who holds a run, since when, and until when without another heartbeat. For display; it does not permit writes."""

    run_id: str
    owner: str
    epoch: int
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None

    @classmethod
    def of(cls, values: ClaimHolderRow) -> Self:
        return super().of(values)
