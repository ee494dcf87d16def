"""Crons of a worker's workflows. Each due time creates one run; the first worker to notice creates it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lastlight_state.errors import BackendError, ClaimLost, StateError
from lastlight_state.schedules import FireError, FireOutcome
from lastlight_state.worker.calls import Entered, result_of
from lastlight_state.worker.definitions import NO_CAP
from lastlight_state.workflows import RunOptions, Trigger

if TYPE_CHECKING:
    from lastlight_state.schedules import FireClaim

#: The first phase of a run that a cron created.
_PHASE = "start"


class CronLoop:
    """Stores the crons of a worker (a `Registry`) once when it starts, and creates the runs that are due."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._is_put = False

    async def fire(self) -> float:
        """Create the runs that are due. Return the seconds until the next due time, or infinity without crons."""
        specs = {name: found.cron for name, found in self._worker._workflows.items() if found.cron is not None}
        if not specs:
            return float("inf")
        store, owner = self._worker._store, self._worker.owner
        crons, fires = store.schedules.crons, store.schedules.fires
        if not self._is_put:
            for name, spec in specs.items():
                await result_of(crons.put(name, spec))
            self._is_put = True
        while True:
            claims = await result_of(crons.take_due(owner=owner, names=list(specs)))
            claims = claims or await result_of(fires.take_stale(owner=owner, names=list(specs)))
            if not claims:
                break
            for claim in claims:
                try:
                    await self._start(claim)
                except BackendError:
                    raise
                except StateError as error:  # for example, the workflow is switched off
                    outcome = FireOutcome("failed", error=FireError.of(error))
                    with suppress(ClaimLost):
                        await result_of(fires.finish(claim, outcome))
        now = getattr(store, "_store", store)._context.clock.now
        due = await result_of(crons.next_due_at(names=list(specs)))
        return float("inf") if due is None else max(0.0, (due - now()).total_seconds())

    async def _start(self, claim: FireClaim) -> None:
        """Create the run of a fire and finish the fire, in one transaction."""
        workflow = claim.target or claim.cron_name
        found = self._worker._workflows.get(workflow)
        capped = self._worker.cap != NO_CAP or (found is not None and found.cap is not None)
        options = RunOptions(status="queued") if capped else RunOptions(offered=True)
        async with Entered(self._worker._store.transaction()) as tx:
            made = await result_of(
                tx.workflows.runs.ensure(
                    claim.fire_id,
                    workflow,
                    trigger=Trigger(claim.cron_name, type="cron"),
                    phase=_PHASE,
                    context=claim.payload,
                    options=options,
                )
            )
            if found is not None and found.input is not None:
                await result_of(tx.outputs.inputs.ensure(made.run.id, claim.payload))
            await result_of(tx.schedules.fires.finish(claim, FireOutcome(dispatched=1)))
