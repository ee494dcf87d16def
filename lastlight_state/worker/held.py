"""A run that a worker holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from lastlight_state.errors import BackendError, ClaimLost
from lastlight_state.worker.calls import Left, result_of
from lastlight_state.worker.memory import Memory
from lastlight_state.workflows import WorkflowRun

if TYPE_CHECKING:
    from lastlight_state.store import StateStore
    from lastlight_state.workflows import Driven

S = TypeVar("S")
W = TypeVar("W")
J = TypeVar("J")
B = TypeVar("B")


class Stop(Protocol):
    """An event that is set when the worker's jobs should end."""

    def is_set(self) -> bool:
        """True if the worker's jobs should end."""


class HeldRun(Generic[S, W, J, B]):
    """A run that a worker holds: its store, its claim, and the stored results of its steps."""

    def __init__(
        self,
        store: S,
        run: WorkflowRun,
        driven: Driven[W, J, B],
        stop: Stop,
        wait_out: Callable[[str, BackendError, float], Awaitable[None]],
    ) -> None:
        self.store = store
        self.run = run
        self.workflows = driven.workflows
        self.journal = driven.journal
        sync: StateStore = getattr(store, "_store", cast(Any, store))
        self.limits = sync.settings.limits
        self.now = sync._context.clock.now
        self.memory = Memory(run, self.limits)
        self.driven = driven
        self._stop = stop
        #: A lock around storing a result: scratch keeps all results of a loop's turn in one value.
        self.storing_lock: AbstractAsyncContextManager[Any] = nullcontext()
        self._wait_out = wait_out

    def check(self) -> None:
        """Raise `Left` if the claim is lost, a cancel of the run was requested, or the worker stops."""
        if self._stop.is_set() or self.driven.lost or self.driven.cancel_requested:
            raise Left

    async def outlast(self, away: BackendError, begun: float) -> None:
        """Pause after the database failed a call that began at ``begun``.

        Raises the error ``away`` if the claim is lost.
        """
        if self.driven.lost:
            raise away
        await self._wait_out(self.run.id, away, begun)

    async def await_result(self, value: Any) -> Any:
        """Return the result of the workflow author's function, awaited if it is awaitable."""
        return await result_of(value)

    def is_stopped_by(self, error: BaseException) -> bool:
        """True if the error ends the job from outside, that is, because its task was cancelled."""
        return False

    def is_lost(self, error: BaseException) -> bool:
        """True if the error means that another worker holds this run, or that the claim is lost."""
        of_run = getattr(error, "run_id", None) == self.run.id
        return self.driven.lost or (isinstance(error, ClaimLost) and error.kind == "run" and of_run)
