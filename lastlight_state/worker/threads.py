"""A worker whose workflow functions run on threads."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from inspect import isawaitable, iscoroutine
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from lastlight_state.errors import BackendError, MisuseError, StateError
from lastlight_state.journal import Signal
from lastlight_state.worker import common
from lastlight_state.worker.calls import at_once
from lastlight_state.worker.common import Registry
from lastlight_state.worker.held import HeldRun
from lastlight_state.worker.loops import LoopSteps
from lastlight_state.worker.memory import Place
from lastlight_state.worker.steps import Steps, require_input
from lastlight_state.workflows import (
    Approval,
    Claim,
    Gate,
    HumanRequest,
    Question,
    RunningExecution,
    WorkflowRun,
    Workflows,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lastlight_state.domains import Transaction
    from lastlight_state.journal import Journal
    from lastlight_state.store import StateStore

T = TypeVar("T")
_Journal: TypeAlias = "Journal"
_Block: TypeAlias = "AbstractContextManager[Transaction]"

_log = logging.getLogger("lastlight_state.worker")


class Flag:
    """An event without a lock. So a signal handler may call `set` while it interrupts another `set`."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Tell the worker's jobs to end."""
        self._is_set = True

    def is_set(self) -> bool:
        """True if the worker's jobs should end."""
        return self._is_set


class _HeldRun(HeldRun["StateStore", Workflows, _Journal, _Block]):
    async def await_result(self, value: Any) -> Any:
        if isawaitable(value):
            if iscoroutine(value):
                value.close()
            raise MisuseError("a function of a Worker must not be a coroutine: use AsyncWorker")
        return value


class JobSteps(Steps["StateStore", Workflows, _Journal, _Block]):
    """The steps of a run on a thread.

    Each step has a name and is done only once per run, or once per turn of a loop.
    """

    @overload
    def phase(
        self, name: str, work: Callable[[RunningExecution], Any] | Callable[[], Any], *, returns: type[T]
    ) -> T: ...
    @overload
    def phase(self, name: str, work: Callable[[RunningExecution], T] | Callable[[], T]) -> T: ...
    def phase(
        self, name: str, work: Callable[[RunningExecution], Any] | Callable[[], Any], *, returns: Any = None
    ) -> Any:
        """Do the work of a phase once, and return its result.

        A phase is an execution of the run. If ``work`` takes an argument, it gets the `RunningExecution`, on which it
        may set ``session_id``, ``usage``, ``output`` and ``details``. These values, the result and the phase are stored
        in one transaction.

        The result is JSON of at most 1 MiB. Small results are kept in the run's scratch, others as the output of the
        execution. If ``work`` returns None, the result is the output that it has set. ``returns`` is the result's type
        if it is not plain JSON: a pydantic model or a dataclass. You always get the value as it was stored, whether the
        phase has just run or the run was resumed: a tuple becomes a list.

        A phase that has succeeded, even in another process, is not done again. If the process dies in a phase, the next
        worker does that phase again. A result that cannot be stored ends the run as failed (`RunFailed`).
        """
        return at_once(self._phase(name, work, returns))

    @overload
    def ask(self, gate: Question) -> HumanRequest: ...
    @overload
    def ask(self, gate: Gate | str, summary: str | None = None, **details: Any) -> Approval: ...
    def ask(self, gate: Gate | Question | str, summary: str | None = None, **details: Any) -> Approval | HumanRequest:
        """Ask a person, and return the gate or question after it is answered, rejected, expired or withdrawn.

        Until then the run is paused and no worker holds it: this call leaves the function, and the function is called
        again after the answer. ``details`` are fields of `Gate`. A rejection fails the run unless
        ``on_reject="resume"``. A `Question` asks for a choice or a form. In a turn of a loop, a gate given only by its
        name is stored at the loop's node, and a question in the turn's iteration.
        """
        if isinstance(gate, Question):
            return at_once(self._question(gate))
        return at_once(self._ask(gate, summary, details))

    def sleep(self, length: timedelta | None = None, *, until: datetime | None = None, name: str = "sleep") -> None:
        """Pause the run for a length of time, counted from the first call, or until a time.

        No worker holds it meanwhile. A second sleep in the same place of the run needs another ``name``.
        """
        at_once(self._sleep(length, until, name))

    def wait_for(
        self,
        signal: str,
        *,
        correlation_id: str | None = None,
        timeout: timedelta | None = None,
        name: str | None = None,
    ) -> Signal | None:
        """Return the oldest signal of this name that no step has taken. If there is none, pause the run until there is.

        With ``correlation_id``, only a signal with that id counts. Returns None if no signal came within ``timeout``
        after the first call. A second wait for the same signal in one place of the run needs its own ``name``.
        """
        return at_once(self._wait_for(signal, correlation_id, timeout, name))

    def loop(self, name: str, *, limit: int | None = None) -> Iterator[Turn]:
        """Return an iterator over the turns of a loop, at most ``limit``.

        Step names need to be unique only within a turn. A resumed run continues in the turn in which it was
        interrupted. Leave the loop with ``break``.
        """
        return _Turns(self._held, self._place, name, limit)

    def emit(self, type: str, payload: dict[str, Any] | None = None, *, event_id: str | None = None) -> None:  # noqa: A002 - the journal's word
        """Append an event to the run's journal, if this worker still holds the run.

        In a turn of a loop, an ``event_id`` is made unique to that turn.
        """
        at_once(self._emit(type, payload, event_id))


