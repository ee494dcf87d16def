"""The async form of ``store.mailbox``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from lastlight_state.aio.blocks import PinnedBlock, PinnedRunner, Tasks, refuse_inside
from lastlight_state.aio.forward import Face, Runner, forward_read, forward_write
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes
from lastlight_state.files.mailbox.agent.inbox import AgentInbox
from lastlight_state.files.mailbox.agent.outbox import AgentOutbox, AgentRouting
from lastlight_state.files.mailbox.agent.state import AgentState
from lastlight_state.files.mailbox.host.inbox import HostInbox
from lastlight_state.files.mailbox.host.outbox import HostOutbox
from lastlight_state.files.mailbox.host.routing import HostRouting
from lastlight_state.files.mailbox.host.sweep import HostSweep
from lastlight_state.files.mailbox.host.tasks import HostTasks
from lastlight_state.files.mailbox.shared.pair import Mailbox
from lastlight_state.lazy import Part
from lastlight_state.metrics import Metrics

M = TypeVar("M", bound=Mailbox)
T = TypeVar("T")


class AsyncHostInbox(Face[HostInbox]):
    """The async form of ``host.inbox``."""

    send = forward_write(HostInbox.send)
    ensure = forward_write(HostInbox.ensure)
    send_many = forward_write(HostInbox.send_many)
    get = forward_read(HostInbox.get)
    find = forward_read(HostInbox.find)
    list = forward_read(HostInbox.list)
    count_due = forward_read(HostInbox.count_due)
    fail = forward_write(HostInbox.fail)
    retry = forward_write(HostInbox.retry)
    prune = forward_write(HostInbox.prune)
    find_return_path = forward_read(HostInbox.find_return_path)
    resolve_seq = forward_read(HostInbox.resolve_seq)


class AsyncHostTasks(Face[HostTasks]):
    """The async form of ``host.tasks``."""

    create = forward_write(HostTasks.create)
    update = forward_write(HostTasks.update)
    pause = forward_write(HostTasks.pause)
    resume = forward_write(HostTasks.resume)
    cancel = forward_write(HostTasks.cancel)
    get = forward_read(HostTasks.get)
    find = forward_read(HostTasks.find)
    list = forward_read(HostTasks.list)


class AsyncHostOutbox(Face[HostOutbox]):
    """The async form of ``host.outbox``. The adapter of `drain` is a plain function, called on a worker thread."""

    take_due = forward_write(HostOutbox.take_due)
    mark_delivered = forward_write(HostOutbox.mark_delivered)
    mark_failed = forward_write(HostOutbox.mark_failed)
    drain = forward_write(HostOutbox.drain)
    requeue = forward_write(HostOutbox.requeue)
    list_failed = forward_read(HostOutbox.list_failed)
    list_waiting = forward_read(HostOutbox.list_waiting)
    get = forward_read(HostOutbox.get)
    find = forward_read(HostOutbox.find)
    files = forward_read(HostOutbox.files)
    resolve_seq = forward_read(HostOutbox.resolve_seq)
    wait = forward_read(HostOutbox.wait)


class AsyncHostSweep(Face[HostSweep]):
    """The async form of ``host.sweep``."""

    sync = forward_write(HostSweep.sync)
    advance = forward_write(HostSweep.advance)
    claims = forward_read(HostSweep.claims)
    assess = forward_read(HostSweep.assess)
    release = forward_write(HostSweep.release)
    expire = forward_write(HostSweep.expire)
    tidy = forward_write(HostSweep.tidy)
    run = forward_write(HostSweep.run)


class AsyncHostRouting(Face[HostRouting]):
    """The async form of ``host.routing``."""

    replace_destinations = forward_write(HostRouting.replace_destinations)
    list_destinations = forward_read(HostRouting.list_destinations)
    put_default = forward_write(HostRouting.put_default)
    find_default = forward_read(HostRouting.find_default)
    allows = forward_read(HostRouting.allows)


class _Outside:
    """Runs the calls of a mailbox, but refuses them for a task that is inside one of the mailbox's transactions."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        #: The transactions that tasks are inside of.
        self.blocks: Tasks = WeakKeyDictionary()

    def read(self, call: Callable[[], T]) -> Awaitable[T]:
        self.refuse_closed()
        return self._runner.read(call)

    def write(self, call: Callable[[], T]) -> Awaitable[T]:
        self.refuse_closed()
        return self._runner.write(call)

    def finish(self, call: Callable[[], T]) -> Awaitable[T]:
        return self._runner.finish(call)

    def refuse_closed(self) -> None:
        """Raise `NestedTransaction` if a task inside the mailbox's transaction makes a call through the mailbox."""
        refuse_inside(self.blocks, "inside a transaction's block of this mailbox: call the mailbox that it gave")


class _Side(Face[M]):
    """Base of the async host mailbox and the async agent mailbox."""

    def __init__(self, target: M, runner: Runner) -> None:
        outside = _Outside(runner)
        super().__init__(target, outside)
        self._blocks = outside.blocks

    @property
    def metrics(self) -> Metrics:
        """See `HostMailbox.metrics`."""
        return self._target.metrics

    @property
    def group(self) -> str:
        """Return the agent group of the session."""
        return self._target.group

    @property
    def session(self) -> str:
        """Return the session whose mailbox this is."""
        return self._target.session

    @property
    def folder(self) -> Path:
        """Return the folder of the session."""
        return self._target.folder

    def transaction(self) -> AbstractAsyncContextManager[Self]:
        """See `HostMailbox.transaction`.

        Inside the block, call the mailbox that ``async with`` yields: its calls share one thread. If the task is
        cancelled inside the block, the transaction rolls back. If a task inside the block calls the outer mailbox,
        `NestedTransaction` is raised.
        """
        made = type(self)
        return PinnedBlock(
            self._target.transaction(),
            lambda target, lane: made(target, PinnedRunner(lane)),
            self._blocks,
            self._runner.refuse_closed,
        )


