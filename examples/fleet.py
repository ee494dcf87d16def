"""A fleet over one database: workers that are killed at random, a cron, people who approve and cancel.

python examples/fleet.py [URL]

Every run ends, each of its phases is done once, and each fire of the cron makes one run, however many workers die.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

from lastlight_state import StateStore, iterate
from lastlight_state.errors import ClaimLost, Conflict
from lastlight_state.schedules import CronSpec, FireClaim, FireOutcome
from lastlight_state.workflows import Claim, Gate, RunOptions, Trigger, Workflows

WORKFLOW, TICKS = "fleet", "fleet-ticks"
OURS = [WORKFLOW]
PHASES = ("plan", "build", "ship")
LEASE = timedelta(seconds=1)
#: How many runs go on at a time.
CAP = 8
#: How long all of it may take, in seconds.
LIMIT = 900


@dataclass(frozen=True)
class Size:
    """How much happens: every tenth run is cancelled by a person, and a worker is killed every ``kill_every`` seconds.

    ``ticks`` is how many runs the cron makes.
    """

    runs: int = 60
    workers: int = 3
    kills: int = 200
    kill_every: float = 0.7
    phase_seconds: float = 0.2
    ticks: int = 5


# ---- A worker ------------------------------------------------------------------------------------------------------


def work(url: str, phase_seconds: float) -> None:
    """Take runs and fires of ours and drive them, until somebody kills this process."""
    owner = f"worker-{os.getpid()}"
    with StateStore.open(url, migrate=False) as store:
        while True:
            fires = store.schedules.crons.take_due(owner=owner, lease=LEASE, names=[TICKS], limit=1)
            for fire in fires or store.schedules.fires.take_stale(owner=owner, names=[TICKS], max_attempts=1_000):
                with suppress(ClaimLost):
                    tick(store, fire)
            flows = store.workflows
            claims = flows.claims.take_next(owner=owner, lease=LEASE, workflow_names=OURS)
            claims = claims or flows.queue.admit_next(cap=CAP, owner=owner, lease=LEASE, workflow_names=OURS)
            for claim in claims:
                with suppress(ClaimLost):
                    drive(store, claim, phase_seconds)
            if not claims:  # for runs to take or to admit, and a moment at most, because of the cron
                flows.queue.wait(cap=CAP, timeout=0.2, workflow_names=OURS, claimable=True)


def tick(store: StateStore, fire: FireClaim) -> None:
    """What the cron does: make a run. Its key is the fire, so a worker that takes the fire over makes no second one."""
    with store.transaction(label="tick") as tx:
        trigger = Trigger(TICKS, type="cron")
        tx.workflows.runs.ensure(fire.fire_id, WORKFLOW, trigger=trigger, phase=PHASES[0], options=OPTIONS)
        tx.schedules.fires.finish(fire, FireOutcome(dispatched=1))


def drive(store: StateStore, claim: Claim, phase_seconds: float) -> None:
    """Go on with a run where its last holder stopped. When the block ends, the run is given back unless it ended."""
    with store.workflows.claims.driving(claim) as driven:
        flows = driven.workflows
        if claim.left_in_flight:
            flows.executions.interrupt(claim.run_id, reason="its worker is gone")
        for phase in PHASES[flows.runs.get(claim.run_id).phase_count :]:
            if driven.cancel_requested or driven.lost:
                break
            if phase == "ship" and not approved(flows, claim.run_id):
                flows.approvals.pause(claim.run_id, Gate("ship", "Ship it?"))
                return
            execution = flows.executions.start(f"{WORKFLOW}:{phase}", run_id=claim.run_id)
            time.sleep(phase_seconds)
            flows.executions.finish_phase(execution.id, scratch={phase: execution.id})
        flows.runs.finish(claim.run_id, "cancelled" if driven.cancel_requested else "succeeded")


def approved(flows: Workflows, run_id: str) -> bool:
    """Whether somebody has approved the run's gate."""
    gate = flows.approvals.find(run_id, "ship")
    return gate is not None and gate.status == "approved"


