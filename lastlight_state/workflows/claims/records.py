"""What `claims` gives besides claims: runs that may be taken, and who holds one."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from lastlight_state.db.records import Record
from lastlight_state.workflows.arguments import Provenance


class ClaimableRun(Record):
    """A run that may be taken. ``seen_at`` is its last sign of life; ``last_owner`` held it then, if anybody did.

    To take an abandoned run costs one of the ``restarts_left``; with none left it is ``at_limit``, and only
    `Claims.give_up` or a higher limit moves it.
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
    provenance: Provenance


class ClaimHolder(Record):
    """Who holds a run, since when, and until when without another heartbeat. For display; it entitles to nothing."""

    run_id: str
    owner: str
    epoch: int
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
