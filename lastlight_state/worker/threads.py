"""A worker whose functions run on threads."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from lastlight_state.errors import BackendError, ClaimLost, Conflict, NotFound, StateError
from lastlight_state.worker.common import (
    PAUSE_SECONDS,
    SWEEP_SECONDS,
    WAIT_SECONDS,
    HeldRun,
    Left,
    Registry,
    RunFailed,
    gate_of,
)
from lastlight_state.workflows import Approval, Claim, Failure, Gate, Workflows

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lastlight_state.domains import Transaction
    from lastlight_state.journal import Journal
    from lastlight_state.store import StateStore
    from lastlight_state.workflows import DrivenRun

T = TypeVar("T")
_Journal: TypeAlias = "Journal"
_Block: TypeAlias = "AbstractContextManager[Transaction]"

_log = logging.getLogger("lastlight_state.worker")


class Flag:
    """An event without a lock: a signal may come in the middle of `set`, and its handler calls it again."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Tell jobs to leave."""
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether they are to leave."""
        return self._is_set


class Job(HeldRun["StateStore", Workflows, _Journal, _Block]):
    """A run in the hands of a worker: what the function of its workflow gets."""

    def phase(self, name: str, work: Callable[[], T]) -> T:
        """Do the work of a phase once, and return its result: JSON, which is kept in the run's scratch under ``name``.

        A phase that succeeded before, also in another process, is not done again. A phase is an execution of the run.
        If the process dies in it, the next worker does it anew.
        """
        if name in self._results:
            return cast(T, self._results[name])
        self.check()
        executions = self.workflows.executions
        execution = executions.start(f"{self.run.workflow_name}:{name}", run_id=self.run.id)
        try:
            result = work()
        except Exception as error:  # raised again once it is stored
            with suppress(StateError):
                executions.finish(execution.id, "failed", failure=Failure(f"{type(error).__name__}: {error}"))
            raise
        executions.finish_phase(execution.id, scratch={name: result})
        self._results[name] = result
        return result

    def ask(self, gate: Gate | str, summary: str | None = None, **details: Any) -> Approval:
        """Ask a person, and return the gate once it is answered, rejected, expired or withdrawn.

        Until then the run is paused and held by nobody: this call leaves the function, which is called anew after the
        answer. ``details`` are fields of `Gate`. A rejection fails the run unless ``on_reject="resume"``.
        """
        asked = gate_of(gate, summary, details)
        self.check()
        found = self.workflows.approvals.find(self.run.id, asked.gate, node=asked.node)
        if found is not None and found.status != "pending":
            return found
        if found is None:
            self.workflows.approvals.pause(self.run.id, asked)
        else:
            self.workflows.waits.pause(self.run.id, gates=[found.id])
        raise Left

    def emit(self, type: str, payload: dict[str, Any] | None = None, *, event_id: str | None = None) -> None:  # noqa: A002 - the journal's word
        """Append an event to the run's journal, if this worker still has the run."""
        self.journal.events.append(self.run.id, type, payload, event_id=event_id)


