"""What workers of threads and of tasks share: which function drives which workflow, and how a job ends early."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.workflows import Failure, Gate, WorkflowRun

F = TypeVar("F", bound=Callable[..., Any])

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
    """How a worker is: the runs it drives, and the seconds since it last reached its database (None: not yet)."""

    run_ids: tuple[str, ...]
    seconds_unreached: float | None
    stopping: bool

    @property
    def is_healthy(self) -> bool:
        """True if the worker has reached its database lately."""
        return self.seconds_unreached is not None and self.seconds_unreached < HEALTHY_SWEEPS * SWEEP_SECONDS


class Registry(Generic[F]):
    """The functions of workflows, and the settings of a worker."""

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

    @property
    def _names(self) -> list[str]:
        if not self._functions:
            raise MisuseError("the worker has no workflow: register one with @worker.workflow(name)")
        return list(self._functions)

    @property
    def _seconds_since_sweep(self) -> float | None:
        return None if self._swept is None else time.monotonic() - self._swept

    @property
    def _sweep_is_due(self) -> bool:
        return self._swept is None or time.monotonic() - self._swept >= SWEEP_SECONDS

    @property
    def _admitting(self) -> dict[str, Any]:
        return {"cap": self.cap, "workflow_names": self._names, "workflow_caps": self._caps}

    @property
    def _taking(self) -> dict[str, Any]:
        return {"owner": self.owner, "lease": self.lease}


def done_phases(run: WorkflowRun) -> Iterator[str]:
    """Yield the phases that succeeded."""
    return (entry.phase for entry in run.phase_history if entry.success)


def gate_of(gate: Gate | str, summary: str | None, details: Mapping[str, Any]) -> Gate:
    """Return the gate that `Job.ask` was asked for."""
    if isinstance(gate, Gate):
        return gate
    if summary is None:
        raise InvalidValue("summary", "a gate needs a text for the person who answers it")
    return Gate(gate, summary, **details)
