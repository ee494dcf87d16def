"""The async form of ``store.workflows``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

from lastlight_state.aio.blocks import block, entered
from lastlight_state.aio.forward import Face, Runner, Waker, looked, reading, writing
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


async def _waited(runner: Runner, awaited: WorkWait) -> bool:
    if await looked(runner, awaited.limit, awaited.look):
        return True
    woken = Waker()
    with awaited.arrivals(woken.up) as arrivals:
        return await woken.arrived(arrivals)


class AsyncRuns(Face[Runs]):
    """The async form of ``store.workflows.runs``."""

    create = writing(Runs.create)
    ensure = writing(Runs.ensure)
    get = reading(Runs.get)
    find = reading(Runs.find)
    get_resume = reading(Runs.get_resume)
    list = reading(Runs.list)
    append_phase = writing(Runs.append_phase)
    merge_scratch = writing(Runs.merge_scratch)
    set_trace = writing(Runs.set_trace)
    finish = writing(Runs.finish)
    request_cancel = writing(Runs.request_cancel)
    cancel = writing(Runs.cancel)
    restart = writing(Runs.restart)
    allow_restarts = writing(Runs.allow_restarts)


class AsyncExecutions(Face[Executions]):
    """The async form of ``store.workflows.executions``."""

    start = writing(Executions.start)
    running = block(Executions.running)
    skip = writing(Executions.skip)
    update = writing(Executions.update)
    finish = writing(Executions.finish)
    finish_phase = writing(Executions.finish_phase)
    interrupt = writing(Executions.interrupt)
    overrule = writing(Executions.overrule)
    phase_state = reading(Executions.phase_state)
    get = reading(Executions.get)
    find_by_session = reading(Executions.find_by_session)
    list = reading(Executions.list)
    save_output = writing(Executions.save_output)
    find_output = reading(Executions.find_output)


class AsyncClaims(Face[Claims[Workflows]]):
    """The async form of ``store.workflows.claims``."""

    list_claimable = reading(Claims.list_claimable)
    take = writing(Claims.take)
    try_take = writing(Claims.try_take)
    take_next = writing(Claims.take_next)
    heartbeat = writing(Claims.heartbeat)
    heartbeat_many = writing(Claims.heartbeat_many)
    confirm = writing(Claims.confirm)
    transfer = writing(Claims.transfer)
    release = writing(Claims.release)
    give_up = writing(Claims.give_up)
    find = reading(Claims.find)

    async def wait(
        self,
        *,
        timeout: float,  # noqa: ASYNC109 - as the sync method
        workflow_names: Sequence[str] | None = None,
        app_versions: Sequence[str] | None = None,
        poll_interval: float | None = None,
    ) -> bool:
        """See the sync `wait`. No thread is blocked during the wait."""
        awaited = self._target._awaited(timeout, workflow_names, app_versions, poll_interval)
        return await _waited(self._runner, awaited)

    @asynccontextmanager
    async def driving(self, claim: Claim) -> AsyncIterator[DrivenRun[AsyncWorkflows]]:
        """See `Claims.driving`. Use it with ``async with``.

        If the task is cancelled inside the block, the run is released.
        """
        async with entered(self._runner, self._target.driving(claim)) as run:
            driven = cast("DrivenRun[AsyncWorkflows]", run)
            driven.workflows = AsyncWorkflows(run.workflows, self._runner)
            yield driven


class AsyncLoops(Face[Loops]):
    """The async form of ``store.workflows.loops``."""

    put = writing(Loops.put)
    advance = writing(Loops.advance)
    finish = writing(Loops.finish)
    find = reading(Loops.find)
    list = reading(Loops.list)
    carry = writing(Loops.carry)
    find_output = reading(Loops.find_output)


class AsyncNodes(Face[Nodes]):
    """The async form of ``store.workflows.nodes``."""

    put = writing(Nodes.put)
    put_many = writing(Nodes.put_many)
    update = writing(Nodes.update)
    get = reading(Nodes.get)
    find = reading(Nodes.find)
    list = reading(Nodes.list)
    counts = reading(Nodes.counts)
    list_due = reading(Nodes.list_due)
    list_waiting = reading(Nodes.list_waiting)


class AsyncOverrides(Face[Overrides]):
    """The async form of ``store.workflows.overrides``."""

    is_enabled = reading(Overrides.is_enabled)
    put = writing(Overrides.put)
    find = reading(Overrides.find)
    list = reading(Overrides.list)
    clear = writing(Overrides.clear)


class AsyncApprovals(Face[Approvals]):
    """The async form of ``store.workflows.approvals``."""

    create = writing(Approvals.create)
    pause = writing(Approvals.pause)
    answer = writing(Approvals.answer)
    consume = writing(Approvals.consume)
    cancel = writing(Approvals.cancel)
    expire_due = writing(Approvals.expire_due)
    get = reading(Approvals.get)
    find = reading(Approvals.find)
    list_for_run = reading(Approvals.list_for_run)
    list = reading(Approvals.list)
    list_pending = reading(Approvals.list_pending)
    count_pending = reading(Approvals.count_pending)
    list_history = reading(Approvals.list_history)


class AsyncHumanRequests(Face[HumanRequests]):
    """The async form of ``store.workflows.human_requests``."""

    create = writing(HumanRequests.create)
    pause = writing(HumanRequests.pause)
    answer = writing(HumanRequests.answer)
    cancel = writing(HumanRequests.cancel)
    reopen = writing(HumanRequests.reopen)
    expire_due = writing(HumanRequests.expire_due)
    get = reading(HumanRequests.get)
    find = reading(HumanRequests.find)
    list_for_run = reading(HumanRequests.list_for_run)
    list_pending = reading(HumanRequests.list_pending)
    count_pending = reading(HumanRequests.count_pending)


class AsyncQueue(Face[Queue]):
    """The async form of ``store.workflows.queue``."""

    list = reading(Queue.list)
    admit = writing(Queue.admit)
    admit_next = writing(Queue.admit_next)
    requeue = writing(Queue.requeue)
    expire = writing(Queue.expire)

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
        awaited = self._target._awaited(
            cap, timeout, workflow_names, workflow_caps, app_versions, claimable, poll_interval
        )
        return await _waited(self._runner, awaited)


class AsyncWaits(Face[Waits]):
    """The async form of ``store.workflows.waits``."""

    pause = writing(Waits.pause)
    resume = writing(Waits.resume)
    list_waiting = reading(Waits.list_waiting)


class AsyncRollups(Face[Rollups]):
    """The async form of ``store.workflows.usage``."""

    for_run = reading(Rollups.for_run)
    daily = reading(Rollups.daily)
    hourly = reading(Rollups.hourly)
    by = reading(Rollups.by)
    stats = reading(Rollups.stats)
    failure_streak = reading(Rollups.failure_streak)
    list_threads = reading(Rollups.list_threads)


class AsyncLookups(Face[Lookups]):
    """The async form of ``store.workflows.lookups``."""

    find_for_trigger = reading(Lookups.find_for_trigger)
    latest_by_workflow = reading(Lookups.latest_by_workflow)
    list_children = reading(Lookups.list_children)
    list_ancestors = reading(Lookups.list_ancestors)
    list_transitions = reading(Lookups.list_transitions)
    count = reading(Lookups.count)
    names = reading(Lookups.names)
    repos = reading(Lookups.repos)
    activity = reading(Lookups.activity)
    get_task = reading(Lookups.get_task)
    get_errors = reading(Lookups.get_errors)
    search_errors = reading(Lookups.search_errors)


class AsyncHealth(Face[Health]):
    """The async form of ``store.workflows.health``."""

    get_state = reading(Health.get_state)
    get_states = reading(Health.get_states)
    list_unhealthy = reading(Health.list_unhealthy)


class AsyncWorkers(Face[Workers]):
    """The async form of ``store.workflows.workers``."""

    announce = writing(Workers.announce)
    remove = writing(Workers.remove)
    get = reading(Workers.get)
    list = reading(Workers.list)
    list_waiting = reading(Workers.list_waiting)


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