class AsyncHostMailbox(_Side[HostMailbox]):
    """A session's mailbox as the host uses it."""

    #: Messages for the agent.
    inbox: Part[AsyncHostInbox] = Part("lastlight_state.aio.mailbox.AsyncHostInbox")
    #: Scheduled and recurring work for the agent.
    tasks: Part[AsyncHostTasks] = Part("lastlight_state.aio.mailbox.AsyncHostTasks")
    #: Messages of the agent, and their delivery.
    outbox: Part[AsyncHostOutbox] = Part("lastlight_state.aio.mailbox.AsyncHostOutbox")
    #: What the agent acknowledged, and whether it is stuck.
    sweep: Part[AsyncHostSweep] = Part("lastlight_state.aio.mailbox.AsyncHostSweep")
    #: The destinations that the agent may send to.
    routing: Part[AsyncHostRouting] = Part("lastlight_state.aio.mailbox.AsyncHostRouting")

    status = forward_read(HostMailbox.status)
    verify = forward_read(HostMailbox.verify)


class AsyncAgentInbox(Face[AgentInbox]):
    """The async form of ``agent.inbox``."""

    peek = forward_read(AgentInbox.peek)
    take = forward_write(AgentInbox.take)
    claim = forward_write(AgentInbox.claim)
    complete = forward_write(AgentInbox.complete)
    fail = forward_write(AgentInbox.fail)
    release = forward_write(AgentInbox.release)
    get = forward_read(AgentInbox.get)
    find = forward_read(AgentInbox.find)
    find_response = forward_read(AgentInbox.find_response)
    wait = forward_read(AgentInbox.wait)


class AsyncAgentOutbox(Face[AgentOutbox]):
    """The async form of ``agent.outbox``."""

    send = forward_write(AgentOutbox.send)
    edit = forward_write(AgentOutbox.edit)
    react = forward_write(AgentOutbox.react)
    prune = forward_write(AgentOutbox.prune)
    resolve_seq = forward_read(AgentOutbox.resolve_seq)
    get = forward_read(AgentOutbox.get)
    find = forward_read(AgentOutbox.find)
    list = forward_read(AgentOutbox.list)
    delivery = forward_read(AgentOutbox.delivery)


class AsyncAgentRouting(Face[AgentRouting]):
    """The async form of ``agent.routing``."""

    find_default = forward_read(AgentRouting.find_default)
    resolve = forward_read(AgentRouting.resolve)
    list_destinations = forward_read(AgentRouting.list_destinations)


class AsyncAgentState(Face[AgentState]):
    """The async form of ``agent.state``."""

    get = forward_read(AgentState.get)
    find = forward_read(AgentState.find)
    put = forward_write(AgentState.put)
    clear = forward_write(AgentState.clear)
    list = forward_read(AgentState.list)
    continuation = forward_write(AgentState.continuation)
    put_continuation = forward_write(AgentState.put_continuation)
    clear_continuation = forward_write(AgentState.clear_continuation)


class AsyncAgentMailbox(_Side[AgentMailbox]):
    """A session's mailbox as the agent uses it."""

    #: Messages to work on.
    inbox: Part[AsyncAgentInbox] = Part("lastlight_state.aio.mailbox.AsyncAgentInbox")
    #: Messages that the agent sends.
    outbox: Part[AsyncAgentOutbox] = Part("lastlight_state.aio.mailbox.AsyncAgentOutbox")
    #: The destinations of the agent's messages.
    routing: Part[AsyncAgentRouting] = Part("lastlight_state.aio.mailbox.AsyncAgentRouting")
    #: Values that the agent keeps across restarts.
    state: Part[AsyncAgentState] = Part("lastlight_state.aio.mailbox.AsyncAgentState")

    @property
    def instance(self) -> str | None:
        """Return the id of the agent's instance (one start of the agent) for which this object writes."""
        return self._target.instance

    start = forward_write(AgentMailbox.start)
    beat = forward_write(AgentMailbox.beat)
    tool_started = forward_write(AgentMailbox.tool_started)
    tool_finished = forward_write(AgentMailbox.tool_finished)
    status = forward_read(AgentMailbox.status)
    verify = forward_read(AgentMailbox.verify)


class AsyncMailboxes(Face[Mailboxes]):
    """The async form of ``store.mailbox``."""

    list = forward_read(Mailboxes.list)
    sweep = forward_write(Mailboxes.sweep)
    prune = forward_write(Mailboxes.prune)

    @property
    def root(self) -> Path:
        """Return the directory that has one folder for each agent group."""
        return self._target.root

    async def create(self, group: str, session: str) -> AsyncHostMailbox:
        """See `Mailboxes.create`."""
        return self._host(await self._runner.write(partial(self._target.create, group, session)))

    async def ensure(self, group: str, session: str) -> AsyncHostMailbox:
        """See `Mailboxes.ensure`."""
        return self._host(await self._runner.write(partial(self._target.ensure, group, session)))

    async def host(self, group: str, session: str) -> AsyncHostMailbox:
        """See `Mailboxes.host`."""
        return self._host(await self._runner.write(partial(self._target.host, group, session)))

    async def agent(self, group: str, session: str, *, instance: str | None = None) -> AsyncAgentMailbox:
        """See `Mailboxes.agent`."""
        opened = partial(self._target.agent, group, session, instance=instance)
        return AsyncAgentMailbox(await self._runner.write(opened), self._runner)

    def _host(self, opened: HostMailbox) -> AsyncHostMailbox:
        return AsyncHostMailbox(opened, self._runner)