# ---- The supervisor, and the people --------------------------------------------------------------------------------


#: Runs wait in the queue, and may be restarted as often as workers die here.
OPTIONS = RunOptions(status="queued", max_restarts=100)


def supervise(url: str, size: Size, chance: random.Random) -> int:
    """Make the runs, keep the workers running, kill some, answer and sweep until all runs have ended.

    Returns how many workers were killed.
    """
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["lastlight_state.store", "lastlight_state.workflows", "lastlight_state.schedules"]
    )
    workers: list[BaseProcess] = []
    killed, next_kill, end = 0, time.monotonic() + size.kill_every, time.monotonic() + LIMIT
    try:
        with StateStore.open(url) as store:
            start(store, size)
            while not ended(store, size):
                workers = [worker for worker in workers if worker.is_alive()]
                while len(workers) < size.workers:
                    workers.append(processes.Process(target=work, args=(url, size.phase_seconds), daemon=True))
                    workers[-1].start()
                if killed < size.kills and time.monotonic() > next_kill:
                    kill(workers.pop(chance.randrange(len(workers))))
                    killed, next_kill = killed + 1, time.monotonic() + size.kill_every
                if time.monotonic() > end:
                    raise TimeoutError(f"the fleet is not ready after {LIMIT} seconds")
                answer(store)
                cancel(store)
                store.workflows.claims.give_up(workflow_names=OURS)
                time.sleep(0.05)
    finally:
        for worker in workers:
            kill(worker)
    return killed


def start(store: StateStore, size: Size) -> None:
    """The runs and the cron."""
    for number in range(size.runs):
        trigger = Trigger("fleet", type="cli", issue_number=number)
        store.workflows.runs.create(WORKFLOW, trigger=trigger, phase=PHASES[0], options=OPTIONS)
    if size.ticks:
        store.schedules.crons.put(TICKS, CronSpec("* * * * * *", target=WORKFLOW, overlap="skip"))


def answer(store: StateStore) -> None:
    """Approve what waits."""
    for gate in iterate(store.workflows.approvals.list_pending):
        if gate.workflow_name == WORKFLOW:
            with suppress(Conflict):
                store.workflows.approvals.answer(gate.id, "approved", by="ana")


def cancel(store: StateStore) -> None:
    """Ask to cancel every tenth run once it has begun."""
    for run in iterate(store.workflows.runs.list, workflow_names=OURS, statuses=["running", "paused"]):
        if run.issue_number is not None and run.issue_number % 10 == 3 and run.cancel_requested_at is None:
            with suppress(Conflict):
                store.workflows.runs.request_cancel(run.id, by="ana", reason="not this one")


def ended(store: StateStore, size: Size) -> bool:
    """Whether the cron has made its runs and all runs have ended. The cron is retired after enough of them."""
    runs = store.workflows.runs
    made = sum(1 for _ in iterate(runs.list, workflow_names=OURS, limit=500)) - size.runs
    if size.ticks and made >= size.ticks and store.schedules.crons.get(TICKS).retired_at is None:
        store.schedules.crons.retire(TICKS)
    firing = size.ticks and (made < size.ticks or store.schedules.fires.list(cron_name=TICKS, status="running").items)
    return not firing and not runs.list(workflow_names=OURS, statuses=["queued", "running", "paused"], limit=1).items


def kill(worker: BaseProcess) -> None:
    """End a worker as a crash would."""
    worker.kill()
    worker.join()


def main() -> None:
    """Run the fleet on the URL that is given, or on a file."""
    with TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else str(Path(folder) / "fleet.db")
        killed = supervise(url, Size(runs=20, kills=20), random.Random())  # noqa: S311 - not for secrets
        with StateStore.open(url) as store:
            found = [run.status for run in iterate(store.workflows.runs.list, workflow_names=OURS)]
    print(f"{killed} workers killed; runs:", {status: found.count(status) for status in sorted(set(found))})


if __name__ == "__main__":
    main()
