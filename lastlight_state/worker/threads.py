"""A worker whose functions run on threads."""

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
from lastlight_state.worker.steps import Steps, declared
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
    """An event without a lock: a signal may come in the middle of `set`, and its handler calls it again."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Tell jobs to leave."""
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether they are to leave."""
        return self._is_set


class _HeldRun(HeldRun["StateStore", Workflows, _Journal, _Block]):
    async def awaited(self, value: Any) -> Any:
        if isawaitable(value):
            if iscoroutine(value):
                value.close()
            raise MisuseError("a function of a Worker must not be a coroutine: use AsyncWorker")
        return value


class JobSteps(Steps["StateStore", Workflows, _Journal, _Block]):
    """The steps of a run on a thread. Each has a name, and is done once for its run, or for its turn of a loop."""

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

        A phase is an execution of the run. Where ``work`` takes an argument, it is given the `RunningExecution`, to set
        ``session_id``, ``usage``, ``output`` and ``details``; all of that, the result and the phase are stored in one
        commit. The result is JSON of at most 1 MiB: small ones are kept in the run's scratch, others as the output of
        the execution. Without a result it is the output that ``work`` has set. ``returns`` names the type of a result
        that is no JSON: a pydantic model, a dataclass. The value is the same at first and after a resume: what comes
        back is what was stored, so a tuple is a list.

        A phase that succeeded before, also in another process, is not done again. If the process dies in it, the next
        worker does it anew. A result that cannot be stored ends the run as failed (`RunFailed`).
        """
        return at_once(self._phase(name, work, returns))

    @overload
    def ask(self, gate: Question) -> HumanRequest: ...
    @overload
    def ask(self, gate: Gate | str, summary: str | None = None, **details: Any) -> Approval: ...
    def ask(self, gate: Gate | Question | str, summary: str | None = None, **details: Any) -> Approval | HumanRequest:
        """Ask a person, and return the gate or question once it is answered, rejected, expired or withdrawn.

        Until then the run is paused and held by nobody: this call leaves the function, which is called anew after the
        answer. ``details`` are fields of `Gate`. A rejection fails the run unless ``on_reject="resume"``. A `Question`
        asks for a choice or a form. In a turn of a loop, a gate that is asked by its name stands at the loop's node,
        and a question in the iteration of the turn.
        """
        if isinstance(gate, Question):
            return at_once(self._question(gate))
        return at_once(self._ask(gate, summary, details))

    def sleep(self, length: timedelta | None = None, *, until: datetime | None = None, name: str = "sleep") -> None:
        """Pause the run, held by nobody, for a length of time that begins at the first call, or until a time.

        A second sleep in one place of the run needs a ``name`` of its own.
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
        """Return the oldest signal of this name that no step has taken; pause the run until there is one.

        With ``correlation_id`` only a signal with that. None if none came within ``timeout`` of the first call. A
        second wait for a signal in one place of the run needs a ``name`` of its own.
        """
        return at_once(self._wait_for(signal, correlation_id, timeout, name))

    def loop(self, name: str, *, limit: int | None = None) -> Iterator[Turn]:
        """Return the turns of a loop, at most ``limit``. The names of steps are apart in each turn.

        A run that is resumed goes on in the turn in which it was. Leave the loop by ``break``.
        """
        return _Turns(self._held, self._place, name, limit)

    def emit(self, type: str, payload: dict[str, Any] | None = None, *, event_id: str | None = None) -> None:  # noqa: A002 - the journal's word
        """Append an event to the run's journal, if this worker still has the run.

        An ``event_id`` is made unique for the turn of a loop.
        """
        at_once(self._emit(type, payload, event_id))


class Turn(JobSteps):
    """One turn of a loop of a run: the steps that belong to it. ``number`` is 0 in the first turn."""

    @property
    def number(self) -> int:
        """Return the number of turns before this one."""
        return self._place.turn

    def answers(self) -> tuple[Approval, ...]:
        """Return the gates that `ask` asked in earlier turns, with their answers, oldest first."""
        return at_once(self._answers())

    def last_output(self) -> str | None:
        """Return the text of the last phase of this loop that stored an output, or None."""
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
    """A run in the hands of a worker: what the function of its workflow gets."""

    def __init__(self, held: _HeldRun, place: Place, given: Any = None) -> None:
        super().__init__(held, place)
        self._given = given

    @property
    def input(self) -> Any:
        """Return the run's input as the type that the workflow declares with ``input=``. Else raises `MisuseError`."""
        return declared(self._given)


