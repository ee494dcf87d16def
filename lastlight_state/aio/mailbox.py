"""The async form of ``store.mailbox``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Self, TypeVar
from weakref import WeakKeyDictionary

from lastlight_state.aio.blocks import PinnedBlock, PinnedRunner, Tasks, refuse_inside
from lastlight_state.aio.forward import Face, Runner, reading, writing
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

    send = writing(HostInbox.send)
    ensure = writing(HostInbox.ensure)
    send_many = writing(HostInbox.send_many)
    get = reading(HostInbox.get)
    find = reading(HostInbox.find)
    list = reading(HostInbox.list)
    count_due = reading(HostInbox.count_due)
    fail = writing(HostInbox.fail)
    retry = writing(HostInbox.retry)
    prune = writing(HostInbox.prune)
    find_return_path = reading(HostInbox.find_return_path)
    resolve_seq = reading(HostInbox.resolve_seq)


class AsyncHostTasks(Face[HostTasks]):
    """The async form of ``host.tasks``."""

    create = writing(HostTasks.create)
    update = writing(HostTasks.update)
    pause = writing(HostTasks.pause)
    resume = writing(HostTasks.resume)
    cancel = writing(HostTasks.cancel)
    get = reading(HostTasks.get)
    find = reading(HostTasks.find)
    list = reading(HostTasks.list)


class AsyncHostOutbox(Face[HostOutbox]):
    """The async form of ``host.outbox``. The adapter of `drain` is a plain function, called on a worker thread."""

    take_due = writing(HostOutbox.take_due)
    mark_delivered = writing(HostOutbox.mark_delivered)
    mark_failed = writing(HostOutbox.mark_failed)
    drain = writing(HostOutbox.drain)
    requeue = writing(HostOutbox.requeue)
    list_failed = reading(HostOutbox.list_failed)
    list_waiting = reading(HostOutbox.list_waiting)
    get = reading(HostOutbox.get)
    find = reading(HostOutbox.find)
    files = reading(HostOutbox.files)
    resolve_seq = reading(HostOutbox.resolve_seq)
    wait = reading(HostOutbox.wait)


class AsyncHostSweep(Face[HostSweep]):
    """The async form of ``host.sweep``."""

    sync = writing(HostSweep.sync)
    advance = writing(HostSweep.advance)
    claims = reading(HostSweep.claims)
    assess = reading(HostSweep.assess)
    release = writing(HostSweep.release)
    expire = writing(HostSweep.expire)
    tidy = writing(HostSweep.tidy)
    run = writing(HostSweep.run)


class AsyncHostRouting(Face[HostRouting]):
    """The async form of ``host.routing``."""

    replace_destinations = writing(HostRouting.replace_destinations)
    list_destinations = reading(HostRouting.list_destinations)
    put_default = writing(HostRouting.put_default)
    find_default = reading(HostRouting.find_default)
    allows = reading(HostRouting.allows)


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

    status = reading(HostMailbox.status)
    verify = reading(HostMailbox.verify)


class AsyncAgentInbox(Face[AgentInbox]):
    """The async form of ``agent.inbox``."""

    peek = reading(AgentInbox.peek)
    take = writing(AgentInbox.take)
    claim = writing(AgentInbox.claim)
    complete = writing(AgentInbox.complete)
    fail = writing(AgentInbox.fail)
    release = writing(AgentInbox.release)
    get = reading(AgentInbox.get)
    find = reading(AgentInbox.find)
    find_response = reading(AgentInbox.find_response)
    wait = reading(AgentInbox.wait)


class AsyncAgentOutbox(Face[AgentOutbox]):
    """The async form of ``agent.outbox``."""

    send = writing(AgentOutbox.send)
    edit = writing(AgentOutbox.edit)
    react = writing(AgentOutbox.react)
    prune = writing(AgentOutbox.prune)
    resolve_seq = reading(AgentOutbox.resolve_seq)
    get = reading(AgentOutbox.get)
    find = reading(AgentOutbox.find)
    list = reading(AgentOutbox.list)
    delivery = reading(AgentOutbox.delivery)


class AsyncAgentRouting(Face[AgentRouting]):
    """The async form of ``agent.routing``."""

    find_default = reading(AgentRouting.find_default)
    resolve = reading(AgentRouting.resolve)
    list_destinations = reading(AgentRouting.list_destinations)


class AsyncAgentState(Face[AgentState]):
    """The async form of ``agent.state``."""

    get = reading(AgentState.get)
    find = reading(AgentState.find)
    put = writing(AgentState.put)
    clear = writing(AgentState.clear)
    list = reading(AgentState.list)
    continuation = writing(AgentState.continuation)
    put_continuation = writing(AgentState.put_continuation)
    clear_continuation = writing(AgentState.clear_continuation)


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

    start = writing(AgentMailbox.start)
    beat = writing(AgentMailbox.beat)
    tool_started = writing(AgentMailbox.tool_started)
    tool_finished = writing(AgentMailbox.tool_finished)
    status = reading(AgentMailbox.status)
    verify = reading(AgentMailbox.verify)


class AsyncMailboxes(Face[Mailboxes]):
    """The async form of ``store.mailbox``."""

    list = reading(Mailboxes.list)
    sweep = writing(Mailboxes.sweep)
    prune = writing(Mailboxes.prune)

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
