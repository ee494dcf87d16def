"""List the runs that wait for a worker: free for more than a minute, and not taken by any worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from lastlight_state.clock import to_millis
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows.claims import lists
from lastlight_state.workflows.queue.statements import free_in_line
from lastlight_state.workflows.shared.workers import UNSERVED, WAITS_AFTER, Shortage, read_workforce
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.workers.records import WaitingWorkflow

#: The most running or due runs, and the most queued runs, that are counted.
MOST = 10_000


class FreeRun(NamedTuple):
    """A run that was free at a moment, and since when."""

    id: str
    workflow_name: str
    app_version: str | None
    since: datetime


class TakeableRun(NamedTuple):
    """A run that could be taken, with its last sign of life."""

    id: str
    workflow_name: str
    app_version: str | None
    since: datetime
    seen_at: datetime


#: Running and due runs that could have been taken at ``:at`` and were not changed since.
FREE = lists.Ranges(
    TakeableRun,
    lambda judged, _: (RUNS.c.id, RUNS.c.workflow_name, RUNS.c.app_version, judged.free_since),
    lambda judged: sa.and_(judged.takeable, RUNS.c.updated_at <= bind("at", RUNS.c.updated_at)),
)
_queued_since = sa.func.coalesce(RUNS.c.wake_at, RUNS.c.queued_at, type_=RUNS.c.queued_at.type).label("since")
#: The runs that could have been admitted at the moment ``:at``, whatever the caps.
QUEUED = statement_of(free_in_line((RUNS.c.id, RUNS.c.workflow_name, RUNS.c.app_version, _queued_since)), FreeRun)


def waiting_workflows(unit: Unit, now: datetime) -> tuple[WaitingWorkflow, ...]:
    """Return the workflows whose runs wait for a worker, the longest wait first."""
    found: dict[tuple[str, str], WaitingWorkflow] = {}
    for row, short in _waiting_runs(unit, now):
        key = row.workflow_name, short.told
        first = found.get(key)
        older = first is None or row.since < first.since
        found[key] = WaitingWorkflow(
            workflow_name=row.workflow_name,
            reason=short.reason,
            why=short.told,
            runs=1 if first is None else first.runs + 1,
            since=row.since if first is None or older else first.since,
            run_id=row.id if first is None or older else first.run_id,
        )
    return tuple(sorted(found.values(), key=lambda one: (one.since, one.workflow_name)))


def _waiting_runs(unit: Unit, now: datetime) -> Iterator[tuple[FreeRun | TakeableRun, Shortage]]:
    moment = lists.moment(to_millis(now - WAITS_AFTER))
    statement, given = FREE.of({"workflow_name": None}, False, MOST)
    free = unit.without_damaged(unit.rows_or_errors(statement, {**moment, **given}).rows)
    queued = unit.without_damaged(unit.rows_or_errors(QUEUED, {**moment, "limit": MOST}).rows)
    if not free and not queued:
        return
    force = read_workforce(unit, now)
    for row in free:
        yield row, force.shortage(row.workflow_name, row.app_version)
    for place in queued:
        short = force.shortage(place.workflow_name, place.app_version)
        if short.reason in UNSERVED:  # with a worker, it waits for a place
            yield place, short
