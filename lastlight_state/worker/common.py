"""What workers of threads and of tasks share: which function drives which workflow, and how a job ends early."""

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
from lastlight_state.worker.calls import ERROR_CHARS, Entered, Left, RunFailed, failure_of, leaves, settled
from lastlight_state.worker.crons import CronLoop
from lastlight_state.worker.definitions import NO_CAP, Definition, F
from lastlight_state.worker.held import Stop
from lastlight_state.worker.memory import TRIES
from lastlight_state.worker.outages import AWAY, outlasted
from lastlight_state.worker.retry import Retry
from lastlight_state.workflows import Claim, Failure, WorkflowRun
from lastlight_state.workflows.checks import some_versions

_log = logging.getLogger("lastlight_state.worker")

#: Characters of a failed try that its run's history tells.
REASON_CHARS = 500
#: Seconds between two sweeps: the ends of runs that nobody is to go on with.
SWEEP_SECONDS = 30.0
#: A worker says that it is there at most once in so many seconds: when it looks for work, so at least at each sweep.
SEEN_SECONDS = 15.0
#: Seconds of one wait for work. It ends at once when there is some.
WAIT_SECONDS = 300.0
#: Seconds until the next try after the database could not be reached.
PAUSE_SECONDS = 1.0
#: A worker is healthy if it has reached its database within this many sweeps.
HEALTHY_SWEEPS = 3


@dataclass(frozen=True)
class Health:
    """The health of a worker: the runs it drives, and the seconds since it reached its database (None: not yet)."""

    run_ids: tuple[str, ...]
    seconds_unreached: float | None
    stopping: bool

    @property
    def is_healthy(self) -> bool:
        """True if the worker has reached its database lately."""
        return self.seconds_unreached is not None and self.seconds_unreached < HEALTHY_SWEEPS * SWEEP_SECONDS


#: The tries of a workflow that says nothing about them.
THREE_TRIES = Retry()


