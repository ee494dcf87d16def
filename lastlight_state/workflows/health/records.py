"""The records of `health`."""

from __future__ import annotations

from datetime import datetime

from lastlight_state.db.records import Record
from lastlight_state.workflows.arguments import NodeRef


class Blocked(Record):
    """What a run waits for.

    ``kind`` is ``approval`` or ``human_request`` (``id``, ``node`` and ``label`` are those of the first of ``count``
    pending ones), ``timer`` (see ``until``), ``signal`` (``id`` is its name, ``label`` the correlation id),
    ``operator``, ``queue``, ``workflow_disabled`` (``id`` is the workflow), or ``worker``: nobody drives the run, and
    ``id`` is its last owner.
    """

    kind: str
    id: str | None = None
    node: NodeRef | None = None
    label: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    count: int = 1


class RunState(Record):
    """The state of a run at ``computed_at``: its stored ``status``, and what that means at this moment.

    ``state`` of an ended run is its status; of a queued run ``queued`` or ``delayed``; of a paused run
    ``waiting_approval``, ``waiting_person``, ``waiting_timer``, ``waiting_signal`` or ``paused``; of a running run
    ``running``, ``offered`` (any worker may take it), ``stopping`` (a cancel was requested), ``stale`` (its owner is
    silent), ``busy`` (its lease is over, but its owner is alive) or ``orphaned`` (never claimed). It is ``unknown`` for
    a status of a newer version. ``unhealthy`` lists what is wrong; it is empty for a healthy run.
    """

    status: str
    state: str
    blocked: Blocked | None
    unhealthy: tuple[str, ...]
    computed_at: datetime


class UnhealthyRun(Record):
    """A live run that has a problem."""

    id: str
    workflow_name: str
    trigger_id: str
    started_at: datetime
    state: RunState
