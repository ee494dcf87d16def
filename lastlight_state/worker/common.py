"""Code of thread workers and task workers: registered workflows, taking runs, and storing how a job ended."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, cast

from lastlight_state.db.news.listeners import storable
from lastlight_state.errors import (
    BackendError,
    ClaimLost,
    Conflict,
    InvalidValue,
    MisuseError,
    NotFound,
    PayloadTooLarge,
    StateError,
)
from lastlight_state.schedules import CronSpec
from lastlight_state.worker.calls import ERROR_CHARS, Entered, Left, RunFailed, failure_of, leaves, result_of
from lastlight_state.worker.crons import CronLoop
from lastlight_state.worker.definitions import NO_CAP, Definition, F
from lastlight_state.worker.held import Stop
from lastlight_state.worker.memory import TRIES
from lastlight_state.worker.outages import AWAY, outlast_outage
from lastlight_state.worker.retry import Retry
from lastlight_state.workflows import Claim, Failure, WorkflowRun
from lastlight_state.workflows.checks import some_versions

_log = logging.getLogger("lastlight_state.worker")

#: Most characters of a failed try's error that the run's history shows.
REASON_CHARS = 500
#: Seconds between two sweeps. A sweep ends abandoned runs that are to be cancelled or are at their restart limit.
SWEEP_SECONDS = 30.0
#: Least seconds between two announcements that a worker is alive. It announces when it looks for work, at least at each
#: sweep.
SEEN_SECONDS = 15.0
#: Longest seconds of one wait for work. The wait ends at once when work arrives.
WAIT_SECONDS = 300.0
#: Seconds until the next try after the database was unreachable.
PAUSE_SECONDS = 1.0
#: A worker is healthy if it has reached its database within this many sweeps.
HEALTHY_SWEEPS = 3


@dataclass(frozen=True)
class Health:
    """The health of a worker: the ids of its runs, and the seconds since its last sweep (None: no sweep yet)."""

    run_ids: tuple[str, ...]
    seconds_unreached: float | None
    stopping: bool

    @property
    def is_healthy(self) -> bool:
        """True if the worker has swept its database within the last `HEALTHY_SWEEPS` sweep intervals."""
        return self.seconds_unreached is not None and self.seconds_unreached < HEALTHY_SWEEPS * SWEEP_SECONDS


#: The default retry policy of a workflow.
THREE_TRIES = Retry()


class Registry(ABC, Generic[F]):
    """Base of both workers: the registered workflow functions, the settings, and the state of the loop."""

    _stop: Stop
    _store: Any

    def __init__(
        self,
        *,
        owner: str | None = None,
        slots: int = 1,
        cap: int = NO_CAP,
        lease: timedelta = timedelta(seconds=30),
        grace: timedelta = timedelta(seconds=10),
        app_versions: Collection[str] | None = None,
    ) -> None:
        if slots < 1:
            raise InvalidValue("slots", "must be at least 1")
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.slots = slots
        self.cap = cap
        self.lease = lease
        self.grace = grace
        is_whole = app_versions is None or isinstance(app_versions, str)
        self.app_versions = some_versions(cast("Any", app_versions) if is_whole else list(app_versions or ()))
        self._workflows: dict[str, Definition[F]] = {}
        self._swept: float | None = None
        self._failed_at = self._away_since = self._careful_until = -math.inf
        self._announced: float | None = None
        self._jobs: dict[str, Any] = {}
        self._crons = CronLoop(self)

    def workflow(
        self,
        name: str,
        *,
        cap: int | None = None,
        retry: Retry = THREE_TRIES,
        input: Any = None,  # noqa: A002 - the word of the domain
        cron: str | CronSpec | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function for the runs of a workflow.

        ``cap`` is the most runs of this workflow that the queue admits at a time, over all workers. ``retry`` sets when
        the function is called again after an exception. ``input`` is the type of ``job.input``: a pydantic model, a
        dataclass, or ``dict``. ``cron`` creates one run at each due time, by whichever worker is first.
        """

        if name in self._workflows:
            raise MisuseError(f"workflow {name!r} has a function already")
        if not isinstance(retry, Retry):
            raise InvalidValue("retry", f"expected a Retry, got {type(retry).__name__}")
        spec = CronSpec(cron, target=name) if isinstance(cron, str) else cron

        def register(function: F) -> F:
            self._workflows[name] = Definition(function, cap, retry, input, spec)
            return function

        return register

    def health(self) -> Health:
        """Return the worker's health for a liveness probe. May be called from any thread."""
        unreached = None if self._swept is None else time.monotonic() - self._swept
        return Health(tuple(self._jobs), unreached, self._stop.is_set())

    def _refuse_idle(self) -> None:
        """Raise `MisuseError` if no workflow is registered."""
        if not self._workflows:
            raise MisuseError("the worker has no workflow: register one with @worker.workflow(name)")

    @property
    def _sweep_is_due(self) -> bool:
        return self._swept is None or time.monotonic() - self._swept >= SWEEP_SECONDS

    @property
    def _admit_arguments(self) -> dict[str, Any]:
        caps = {name: found.cap for name, found in self._workflows.items() if found.cap is not None}
        return {**self._filters, "cap": self.cap, "workflow_caps": caps}

    @property
    def _waiting_for(self) -> dict[str, Any]:
        careful = self._seconds_careful
        return {**self._admit_arguments, "timeout": careful or WAIT_SECONDS, "claimable": not careful}

    @property
    def _take_arguments(self) -> dict[str, Any]:
        return {"owner": self.owner, "lease": self.lease}

    @property
    def _filters(self) -> dict[str, Any]:
        return {"workflow_names": list(self._workflows), "app_versions": self.app_versions}

    async def _look(self) -> float:
        """Sweep and fire crons if they are due, then fill the free slots. Returns the seconds until the next look."""
        await self._announce()
        if self._sweep_is_due and await self._may_take_over():
            await result_of(self._store.workflows.claims.give_up(workflow_names=list(self._workflows)))
            self._swept = time.monotonic()
        pause = min(self._seconds_careful or SWEEP_SECONDS, await self._crons.fire())
        while len(self._jobs) < self.slots:
            if not await self._take():
                self._watch()
                break
        return pause

    async def _take(self) -> bool:
        """Take runs for the free slots and start their jobs. Returns True if a run was taken."""
        workflows, free = self._store.workflows, self.slots - len(self._jobs)
        claims = await result_of(
            workflows.queue.admit_next(**self._admit_arguments, **self._take_arguments, limit=free)
        )
        if len(claims) < free and await self._may_take_over():
            limit = free - len(claims)
            claims += await result_of(workflows.claims.take_next(**self._take_arguments, **self._filters, limit=limit))
        for claim in claims:
            self._start(claim)
        return bool(claims)

    async def _announce(self) -> None:
        """Report that this worker is alive, at most every `SEEN_SECONDS`. A failed write is only logged."""
        now = time.monotonic()
        if self._announced is None or now - self._announced >= SEEN_SECONDS:
            self._announced = now
            workers = self._store.workflows.workers
            try:
                await result_of(workers.announce(self.owner, slots=self.slots, **self._filters))
            except StateError as error:
                _log.warning("lists of workers do not show that this one is there: %s", error)

    async def _forget(self) -> None:
        """Remove this worker from the list of live workers."""
        self._announced = None
        with suppress(StateError):
            await result_of(self._store.workflows.workers.remove(self.owner))

    async def _drive(self, claim: Claim) -> None:
        """Drive a claimed run until it ends, pauses, is queued for a retry, or is released."""
        try:
            run = await self._run(claim.run_id)
            async with Entered(self._store.driving(claim)) as driven:
                held = self._held_run(run, driven)
                if claim.left_in_flight:
                    await result_of(driven.workflows.executions.interrupt(run.id, reason="its worker is gone"))
                await self._call(held, self._workflows[run.workflow_name])
        except (ClaimLost, NotFound) as error:
            _log.info("run %s is another's: %s", claim.run_id, error)
        except Exception:  # noqa: BLE001 - the run is taken again when its lease is over
            _log.exception("run %s could not be driven, and is taken again when its lease is over", claim.run_id)

    async def _run(self, run_id: str) -> WorkflowRun:
        """Return a claimed run. Retries while the database is unreachable, until the worker stops."""
        while True:
            begun = time.monotonic()
            try:
                found: WorkflowRun = await result_of(self._store.workflows.runs.get(run_id))
            except AWAY as away:
                if self._stop.is_set():
                    raise
                await self._wait_out(run_id, away, begun)
            else:
                return found

    async def _call(self, held: Any, workflow: Definition[F]) -> None:
        """Call the workflow's function for a run, and store how the call ended."""
        runs, run_id = held.workflows.runs, held.run.id
        try:
            held.check()
            given = None
            if workflow.input is not None:
                found = await outlast_outage(held, lambda: held.store.outputs.inputs.find(run_id))
                given = workflow.read(found)
            await held.await_result(workflow.function(self._job(held, given)))
            await _await_end(outlast_outage(held, lambda: runs.finish(run_id, "succeeded")), run_id)
        except BaseException as error:
            if held.is_stopped_by(error):
                raise
            told = [one for one in leaves(error) if not isinstance(one, Left)]
            if not told:
                if held.driven.cancel_requested and not held.driven.lost:
                    await _await_end(outlast_outage(held, lambda: runs.finish(run_id, "cancelled")), run_id)
                return
            if any(held.is_lost(one) for one in told):
                _log.info("run %s is another's: %s", run_id, error)
                return
            await self._handle_failure(held, workflow.retry, error)

    async def _handle_failure(self, held: Any, retry: Retry, error: BaseException) -> None:
        """Log a failed try and store it: end the run, or queue it for the next try."""
        final = next((one for one in leaves(error) if isinstance(one, (RunFailed, MisuseError, *retry.final))), None)
        failure, tries = failure_of(final or error), held.memory.tries + 1
        ends = final is not None or tries >= retry.attempts
        after = "no further try" if ends else f"the next in {retry.pause_after(tries)}"
        log = _log.warning if isinstance(error, RunFailed) else _log.error
        log("try %d of run %s failed: %s; %s", tries, held.run.id, failure.error, after, exc_info=error)
        try:
            await self._store_end(held, retry, tries, failure, ends=ends)
        except PayloadTooLarge:
            if ends:
                raise
            await self._store_end(held, retry, tries, failure, ends=True)  # scratch has no room for the count of tries

    async def _store_end(self, held: Any, retry: Retry, tries: int, failure: Failure, *, ends: bool) -> None:
        await _await_end(
            outlast_outage(held, lambda: self._store_failed_try(held, retry, tries, failure, ends=ends)), held.run.id
        )

    async def _store_failed_try(self, held: Any, retry: Retry, tries: int, failure: Failure, *, ends: bool) -> None:
        """Store a failed try: end the run, or queue it for the next try."""
        if ends:
            try:
                await result_of(held.workflows.runs.finish(held.run.id, "failed", failure=failure))
            except (InvalidValue, PayloadTooLarge) as refused:
                told = Failure(storable(failure.error, ERROR_CHARS), {"refused": str(refused)})
                await result_of(held.workflows.runs.finish(held.run.id, "failed", failure=told))
            return
        scratch = {TRIES: {"count": tries, "restarts": held.memory.restarts}}
        async with Entered(held.driven.transaction()) as tx:
            await result_of(tx.workflows.runs.merge_scratch(held.run.id, scratch))
            queued = await result_of(
                tx.workflows.queue.requeue(
                    held.run.id,
                    reason=storable(f"try {tries} of {retry.attempts} failed: {failure.error}", REASON_CHARS),
                    not_before=held.now() + retry.pause_after(tries),
                )
            )
            if queued.cancel_requested_at is not None:  # cancelled: let the next worker end it at once
                why = "a cancel was asked for"
                await result_of(tx.workflows.queue.requeue(held.run.id, reason=why, not_before=held.now()))

    async def _wait_out(self, run_id: str, away: BackendError, begun: float) -> None:
        """Record that the database failed a call, and pause the run's job. ``begun`` is the call's monotonic start."""
        self._note_outage(begun)
        _log.warning("run %s waits for the database: %s", run_id, away)
        await result_of(self._pause(PAUSE_SECONDS))

    def _note_outage(self, begun: float) -> None:
        """Record an unreachable database. After a third of a lease of outage, take over no leases for half a lease."""
        now, lease = time.monotonic(), self.lease.total_seconds()
        is_new = begun - self._failed_at > 2 * PAUSE_SECONDS
        self._away_since = begun if is_new else min(begun, self._away_since)
        self._failed_at = now
        if now - self._away_since > lease / 3:  # a renewal was due during the outage
            self._careful_until = now + lease / 2

    async def _may_take_over(self) -> bool:
        """True if leases may be taken over: no recent outage, and the database answers a probe in time."""
        if not self._seconds_careful:
            begun = time.monotonic()
            await result_of(self._store.run(lambda _: None))  # on the backend's thread: no lock stops this loop
            if time.monotonic() - begun > PAUSE_SECONDS:
                self._note_outage(begun)
        return not self._seconds_careful

    @property
    def _seconds_careful(self) -> float:
        return max(0.0, self._careful_until - time.monotonic())

    @abstractmethod
    def _start(self, claim: Claim) -> None:
        """Start a job for a claim. The job stays in ``_jobs`` until it ends."""

    @abstractmethod
    def _watch(self) -> None:
        """Wait for work in the background, and wake the loop when work arrives."""

    @abstractmethod
    def _held_run(self, run: WorkflowRun, driven: Any) -> Any:
        """Return the `HeldRun` for the job."""

    @abstractmethod
    def _job(self, held: Any, given: Any) -> Any:
        """Return the job with which the workflow's function is called."""

    @abstractmethod
    def _pause(self, seconds: float) -> Any:
        """Pause a job for some seconds."""


async def _await_end(end: Awaitable[object], run_id: str) -> None:
    """Await the write that ends a run. A conflict is only logged: the function itself ended or paused the run."""
    try:
        await end
    except (ClaimLost, Conflict) as error:
        _log.debug("run %s was ended or paused by its function: %s", run_id, error)