class Registry(ABC, Generic[F]):
    """The functions of workflows, and the settings and the state of a worker."""

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

        ``cap``: at most so many runs of it are admitted from the queue at a time, by all workers together. ``retry``
        says when a function that raised is called again. ``input`` is the type of ``job.input``: a pydantic model, a
        dataclass, or ``dict``. ``cron`` makes a run at each of its instants, through whichever worker comes first.
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
        """Return what a probe wants to know. May be called from any thread."""
        unreached = None if self._swept is None else time.monotonic() - self._swept
        return Health(tuple(self._jobs), unreached, self._stop.is_set())

    def _refuse_idle(self) -> None:
        """Raise `MisuseError` for a worker that serves no workflow."""
        if not self._workflows:
            raise MisuseError("the worker has no workflow: register one with @worker.workflow(name)")

    @property
    def _sweep_is_due(self) -> bool:
        return self._swept is None or time.monotonic() - self._swept >= SWEEP_SECONDS

    @property
    def _admitting(self) -> dict[str, Any]:
        caps = {name: found.cap for name, found in self._workflows.items() if found.cap is not None}
        return {**self._filters, "cap": self.cap, "workflow_caps": caps}

    @property
    def _waiting_for(self) -> dict[str, Any]:
        careful = self._seconds_careful
        return {**self._admitting, "timeout": careful or WAIT_SECONDS, "claimable": not careful}

    @property
    def _taking(self) -> dict[str, Any]:
        return {"owner": self.owner, "lease": self.lease}

    @property
    def _filters(self) -> dict[str, Any]:
        return {"workflow_names": list(self._workflows), "app_versions": self.app_versions}

    async def _look(self) -> float:
        """Do what is due, and fill the free slots. Returns the seconds until the next look."""
        await self._announce()
        if self._sweep_is_due and await self._may_take_over():
            await settled(self._store.workflows.claims.give_up(workflow_names=list(self._workflows)))
            self._swept = time.monotonic()
        pause = min(self._seconds_careful or SWEEP_SECONDS, await self._crons.fire())
        while len(self._jobs) < self.slots:
            if not await self._take():
                self._watch()
                break
        return pause

    async def _take(self) -> bool:
        """Start jobs in the free slots, and return whether there was a run for one."""
        workflows, free = self._store.workflows, self.slots - len(self._jobs)
        claims = await settled(workflows.queue.admit_next(**self._admitting, **self._taking, limit=free))
        if len(claims) < free and await self._may_take_over():
            limit = free - len(claims)
            claims += await settled(workflows.claims.take_next(**self._taking, **self._filters, limit=limit))
        for claim in claims:
            self._start(claim)
        return bool(claims)

    async def _announce(self) -> None:
        """Say that this worker is there, unless it has done so just now. It goes on where that cannot be stored."""
        now = time.monotonic()
        if self._announced is None or now - self._announced >= SEEN_SECONDS:
            self._announced = now
            workers = self._store.workflows.workers
            try:
                await settled(workers.announce(self.owner, slots=self.slots, **self._filters))
            except StateError as error:
                _log.warning("lists of workers do not show that this one is there: %s", error)

    async def _forget(self) -> None:
        """Take this worker off the list of those that are there."""
        self._announced = None
        with suppress(StateError):
            await settled(self._store.workflows.workers.remove(self.owner))

    async def _drive(self, claim: Claim) -> None:
        """Drive a run to its end, its pause, its next try or its release."""
        try:
            run = await self._run(claim.run_id)
            async with Entered(self._store.driving(claim)) as driven:
                held = self._held(run, driven)
                if claim.left_in_flight:
                    await settled(driven.workflows.executions.interrupt(run.id, reason="its worker is gone"))
                await self._call(held, self._workflows[run.workflow_name])
        except (ClaimLost, NotFound) as error:
            _log.info("run %s is another's: %s", claim.run_id, error)
        except Exception:  # noqa: BLE001 - the run is taken again when its lease is over
            _log.exception("run %s could not be driven, and is taken again when its lease is over", claim.run_id)

    async def _run(self, run_id: str) -> WorkflowRun:
        """Return a run that was taken, as soon as the database can be reached."""
        while True:
            begun = time.monotonic()
            try:
                found: WorkflowRun = await settled(self._store.workflows.runs.get(run_id))
            except AWAY as away:
                if self._stop.is_set():
                    raise
                await self._wait_out(run_id, away, begun)
            else:
                return found

    async def _call(self, held: Any, workflow: Definition[F]) -> None:
        """Call the function of a workflow, and store how it ended."""
        runs, run_id = held.workflows.runs, held.run.id
        try:
            held.check()
            given = None
            if workflow.input is not None:
                found = await outlasted(held, lambda: held.store.outputs.inputs.find(run_id))
                given = workflow.read(found)
            await held.awaited(workflow.function(self._job(held, given)))
            await _ended(outlasted(held, lambda: runs.finish(run_id, "succeeded")), run_id)
        except BaseException as error:
            if held.is_stopped_by(error):
                raise
            told = [one for one in leaves(error) if not isinstance(one, Left)]
            if not told:
                if held.driven.cancel_requested and not held.driven.lost:
                    await _ended(outlasted(held, lambda: runs.finish(run_id, "cancelled")), run_id)
                return
            if any(held.is_lost(one) for one in told):
                _log.info("run %s is another's: %s", run_id, error)
                return
            await self._failed(held, workflow.retry, error)

    async def _failed(self, held: Any, retry: Retry, error: BaseException) -> None:
        """Store a failed try: the run ends, or it waits in the queue for the next one."""
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
            await self._store_end(held, retry, tries, failure, ends=True)  # scratch has no room for the number of tries

    async def _store_end(self, held: Any, retry: Retry, tries: int, failure: Failure, *, ends: bool) -> None:
        await _ended(outlasted(held, lambda: self._stored(held, retry, tries, failure, ends=ends)), held.run.id)

    async def _stored(self, held: Any, retry: Retry, tries: int, failure: Failure, *, ends: bool) -> None:
        """Store a failed try: end the run, or send it to the queue for the next one."""
        if ends:
            try:
                await settled(held.workflows.runs.finish(held.run.id, "failed", failure=failure))
            except (InvalidValue, PayloadTooLarge) as refused:
                told = Failure(storable(failure.error, ERROR_CHARS), {"refused": str(refused)})
                await settled(held.workflows.runs.finish(held.run.id, "failed", failure=told))
            return
        scratch = {TRIES: {"count": tries, "restarts": held.memory.restarts}}
        async with Entered(held.driven.transaction()) as tx:
            await settled(tx.workflows.runs.merge_scratch(held.run.id, scratch))
            queued = await settled(
                tx.workflows.queue.requeue(
                    held.run.id,
                    reason=storable(f"try {tries} of {retry.attempts} failed: {failure.error}", REASON_CHARS),
                    not_before=held.now() + retry.pause_after(tries),
                )
            )
            if queued.cancel_requested_at is not None:  # the next worker ends it, and need not wait for that
                why = "a cancel was asked for"
                await settled(tx.workflows.queue.requeue(held.run.id, reason=why, not_before=held.now()))

    async def _wait_out(self, run_id: str, away: BackendError, begun: float) -> None:
        """Wait a moment for the database on behalf of a run, whose call began at this time of the monotonic clock."""
        self._note_outage(begun)
        _log.warning("run %s waits for the database: %s", run_id, away)
        await settled(self._pause(PAUSE_SECONDS))

    def _note_outage(self, begun: float) -> None:
        """Note that the database failed a call. After a long outage, leave leases to their holders for a while."""
        now, lease = time.monotonic(), self.lease.total_seconds()
        is_new = begun - self._failed_at > 2 * PAUSE_SECONDS
        self._away_since = begun if is_new else min(begun, self._away_since)
        self._failed_at = now
        if now - self._away_since > lease / 3:  # a renewal was due meanwhile
            self._careful_until = now + lease / 2

    async def _may_take_over(self) -> bool:
        """True unless the database was away lately, or just kept this call waiting as it does the holders of leases."""
        if not self._seconds_careful:
            begun = time.monotonic()
            await settled(self._store.run(lambda _: None))  # all on its thread: no lock waits for this loop
            if time.monotonic() - begun > PAUSE_SECONDS:
                self._note_outage(begun)
        return not self._seconds_careful

    @property
    def _seconds_careful(self) -> float:
        return max(0.0, self._careful_until - time.monotonic())

    @abstractmethod
    def _start(self, claim: Claim) -> None:
        """Start the job of a claim, which is among ``_jobs`` until it has ended."""

    @abstractmethod
    def _watch(self) -> None:
        """Wait for work beside the loop, which is woken when there is some."""

    @abstractmethod
    def _held(self, run: WorkflowRun, driven: Any) -> Any:
        """Return the run as its job holds it."""

    @abstractmethod
    def _job(self, held: Any, given: Any) -> Any:
        """Return what the function of a workflow gets."""

    @abstractmethod
    def _pause(self, seconds: float) -> Any:
        """Wait in a job."""


async def _ended(end: Awaitable[object], run_id: str) -> None:
    """Store the end of a run's call, unless its function has ended or paused the run."""
    try:
        await end
    except (ClaimLost, Conflict) as error:
        _log.debug("run %s was ended or paused by its function: %s", run_id, error)