class Worker(Registry[Callable[[Job], Any]]):
    """Drives the runs of its workflows, each by the function that is registered for it.

    ``slots`` runs go on at a time, each on a thread of its own. ``cap`` bounds the running runs of these workflows that
    come from the queue, over all workers. ``owner`` names this worker and no other.

    A function that returns ends its run as succeeded, unless it has ended or paused the run itself. One that raises
    `RunFailed` ends it as failed. After any other exception the lease runs out, and another try counts as a restart.
    """

    def __init__(self, store: StateStore, **settings: Any) -> None:
        """Make a worker over a store. ``settings`` are ``owner``, ``slots``, ``cap``, ``lease`` and ``grace``."""
        super().__init__(**settings)
        self._store = store
        self._stop: Flag = Flag()
        self._news: SimpleQueue[str] = SimpleQueue()
        self._jobs: dict[str, tuple[Claim, threading.Thread]] = {}
        self._waiting: threading.Thread | None = None

    def run(self) -> None:
        """Work until `stop` is called, or until SIGTERM or SIGINT comes where this is the main thread.

        Then jobs may go on to the end of their phase, for ``grace``. Runs that have not ended are given back, at no
        restart and to be taken at once.
        """
        names = self._names
        with self._signals():
            try:
                while not self._stop.is_set():
                    pause = SWEEP_SECONDS
                    try:
                        self._look(names)
                    except BackendError as error:
                        _log.warning("the database cannot be used at the moment: %s", error)
                        pause = PAUSE_SECONDS
                    with suppress(Empty):
                        self._news.get(timeout=pause)
            finally:
                self._stop.set()
                self._leave()
                self._stop = Flag()  # a thread that is still at work keeps the one that is set

    def stop(self) -> None:
        """Tell `run` to end. Takes effect from any thread and in a signal handler, and returns at once."""
        self._stop.set()
        self._news.put("stop")

    def _look(self, names: Sequence[str]) -> None:
        """Sweep where that is due, and fill the free slots, or wait for work."""
        if self._sweep_is_due:
            self._store.workflows.claims.give_up(workflow_names=names)
            self._swept = time.monotonic()
        while len(self._jobs) < self.slots:
            if not self._take():
                self._watch()
                break

    def _take(self) -> bool:
        """Start jobs in the free slots, and return whether there was a run for one."""
        workflows, free = self._store.workflows, self.slots - len(self._jobs)
        claims = workflows.queue.admit_next(**self._admitting, **self._taking, limit=free)
        if len(claims) < free:
            claims += workflows.claims.take_next(**self._taking, workflow_names=self._names, limit=free - len(claims))
        for claim in claims:
            thread = threading.Thread(target=self._drive, args=(claim,), name=f"run-{claim.run_id}", daemon=True)
            self._jobs[claim.run_id] = claim, thread
            thread.start()
        return bool(claims)

    def _watch(self) -> None:
        """Wait for work on a thread, so that signals and `stop` are heard meanwhile."""
        waiting = self._waiting
        if waiting is None or not waiting.is_alive():
            self._waiting = threading.Thread(target=self._wait, name="lastlight-worker", daemon=True)
            self._waiting.start()

    def _wait(self) -> None:
        with suppress(StateError):
            self._store.workflows.queue.wait(**self._admitting, timeout=WAIT_SECONDS, claimable=True)
        self._waiting = None
        self._news.put("work")

    def _drive(self, claim: Claim) -> None:
        """Drive a run to its end, its pause or its release."""
        try:
            run = self._store.workflows.runs.get(claim.run_id)
            with self._store.driving(claim) as driven:
                if claim.left_in_flight:
                    driven.workflows.executions.interrupt(run.id, reason="its worker is gone")
                job = Job(self._store, run, driven, self._stop)
                try:
                    job.check()
                    self._functions[run.workflow_name](job)
                    _finish(driven, run.id, "succeeded")
                except RunFailed as error:
                    _finish(driven, run.id, "failed", failure=error.failure)
                except Left:
                    if job._ends_cancelled:
                        _finish(driven, run.id, "cancelled")
        except (ClaimLost, NotFound) as error:
            _log.info("run %s is another's: %s", claim.run_id, error)
        except Exception:  # noqa: BLE001 - the run is tried again when its lease is over
            _log.exception("run %s failed, and is tried again when its lease is over", claim.run_id)
        finally:
            self._jobs.pop(claim.run_id, None)
            self._news.put("ended")

    def _leave(self) -> None:
        """Wait for the jobs, and give back the runs of those that do not end in time."""
        until = time.monotonic() + self.grace.total_seconds()
        for claim, thread in list(self._jobs.values()):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                with suppress(StateError):
                    self._store.workflows.claims.release(claim)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT in the block, where this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            for number in before:
                signal.signal(number, lambda *_: self.stop())
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _finish(driven: DrivenRun[Workflows], run_id: str, status: Any, failure: Failure | None = None) -> None:
    """End the run, unless its function has ended or paused it."""
    try:
        driven.workflows.runs.finish(run_id, status, failure=failure)
    except (ClaimLost, Conflict) as error:
        _log.debug("run %s was ended or paused by its function: %s", run_id, error)