class Worker(Registry[Callable[[Job], Any]]):
    """Drives the runs of its workflows, each by the function that is registered for it.

    ``slots`` runs go on at a time, each on a thread of its own. ``cap`` bounds the running runs of these workflows that
    come from the queue, over all workers. ``owner`` names this worker and no other. With ``app_versions`` runs that
    were begun by other versions are left alone (`Provenance.app_version`); those without a version are not.

    A function that returns ends its run as succeeded, unless it has ended or paused the run itself. One that raises
    `RunFailed` ends it as failed. Any other exception is a failed try, also one that is no `Exception`: the run waits
    in the queue and the function is called again, as its `Retry` says, and after the last try the run fails with its
    error. A worker that is lost is a restart of its runs; a failed try is none.

    A database that is away is no failed try: steps wait until it is back. After an outage of a third of a lease a
    worker takes only queued runs for half a lease, so that workers that live keep theirs.
    """

    def __init__(self, store: StateStore, **settings: Any) -> None:
        """Make a worker over a store.

        ``settings`` are ``owner``, ``slots``, ``cap``, ``lease``, ``grace`` and ``app_versions``.
        """
        super().__init__(**settings)
        self._store: StateStore = store
        self._stop: Flag = Flag()
        self._news: SimpleQueue[str] = SimpleQueue()
        self._jobs: dict[str, tuple[Claim, threading.Thread]] = {}
        self._waiting: threading.Thread | None = None

    def run(self) -> None:
        """Work until `stop` is called, or until SIGTERM or SIGINT comes where this is the main thread.

        Then jobs may go on to the end of their phase, for ``grace``. Runs that have not ended are given back, at no
        restart and to be taken at once. A thread that is still at work ends with the process.
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
                self._stop = Flag()  # a thread that is still at work keeps the one that is set

    def stop(self) -> None:
        """Tell `run` to end. Takes effect from any thread and in a signal handler, and returns at once."""
        self._stop.set()
        self._news.put("stop")

    def _start(self, claim: Claim) -> None:
        thread = threading.Thread(target=self._work, args=(claim,), name=f"run-{claim.run_id}", daemon=True)
        self._jobs[claim.run_id] = claim, thread
        thread.start()

    def _watch(self) -> None:  # on a thread, so that signals and `stop` are heard meanwhile
        waiting = self._waiting
        if waiting is None or not waiting.is_alive():
            ended = self._stop.is_set  # of this `run`: the thread is gone soon after its end
            self._waiting = threading.Thread(target=self._wait, args=(ended,), name="lastlight-worker", daemon=True)
            self._waiting.start()

    def _wait(self, ended: Callable[[], bool]) -> None:
        with suppress(StateError):
            self._store.workflows.queue._awaited(poll_interval=None, **self._waiting_for).wait(ended)
        self._waiting = None
        self._news.put("work")

    def _work(self, claim: Claim) -> None:
        try:
            at_once(self._drive(claim))
        finally:
            self._jobs.pop(claim.run_id, None)
            self._news.put("ended")

    def _held(self, run: WorkflowRun, driven: Any) -> _HeldRun:
        return _HeldRun(self._store, run, driven, self._stop, self._wait_out)

    def _job(self, held: _HeldRun, given: Any) -> Job:
        return Job(held, held.memory.whole, given)

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)

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
