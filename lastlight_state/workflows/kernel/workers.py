"""Which workers were seen lately, and why none of them takes a run.

A worker is a row that it renews while it looks for work (`WorkflowWorkerModel`). A run may also be driven by a program
that takes claims itself and is no such row: it shows by the runs that it holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypedDict

import sqlalchemy as sa

from lastlight_state.db.rows.statements import bind, constant, prepared
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows.kernel.claims import LEASE_END
from lastlight_state.workflows.kernel.rows import through_live_index
from lastlight_state.workflows.tables import RUNS, WORKERS

#: How long after its last look a worker counts as gone: three of its pauses between two looks.
PATIENCE = timedelta(seconds=90)
#: How long a run may be free to be taken before it waits for a worker.
WAITS_AFTER = timedelta(minutes=1)

#: Why no worker takes a run: none was seen that serves its workflow (`unserved`), or none of these drives its version;
#: programs that are no workers hold runs of the workflow; all slots are taken; or there are free ones.
Reason = Literal["unserved", "version", "programs", "slots", "free"]
#: Reasons that no passing of time mends.
UNSERVED: frozenset[str] = frozenset(("unserved", "version"))


class LivingRow(TypedDict):
    """A worker that was seen lately."""

    name: str
    slots: int
    workflow_names: Any
    app_versions: Any


class HeldRow(TypedDict):
    """How many runs of a workflow a worker holds; without a ``name`` those of all other programs."""

    workflow_name: str
    name: str | None
    held: int


_now = bind("at", WORKERS.c.expires_at)
_lives = WORKERS.c.expires_at >= _now

LIVING = prepared(
    sa.select(WORKERS.c.name, WORKERS.c.slots, WORKERS.c.workflow_names, WORKERS.c.app_versions).where(_lives),
    LivingRow,
)


def _held() -> sa.Select[Any]:
    running = through_live_index(sa.select(RUNS.c.workflow_name, RUNS.c.claim_owner)).where(
        RUNS.c.status == constant("running"), RUNS.c.claim_owner.is_not(None), bind("at", LEASE_END) <= LEASE_END
    )
    held = running.subquery("held")
    worker = sa.select(WORKERS.c.name).where(WORKERS.c.name == held.c.claim_owner, _lives).scalar_subquery()
    named = sa.select(held.c.workflow_name, worker.label("name")).subquery("named")
    return sa.select(named.c.workflow_name, named.c.name, sa.func.count().label("held")).group_by(
        named.c.workflow_name, named.c.name
    )


#: The runs that are held at this moment, by workflow and worker.
HELD = prepared(_held(), HeldRow)


class Shortage(NamedTuple):
    """Why no worker takes a run, as a word and as a sentence."""

    reason: Reason
    told: str


@dataclass(frozen=True)
class Workforce:
    """The workers that were seen lately, how many runs each holds, and how many of a workflow other programs hold."""

    living: Sequence[LivingRow]
    held: Counter[str]
    held_by_others: Counter[str]

    def shortage(self, workflow_name: str, app_version: str | None) -> Shortage:
        """Return why no worker takes a run of this workflow and version."""
        serving = [worker for worker in self.living if workflow_name in worker["workflow_names"]]
        if not serving:
            return self._unserved(workflow_name)
        fitting = [worker for worker in serving if _drives(worker, app_version)]
        if not fitting:
            return Shortage("version", f"no worker that serves {workflow_name!r} drives version {app_version!r}")
        slots = sum(worker["slots"] for worker in fitting)
        taken = sum(min(self.held[worker["name"]], worker["slots"]) for worker in fitting)
        if taken >= slots:
            return Shortage("slots", f"all slots of workers that serve {workflow_name!r} are taken ({slots})")
        return Shortage("free", f"slots of workers that serve {workflow_name!r} are free ({slots - taken} of {slots})")

    def _unserved(self, workflow_name: str) -> Shortage:
        """Return why no run of a workflow without a worker is taken. Programs that claim runs may serve it."""
        others, of = self.held_by_others[workflow_name], f" of {workflow_name!r}"
        if not others and not self.living:
            others, of = self.held_by_others.total(), ""
        if others:
            runs = f"{others} {'run' if others == 1 else 'runs'}{of}"
            return Shortage("programs", f"no worker for it was seen, and other programs hold {runs}")
        return Shortage("unserved", f"no worker that serves {workflow_name!r} was seen")


def _drives(worker: LivingRow, app_version: str | None) -> bool:
    """True if a worker drives runs of this version. One without a version is anybody's."""
    return app_version is None or worker["app_versions"] is None or app_version in worker["app_versions"]


def read_workforce(unit: Unit, now: datetime) -> Workforce:
    """Return the workers that were seen lately. Those that cannot be read are passed over."""
    living = unit.passing(unit.readable(LIVING, {"at": now}).rows)
    held, others = Counter[str](), Counter[str]()
    for row in unit.passing(unit.readable(HELD, {"at": now}).rows):
        if row["name"] is None:
            others[row["workflow_name"]] += row["held"]
        else:
            held[row["name"]] += row["held"]
    return Workforce(living, held, others)