class Turn(JobSteps):
    """One turn of a loop in a run, with the steps that belong to it."""

    @property
    def number(self) -> int:
        """Return the turn's number, counted from 0."""
        return self._place.turn

    def answers(self) -> tuple[Approval, ...]:
        """Return the answered gates that `ask` created in earlier turns, oldest first."""
        return at_once(self._answers())

    def last_output(self) -> str | None:
        """Return the last output text that a phase of this loop stored, or None."""
        return at_once(self._last_output())


class _Turns(LoopSteps):
    def __iter__(self) -> _Turns:
        return self

    def __next__(self) -> Turn:
        place = at_once(self._next())
        if place is None:
            raise StopIteration
        return Turn(self._held, place)


class Job(JobSteps):
    """A run that a worker holds: the argument of the workflow's function."""

    def __init__(self, held: _HeldRun, place: Place, given: Any = None) -> None:
        super().__init__(held, place)
        self._given = given

    @property
    def input(self) -> Any:
        """Return the run's input as the type declared by ``input=``. Raises `MisuseError` if none is declared.

        An input that does not fit the type fails the run before the function is called.
        """
        return require_input(self._given)


class Worker(Registry[Callable[[Job], Any]]):
    """Drives the runs of its workflows. Each run is driven by the function registered for its workflow.

    ``slots`` is the number of runs driven at a time, each on its own thread. ``cap`` is the most runs of these
    workflows that the queue admits at a time, over all workers. ``owner`` is a name that no other worker has. With
    ``app_versions`` the worker does not take runs that were begun by other versions (`Provenance.app_version`), but
    takes runs without a version.

    When a function returns, its run ends as succeeded, unless the function has ended or paused the run itself.
    `RunFailed` ends the run as failed. Any other exception is a failed try, even one that is not an `Exception`: the
    run waits in the queue and the function is called again, according to its `Retry`. After the last try the run fails
    with that error. If a worker is lost, its runs count a restart. A failed try counts none.

    An unreachable database does not make a try fail: steps wait until the database is back. After an outage of a third
    of a lease, a worker takes only queued runs for half a lease, so that live workers keep their leases.
    """

    def __init__(self, store: StateStore, **settings: Any) -> None:
        """Create a worker over a store.

        ``settings`` are ``owner``, ``slots``, ``cap``, ``lease``, ``grace`` and ``app_versions``.
        """
        super().__init__(**settings)
        self._store: StateStore = store
        self._stop: Flag = Flag()
        self._news: SimpleQueue[str] = SimpleQueue()
        self._jobs: dict[str, tuple[Claim, threading.Thread]] = {}
        self._waiting: threading.Thread | None = None

    def run(self) -> None:
        """Work until `stop` is called. In the main thread, SIGTERM and SIGINT stop the worker, too.

        Then jobs have the time ``grace`` to end their current phase. Runs that have not ended by then are released:
        another worker may take them at once, and no restart is counted. A thread that is still working then ends with
        the process.
        """
        self._refuse_idle()
        with self._signals():
            try:
                while not self._stop.is_set():
                    begun = time.monotonic()
                    try:
                        pause = at_once(self._look())
                    except BackendError as error:
                        _log.warning("the database cannot be used at the moment: %s", error)
                        self._note_outage(begun)
                        pause = common.PAUSE_SECONDS
                    with suppress(Empty):
                        self._news.get(timeout=pause)
            finally:
                self._stop.set()
                self._leave()
                at_once(self._forget())
                self._stop = Flag()  # threads that still work keep the old flag, which is set

    def stop(self) -> None:
        """Make `run` end, and return immediately. May be called from any thread and in a signal handler."""
        self._stop.set()
        self._news.put("stop")

    def _start(self, claim: Claim) -> None:
        thread = threading.Thread(target=self._work, args=(claim,), name=f"run-{claim.run_id}", daemon=True)
        self._jobs[claim.run_id] = claim, thread
        thread.start()

    def _watch(self) -> None:  # on a thread, so that signals and `stop` are noticed meanwhile
        waiting = self._waiting
        if waiting is None or not waiting.is_alive():
            ended = self._stop.is_set  # the flag of this `run`, so that the thread ends soon after it
            self._waiting = threading.Thread(target=self._wait, args=(ended,), name="lastlight-worker", daemon=True)
            self._waiting.start()

    def _wait(self, ended: Callable[[], bool]) -> None:
        with suppress(StateError):
            self._store.workflows.queue._work_wait(poll_interval=None, **self._waiting_for).wait(ended)
        self._waiting = None
        self._news.put("work")

    def _work(self, claim: Claim) -> None:
        try:
            at_once(self._drive(claim))
        finally:
            self._jobs.pop(claim.run_id, None)
            self._news.put("ended")

    def _held_run(self, run: WorkflowRun, driven: Any) -> _HeldRun:
        return _HeldRun(self._store, run, driven, self._stop, self._wait_out)

    def _job(self, held: _HeldRun, given: Any) -> Job:
        return Job(held, held.memory.whole, given)

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def _leave(self) -> None:
        """Wait up to ``grace`` for the jobs to end. Release the runs of jobs that have not ended."""
        until = time.monotonic() + self.grace.total_seconds()
        for claim, thread in list(self._jobs.values()):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                with suppress(StateError):
                    self._store.workflows.claims.release(claim)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Call `stop` at SIGTERM and SIGINT during the block, if this is the main thread."""
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
