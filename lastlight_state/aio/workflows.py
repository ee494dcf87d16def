"""The async form of ``store.workflows``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from lastlight_state.aio.blocks import block, enter_block
from lastlight_state.aio.forward import Face, Runner, Waker, forward_read, forward_write, run_poll
from lastlight_state.lazy import Part
from lastlight_state.workflows import Claim, WorkflowRun, Workflows
from lastlight_state.workflows.approvals import Approvals
from lastlight_state.workflows.claims import Claims
from lastlight_state.workflows.executions import Executions
from lastlight_state.workflows.health import Health
from lastlight_state.workflows.human_requests import HumanRequests
from lastlight_state.workflows.lookups import Lookups
from lastlight_state.workflows.loops import Loops
from lastlight_state.workflows.nodes import Nodes
from lastlight_state.workflows.overrides import Overrides
from lastlight_state.workflows.queue import Queue
from lastlight_state.workflows.runs import Runs
from lastlight_state.workflows.shared.overdue import WorkWait
from lastlight_state.workflows.usage import Rollups
from lastlight_state.workflows.waits import Waits
from lastlight_state.workflows.workers import Workers

if TYPE_CHECKING:
    from lastlight_state.workflows.claims.driving import DrivenRun


async def _wait_for_work(runner: Runner, awaited: WorkWait) -> bool:
    if await run_poll(runner, awaited.limit, awaited.look):
        return True
    woken = Waker()
    with awaited.arrivals(woken.up) as arrivals:
        return await woken.wait_for_arrival(arrivals)


class AsyncRuns(Face[Runs]):
    """The async form of ``store.workflows.runs``."""

    create = forward_write(Runs.create)
    ensure = forward_write(Runs.ensure)
    get = forward_read(Runs.get)
    find = forward_read(Runs.find)
    get_resume = forward_read(Runs.get_resume)
    list = forward_read(Runs.list)
    append_phase = forward_write(Runs.append_phase)
    merge_scratch = forward_write(Runs.merge_scratch)
    set_trace = forward_write(Runs.set_trace)
    finish = forward_write(Runs.finish)
    request_cancel = forward_write(Runs.request_cancel)
    cancel = forward_write(Runs.cancel)
    restart = forward_write(Runs.restart)
    allow_restarts = forward_write(Runs.allow_restarts)


class AsyncExecutions(Face[Executions]):
    """The async form of ``store.workflows.executions``."""

    start = forward_write(Executions.start)
    running = block(Executions.running)
    skip = forward_write(Executions.skip)
    update = forward_write(Executions.update)
    finish = forward_write(Executions.finish)
    finish_phase = forward_write(Executions.finish_phase)
    interrupt = forward_write(Executions.interrupt)
    overrule = forward_write(Executions.overrule)
    phase_state = forward_read(Executions.phase_state)
    get = forward_read(Executions.get)
    find_by_session = forward_read(Executions.find_by_session)
    list = forward_read(Executions.list)
    save_output = forward_write(Executions.save_output)
    find_output = forward_read(Executions.find_output)


class AsyncClaims(Face[Claims[Workflows]]):
    """The async form of ``store.workflows.claims``."""

    list_claimable = forward_read(Claims.list_claimable)
    take = forward_write(Claims.take)
    try_take = forward_write(Claims.try_take)
    take_next = forward_write(Claims.take_next)
    heartbeat = forward_write(Claims.heartbeat)
    heartbeat_many = forward_write(Claims.heartbeat_many)
    confirm = forward_write(Claims.confirm)
    transfer = forward_write(Claims.transfer)
    release = forward_write(Claims.release)
    give_up = forward_write(Claims.give_up)
    find = forward_read(Claims.find)

    async def wait(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - as the sync method
        workflow_names: Sequence[str] | None = None,
        app_versions: Sequence[str] | None = None,
        poll_interval: float | None = None,
    ) -> bool:
        """See the sync `wait`. No thread is blocked during the wait."""
        awaited = self._target._work_wait(timeout, workflow_names, app_versions, poll_interval)
        return await _wait_for_work(self._runner, awaited)

    @asynccontextmanager
    async def driving(self, claim: Claim) -> AsyncIterator[DrivenRun[AsyncWorkflows]]:
        """See `Claims.driving`. Use it with ``async with``.

        If the task is cancelled inside the block, the run is released.
        """
        async with enter_block(self._runner, self._target.driving(claim)) as run:
            driven = cast("DrivenRun[AsyncWorkflows]", run)
            driven.workflows = AsyncWorkflows(run.workflows, self._runner)
            yield driven


class AsyncLoops(Face[Loops]):
    """The async form of ``store.workflows.loops``."""

    put = forward_write(Loops.put)
    advance = forward_write(Loops.advance)
    finish = forward_write(Loops.finish)
    find = forward_read(Loops.find)
    list = forward_read(Loops.list)
    carry = forward_write(Loops.carry)
    find_output = forward_read(Loops.find_output)


class AsyncNodes(Face[Nodes]):
    """The async form of ``store.workflows.nodes``."""

    put = forward_write(Nodes.put)
    put_many = forward_write(Nodes.put_many)
    update = forward_write(Nodes.update)
    get = forward_read(Nodes.get)
    find = forward_read(Nodes.find)
    list = forward_read(Nodes.list)
    counts = forward_read(Nodes.counts)
    list_due = forward_read(Nodes.list_due)
    list_waiting = forward_read(Nodes.list_waiting)


class AsyncOverrides(Face[Overrides]):
    """The async form of ``store.workflows.overrides``."""

    is_enabled = forward_read(Overrides.is_enabled)
    put = forward_write(Overrides.put)
    find = forward_read(Overrides.find)
    list = forward_read(Overrides.list)
    clear = forward_write(Overrides.clear)


class AsyncApprovals(Face[Approvals]):
    """The async form of ``store.workflows.approvals``."""

    create = forward_write(Approvals.create)
    pause = forward_write(Approvals.pause)
    answer = forward_write(Approvals.answer)
    consume = forward_write(Approvals.consume)
    cancel = forward_write(Approvals.cancel)
    expire_due = forward_write(Approvals.expire_due)
    get = forward_read(Approvals.get)
    find = forward_read(Approvals.find)
    list_for_run = forward_read(Approvals.list_for_run)
    list = forward_read(Approvals.list)
    list_pending = forward_read(Approvals.list_pending)
    count_pending = forward_read(Approvals.count_pending)
    list_history = forward_read(Approvals.list_history)


class AsyncHumanRequests(Face[HumanRequests]):
    """The async form of ``store.workflows.human_requests``."""

    create = forward_write(HumanRequests.create)
    pause = forward_write(HumanRequests.pause)
    answer = forward_write(HumanRequests.answer)
    cancel = forward_write(HumanRequests.cancel)
    reopen = forward_write(HumanRequests.reopen)
    expire_due = forward_write(HumanRequests.expire_due)
    get = forward_read(HumanRequests.get)
    find = forward_read(HumanRequests.find)
    list_for_run = forward_read(HumanRequests.list_for_run)
    list_pending = forward_read(HumanRequests.list_pending)
    count_pending = forward_read(HumanRequests.count_pending)


class AsyncQueue(Face[Queue]):
    """The async form of ``store.workflows.queue``."""

    list = forward_read(Queue.list)
    admit = forward_write(Queue.admit)
    admit_next = forward_write(Queue.admit_next)
    requeue = forward_write(Queue.requeue)
    expire = forward_write(Queue.expire)

    async def wait(
        self,
        *,
        cap: int,
        timeout: float,  # noqa: ASYNC109 - as the sync method
        workflow_names: Sequence[str] | None = None,
        workflow_caps: Mapping[str, int] | None = None,
        app_versions: Sequence[str] | None = None,
        claimable: bool = False,
        poll_interval: float | None = None,
    ) -> bool:
        """See the sync `wait`. No thread is blocked during the wait."""
        awaited = self._target._work_wait(
            cap, timeout, workflow_names, workflow_caps, app_versions, claimable, poll_interval
        )
        return await _wait_for_work(self._runner, awaited)


class AsyncWaits(Face[Waits]):
    """The async form of ``store.workflows.waits``."""

    pause = forward_write(Waits.pause)
    resume = forward_write(Waits.resume)
    list_waiting = forward_read(Waits.list_waiting)


class AsyncRollups(Face[Rollups]):
    """The async form of ``store.workflows.usage``."""

    for_run = forward_read(Rollups.for_run)
    daily = forward_read(Rollups.daily)
    hourly = forward_read(Rollups.hourly)
    by = forward_read(Rollups.by)
    stats = forward_read(Rollups.stats)
    failure_streak = forward_read(Rollups.failure_streak)
    list_threads = forward_read(Rollups.list_threads)


class AsyncLookups(Face[Lookups]):
    """The async form of ``store.workflows.lookups``."""

    find_for_trigger = forward_read(Lookups.find_for_trigger)
    latest_by_workflow = forward_read(Lookups.latest_by_workflow)
    list_children = forward_read(Lookups.list_children)
    list_ancestors = forward_read(Lookups.list_ancestors)
    list_transitions = forward_read(Lookups.list_transitions)
    count = forward_read(Lookups.count)
    names = forward_read(Lookups.names)
    repos = forward_read(Lookups.repos)
    activity = forward_read(Lookups.activity)
    get_task = forward_read(Lookups.get_task)
    get_errors = forward_read(Lookups.get_errors)
    search_errors = forward_read(Lookups.search_errors)


class AsyncHealth(Face[Health]):
    """The async form of ``store.workflows.health``."""

    get_state = forward_read(Health.get_state)
    get_states = forward_read(Health.get_states)
    list_unhealthy = forward_read(Health.list_unhealthy)


class AsyncWorkers(Face[Workers]):
    """The async form of ``store.workflows.workers``."""

    announce = forward_write(Workers.announce)
    remove = forward_write(Workers.remove)
    get = forward_read(Workers.get)
    list = forward_read(Workers.list)
    list_waiting = forward_read(Workers.list_waiting)


class AsyncWorkflows(Face[Workflows]):
    """The async form of ``store.workflows``."""

    #: Workflow runs.
    runs: Part[AsyncRuns] = Part("lastlight_state.aio.workflows.AsyncRuns")
    #: Phase executions, chat turns and node attempts.
    executions: Part[AsyncExecutions] = Part("lastlight_state.aio.workflows.AsyncExecutions")
    #: Claims: which worker drives which run.
    claims: Part[AsyncClaims] = Part("lastlight_state.aio.workflows.AsyncClaims")
    #: States of the nodes in runs' graphs.
    nodes: Part[AsyncNodes] = Part("lastlight_state.aio.workflows.AsyncNodes")
    #: Loops of runs: their current iteration and the values it passes on.
    loops: Part[AsyncLoops] = Part("lastlight_state.aio.workflows.AsyncLoops")
    #: Kill switches of workflows.
    overrides: Part[AsyncOverrides] = Part("lastlight_state.aio.workflows.AsyncOverrides")
    #: Gates: questions that runs wait for.
    approvals: Part[AsyncApprovals] = Part("lastlight_state.aio.workflows.AsyncApprovals")
    #: Requests to people: forms, choices, confirmations, free text.
    human_requests: Part[AsyncHumanRequests] = Part("lastlight_state.aio.workflows.AsyncHumanRequests")
    #: The queue: runs that wait to be admitted.
    queue: Part[AsyncQueue] = Part("lastlight_state.aio.workflows.AsyncQueue")
    #: Pauses until a time, for a signal, or by an operator.
    waits: Part[AsyncWaits] = Part("lastlight_state.aio.workflows.AsyncWaits")
    #: Look-ups of runs by various criteria.
    lookups: Part[AsyncLookups] = Part("lastlight_state.aio.workflows.AsyncLookups")
    #: The current health of runs.
    health: Part[AsyncHealth] = Part("lastlight_state.aio.workflows.AsyncHealth")
    #: Workers that were seen lately, and the runs that wait for one.
    workers: Part[AsyncWorkers] = Part("lastlight_state.aio.workflows.AsyncWorkers")
    #: Token usage and cost of executions, summed up.
    usage: Part[AsyncRollups] = Part("lastlight_state.aio.workflows.AsyncRollups")

    def on_terminal(self, callback: Callable[[WorkflowRun], object]) -> Callable[[], None]:
        """See `Workflows.on_terminal`. The callback runs on the worker thread that committed."""
        return self._target.on_terminal(callback)
