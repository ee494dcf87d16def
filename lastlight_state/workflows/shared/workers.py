"""Read the workers that reported recently, and explain why none of them takes a run.

A worker has a row that it renews while it looks for work (`WorkflowWorkerModel`). A program that takes claims itself
may also drive runs without such a row. Only the runs that it holds show that it exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from lastlight_state.db.rows.statements import Statement, bind, constant, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows.shared.claims import LEASE_END
from lastlight_state.workflows.shared.run_rows import through_live_index
from lastlight_state.workflows.tables import RUNS, WORKERS

#: The time after its last look for work at which a worker counts as gone: three intervals between its looks.
PATIENCE = timedelta(seconds=90)
#: The time that a run may be free to take before it counts as waiting for a worker.
WAITS_AFTER = timedelta(minutes=1)

#: The reasons why no worker takes a run. ``unserved``: no worker was seen that serves its workflow. ``version``: no
#: worker of its workflow drives its version. ``programs``: other programs hold runs of the workflow. ``slots``: all
#: slots are taken. ``free``: there are free slots.
Reason = Literal["unserved", "version", "programs", "slots", "free"]
#: The reasons that do not end by waiting.
UNSERVED: frozenset[str] = frozenset(("unserved", "version"))


class LivingWorker(NamedTuple):
    """A worker that was seen lately."""

    name: str
    slots: int
    workflow_names: Any
    app_versions: Any


_now = bind("at", WORKERS.c.expires_at)
_lives = WORKERS.c.expires_at >= _now

LIVING = statement_of(
    sa.select(WORKERS.c.name, WORKERS.c.slots, WORKERS.c.workflow_names, WORKERS.c.app_versions).where(_lives),
    LivingWorker,
)


def _held_counts() -> sa.Select[Any]:
    running = through_live_index(sa.select(RUNS.c.workflow_name, RUNS.c.claim_owner)).where(
        RUNS.c.status == constant("running"), RUNS.c.claim_owner.is_not(None), bind("at", LEASE_END) <= LEASE_END
    )
    held = running.subquery("held")
    worker = sa.select(WORKERS.c.name).where(WORKERS.c.name == held.c.claim_owner, _lives).scalar_subquery()
    named = sa.select(held.c.workflow_name, worker.label("name")).subquery("named")
    return sa.select(named.c.workflow_name, named.c.name, sa.func.count().label("held")).group_by(
        named.c.workflow_name, named.c.name
    )


#: How many runs are held at this moment, by workflow and worker; without a worker those that all other programs hold.
HELD: Statement[tuple[str, str | None, int]] = statement_of(_held_counts(), tuple)


class Shortage(NamedTuple):
    """The reason why no worker takes a run, as a code and as a sentence."""

    reason: Reason
    told: str


@dataclass(frozen=True)
class Workforce:
    """The workers that reported recently, and how many runs they hold.

    For each workflow, it also has the number of runs that others hold.
    """

    living: Sequence[LivingWorker]
    held: Counter[str]
    held_by_others: Counter[str]

    def shortage(self, workflow_name: str, app_version: str | None) -> Shortage:
        """Return why no worker takes a run of this workflow and version."""
        serving = [worker for worker in self.living if workflow_name in worker.workflow_names]
        if not serving:
            return self._unserved_shortage(workflow_name)
        fitting = [worker for worker in serving if _drives(worker, app_version)]
        if not fitting:
            return Shortage("version", f"no worker that serves {workflow_name!r} drives version {app_version!r}")
        slots = sum(worker.slots for worker in fitting)
        taken = sum(min(self.held[worker.name], worker.slots) for worker in fitting)
        if taken >= slots:
            return Shortage("slots", f"all slots of workers that serve {workflow_name!r} are taken ({slots})")
        return Shortage("free", f"slots of workers that serve {workflow_name!r} are free ({slots - taken} of {slots})")

    def _unserved_shortage(self, workflow_name: str) -> Shortage:
        """Return the reason for a workflow that no worker serves.

        Programs that claim runs without reporting as workers may serve it.
        """
        others, of = self.held_by_others[workflow_name], f" of {workflow_name!r}"
        if not others and not self.living:
            others, of = self.held_by_others.total(), ""
        if others:
            runs = f"{others} {'run' if others == 1 else 'runs'}{of}"
            return Shortage("programs", f"no worker for it was seen, and other programs hold {runs}")
        return Shortage("unserved", f"no worker that serves {workflow_name!r} was seen")


def _drives(worker: LivingWorker, app_version: str | None) -> bool:
    """True if a worker drives runs of this version. One without a version is anybody's."""
    return app_version is None or worker.app_versions is None or app_version in worker.app_versions


def read_workforce(unit: Unit, now: datetime) -> Workforce:
    """Return the workers that reported recently and the number of runs they hold. Skips rows that cannot be read."""
    living = unit.without_damaged(unit.rows_or_errors(LIVING, {"at": now}).rows)
    held, others = Counter[str](), Counter[str]()
    for workflow_name, name, count in unit.without_damaged(unit.rows_or_errors(HELD, {"at": now}).rows):
        if name is None:
            others[workflow_name] += count
        else:
            held[name] += count
    return Workforce(living, held, others)
