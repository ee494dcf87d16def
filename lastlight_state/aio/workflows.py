"""``store.workflows`` from coroutines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.workflows import WorkflowRun, Workflows
from lastlight_state.workflows.runs import Runs


class AsyncRuns(Face[Runs]):
    """``store.workflows.runs``"""

    create = writing(Runs.create)
    ensure = writing(Runs.ensure)
    get = reading(Runs.get)
    list = reading(Runs.list)
    append_phase = writing(Runs.append_phase)
    merge_scratch = writing(Runs.merge_scratch)
    set_trace = writing(Runs.set_trace)
    finish = writing(Runs.finish)
    request_cancel = writing(Runs.request_cancel)
    cancel = writing(Runs.cancel)
    restart = writing(Runs.restart)
    allow_restarts = writing(Runs.allow_restarts)


class AsyncWorkflows(Face[Workflows]):
    """``store.workflows``"""

    @cached_property
    def runs(self) -> AsyncRuns:
        """Workflow runs."""
        return AsyncRuns(self._target.runs, self._runner)

    def on_terminal(self, callback: Callable[[WorkflowRun], object]) -> Callable[[], None]:
        """As `Workflows.on_terminal`; the callback runs on the worker thread that committed."""
        return self._target.on_terminal(callback)
