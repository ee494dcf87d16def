"""``store.workflows`` from coroutines."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.workflows import WorkflowRun, Workflows
from lastlight_state.workflows.approvals import Approvals
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


class AsyncApprovals(Face[Approvals]):
    """``store.workflows.approvals``"""

    create = writing(Approvals.create)
    pause = writing(Approvals.pause)
    answer = writing(Approvals.answer)
    consume = writing(Approvals.consume)
    cancel = writing(Approvals.cancel)
    expire_due = writing(Approvals.expire_due)
    get = reading(Approvals.get)
    list_for_run = reading(Approvals.list_for_run)
    list = reading(Approvals.list)
    list_pending = reading(Approvals.list_pending)
    count_pending = reading(Approvals.count_pending)
    list_history = reading(Approvals.list_history)


class AsyncWorkflows(Face[Workflows]):
    """``store.workflows``"""

    @cached_property
    def runs(self) -> AsyncRuns:
        """Workflow runs."""
        return AsyncRuns(self._target.runs, self._runner)

    @cached_property
    def approvals(self) -> AsyncApprovals:
        """Gates: questions that runs wait for."""
        return AsyncApprovals(self._target.approvals, self._runner)

    def on_terminal(self, callback: Callable[[WorkflowRun], object]) -> Callable[[], None]:
        """As `Workflows.on_terminal`; the callback runs on the worker thread that committed."""
        return self._target.on_terminal(callback)
