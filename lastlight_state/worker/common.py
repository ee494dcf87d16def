"""What workers of threads and of tasks share: which function drives which workflow, and how a job ends early."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.workflows import Claim, Failure, Gate, WorkflowRun

if TYPE_CHECKING:
    from lastlight_state.workflows import Driven

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
W = TypeVar("W")
J = TypeVar("J")
B = TypeVar("B")

#: Seconds between two sweeps: the ends of runs that nobody is to go on with.
SWEEP_SECONDS = 30.0
#: Seconds of one wait for work. It ends at once when there is some.
WAIT_SECONDS = 300.0
#: Seconds until the next try after the database could not be reached.
PAUSE_SECONDS = 1.0
#: A worker is healthy if it has reached its database within this many sweeps.
HEALTHY_SWEEPS = 3
#: More runs than any database holds at a time: no cap.
NO_CAP = 2**31 - 1


class RunFailed(Exception):
    """Raise this in the function of a workflow to end its run as failed, with no further try."""

    def __init__(self, error: str, *, detail: Any = None) -> None:
        super().__init__(error)
        self.failure = Failure(error, detail)


class Left(BaseException):
    """Leaves the function of a workflow: the run was paused, or is to be given back. Not for ``except Exception``."""


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


class Stop(Protocol):
    """The event that tells jobs to leave."""

    def is_set(self) -> bool:
        """Return whether they are to leave."""


class HeldRun(Generic[S, W, J, B]):
    """What the jobs of threads and of tasks have in common.

    ``run`` is the run as it was when the worker took it, ``store`` the worker's store. The engine writes of
    ``workflows``, and all writes of ``journal``, present the claim, so that none is accepted after another worker has
    the run.
    """

    def __init__(self, store: S, run: WorkflowRun, driven: Driven[W, J, B], stop: Stop) -> None:
        self.store = store
        self.run = run
        self.workflows = driven.workflows
        self.journal = driven.journal
        self._driven = driven
        self._stop = stop
        done = (entry.phase for entry in run.phase_history if entry.success)
        self._results = {name: (run.scratch or {}).get(name) for name in done}

    @property
    def claim(self) -> Claim:
        """Return the claim of the run, as it was last renewed."""
        return self._driven.claim

    def transaction(self, *, label: str | None = None) -> B:
        """Return a transaction of any domain, which is stored only if this worker still has the run."""
        return self._driven.transaction(label=label)

    def check(self) -> None:
        """Leave the function if the run is lost or is to be cancelled, or if the worker stops.

        `phase` and `ask` call it first. Call it in long work, at a place where the run may be taken up again.
        """
        if self._stop.is_set() or self._driven.lost or self._driven.cancel_requested:
            raise Left

    @property
    def _ends_cancelled(self) -> bool:
        """Return whether the function left because somebody asked to cancel the run."""
        return self._driven.cancel_requested and not self._driven.lost


class Registry(Generic[F]):
    """The functions of workflows, and the settings and the state of a worker."""

    _stop: Stop

    def __init__(
        self,
        *,
        owner: str | None = None,
        slots: int = 1,
        cap: int = NO_CAP,
        lease: timedelta = timedelta(seconds=30),
        grace: timedelta = timedelta(seconds=10),
    ) -> None:
        if slots < 1:
            raise InvalidValue("slots", "must be at least 1")
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.slots = slots
        self.cap = cap
        self.lease = lease
        self.grace = grace
        self._functions: dict[str, F] = {}
        self._caps: dict[str, int] = {}
        self._swept: float | None = None
        self._jobs: dict[str, Any] = {}

    def workflow(self, name: str, *, cap: int | None = None) -> Callable[[F], F]:
        """Register the decorated function for the runs of a workflow.

        ``cap``: at most so many runs of it are admitted from the queue at a time, by all workers together.
        """

        if name in self._functions:
            raise MisuseError(f"workflow {name!r} has a function already")

        def register(function: F) -> F:
            self._functions[name] = function
            if cap is not None:
                self._caps[name] = cap
            return function

        return register

    def health(self) -> Health:
        """Return what a probe wants to know. May be called from any thread."""
        unreached = None if self._swept is None else time.monotonic() - self._swept
        return Health(tuple(self._jobs), unreached, self._stop.is_set())

    @property
    def _names(self) -> list[str]:
        if not self._functions:
            raise MisuseError("the worker has no workflow: register one with @worker.workflow(name)")
        return list(self._functions)

    @property
    def _sweep_is_due(self) -> bool:
        return self._swept is None or time.monotonic() - self._swept >= SWEEP_SECONDS

    @property
    def _admitting(self) -> dict[str, Any]:
        return {"cap": self.cap, "workflow_names": self._names, "workflow_caps": self._caps}

    @property
    def _taking(self) -> dict[str, Any]:
        return {"owner": self.owner, "lease": self.lease}


def gate_of(gate: Gate | str, summary: str | None, details: Mapping[str, Any]) -> Gate:
    """Return the gate that `Job.ask` was asked for."""
    if isinstance(gate, Gate):
        return gate
    if summary is None:
        raise InvalidValue("summary", "a gate needs a text for the person who answers it")
    return Gate(gate, summary, **details)
