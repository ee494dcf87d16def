"""What is said about the health of runs."""

from __future__ import annotations

from datetime import datetime

from lastlight_state.db.records import Record
from lastlight_state.workflows.arguments import NodeRef


class Blocked(Record):
    """What a run waits for.

    ``kind`` is ``approval`` or ``human_request`` (``id``, ``node`` and its ``label`` of the earliest of ``count``
    pending ones), ``timer`` (until then), ``signal`` (``id`` is its name, ``label`` the correlation), ``operator``,
    ``queue``, ``workflow_disabled`` (``id`` is the workflow), or ``worker``: nobody drives it (``id`` is who did last).
    """

    kind: str
    id: str | None = None
    node: NodeRef | None = None
    label: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    count: int = 1


class RunState(Record):
    """How a run stands at ``computed_at``: its stored ``status``, and what that means at this moment.

    ``state`` of an ended run is its status. Of a queued one: ``queued`` or ``delayed``. Of a paused one:
    ``waiting_approval``, ``waiting_person``, ``waiting_timer``, ``waiting_signal`` or ``paused``. Of a running one:
    ``running``, ``offered`` (to any worker), ``stopping`` (asked to), ``stale`` (its owner is silent), ``busy`` (its
    lease is over, but its owner lives) or ``orphaned`` (never claimed). ``unknown`` for a status of a newer version.
    ``unhealthy`` holds words, none of a healthy run.
    """

    status: str
    state: str
    blocked: Blocked | None
    unhealthy: tuple[str, ...]
    computed_at: datetime


class UnhealthyRun(Record):
    """A live run with which something is wrong."""

    id: str
    workflow_name: str
    trigger_id: str
    started_at: datetime
    state: RunState
