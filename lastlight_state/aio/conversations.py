"""The async form of ``store.conversations``."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial

from lastlight_state.aio.blocks import StopEvent, stream_items
from lastlight_state.aio.forward import Face, Waker, forward_read, forward_write, run_poll
from lastlight_state.conversations import Change, Conversations, Delivery, SessionSummary
from lastlight_state.conversations.branches import Branches
from lastlight_state.conversations.changes import Changes
from lastlight_state.conversations.exchange import Exchange
from lastlight_state.conversations.lifecycle import Lifecycle
from lastlight_state.conversations.lineage import Lineage
from lastlight_state.conversations.message_types import MessageTypes
from lastlight_state.conversations.messages import Messages
from lastlight_state.conversations.progressions import Progressions
from lastlight_state.conversations.sessions import Sessions
from lastlight_state.conversations.trees import Trees
from lastlight_state.conversations.vectors import Vectors
from lastlight_state.db import valid
from lastlight_state.db.news.watch import TimeLimit, refuse_in_transaction
from lastlight_state.db.rows.records import Page
from lastlight_state.lazy import Part


class AsyncMessages(Face[Messages]):
    """The async form of ``store.conversations.messages``."""

    create = forward_write(Messages.create)
    ensure = forward_write(Messages.ensure)
    put = forward_write(Messages.put)
    get = forward_read(Messages.get)
    find = forward_read(Messages.find)
    get_many = forward_read(Messages.get_many)
    list = forward_read(Messages.list)
    count = forward_read(Messages.count)
    uses = forward_read(Messages.uses)
    set_embedding = forward_write(Messages.set_embedding)
    similar = forward_read(Messages.similar)


class AsyncMessageTypes(Face[MessageTypes]):
    """The async form of ``store.conversations.message_types``."""

    resolve = forward_write(MessageTypes.resolve)
    name = forward_read(MessageTypes.name)
    find = forward_read(MessageTypes.find)
    list = forward_read(MessageTypes.list)


class AsyncProgressions(Face[Progressions]):
    """The async form of ``store.conversations.progressions``."""

    create = forward_write(Progressions.create)
    ensure = forward_write(Progressions.ensure)
    get = forward_read(Progressions.get)
    find = forward_read(Progressions.find)
    ids = forward_read(Progressions.ids)
    collection = forward_read(Progressions.collection)
    append = forward_write(Progressions.append)
    replace = forward_write(Progressions.replace)
    pop = forward_write(Progressions.pop)
    truncate = forward_write(Progressions.truncate)
    containing = forward_read(Progressions.containing)


class AsyncSessions(Face[Sessions]):
    """The async form of ``store.conversations.sessions``."""

    create = forward_write(Sessions.create)
    ensure = forward_write(Sessions.ensure)
    get = forward_read(Sessions.get)
    find = forward_read(Sessions.find)
    list = forward_read(Sessions.list)
    count = forward_read(Sessions.count)
    update = forward_write(Sessions.update)
    merge_metadata = forward_write(Sessions.merge_metadata)
    touch = forward_write(Sessions.touch)
    hold = forward_write(Sessions.hold)
    delete = forward_write(Sessions.delete)


class AsyncBranches(Face[Branches]):
    """The async form of ``store.conversations.branches``."""

    create = forward_write(Branches.create)
    ensure = forward_write(Branches.ensure)
    get = forward_read(Branches.get)
    find = forward_read(Branches.find)
    list = forward_read(Branches.list)
    update = forward_write(Branches.update)
    append = forward_write(Branches.append)
    pop = forward_write(Branches.pop)
    truncate = forward_write(Branches.truncate)
    delete = forward_write(Branches.delete)
    replace_system = forward_write(Branches.replace_system)
    history = forward_read(Branches.history)
    order = forward_read(Branches.order)
    tail = forward_read(Branches.tail)


class AsyncLineage(Face[Lineage]):
    """The async form of ``store.conversations.lineage``."""

    fork = forward_write(Lineage.fork)
    ancestors = forward_read(Lineage.ancestors)
    forks = forward_read(Lineage.forks)


class AsyncTrees(Face[Trees]):
    """The async form of ``store.conversations.trees``."""

    save = forward_write(Trees.save)
    load = forward_read(Trees.load)


class AsyncVectors(Face[Vectors]):
    """The async form of ``store.conversations.vectors``."""

    put = forward_write(Vectors.put)
    get = forward_read(Vectors.get)
    find = forward_read(Vectors.find)
    list = forward_read(Vectors.list)
    search = forward_read(Vectors.search)
    count = forward_read(Vectors.count)
    clear = forward_write(Vectors.clear)
    namespaces = forward_read(Vectors.namespaces)
    index = forward_write(Vectors.index)
    indexes = forward_read(Vectors.indexes)
    drop_index = forward_write(Vectors.drop_index)


class AsyncLifecycle(Face[Lifecycle]):
    """The async form of ``store.conversations.lifecycle``."""

    transition = forward_write(Lifecycle.transition)
    try_transition = forward_write(Lifecycle.try_transition)
    reopen = forward_write(Lifecycle.reopen)
    heartbeat = forward_write(Lifecycle.heartbeat)
    history = forward_read(Lifecycle.history)
    record_verification = forward_write(Lifecycle.record_verification)
    state = forward_read(Lifecycle.state)
    states = forward_read(Lifecycle.states)


class AsyncChanges(Face[Changes]):
    """The async form of ``store.conversations.changes``."""

    after = forward_read(Changes.after)
    head = forward_read(Changes.head)
    updated_sessions = forward_read(Changes.updated_sessions)
    trim = forward_write(Changes.trim)

    async def wait(
        self,
        session_id: str,
        seq: int = 0,
        *,
        timeout: float,  # noqa: ASYNC109 - as the sync method
        poll_interval: float = 0.5,
        limit: int = 50,
    ) -> Page[Change]:
        """See the sync `wait`. No thread is blocked during the wait."""
        seconds, interval = valid.seconds("timeout", timeout), valid.seconds("poll_interval", poll_interval)
        refuse_in_transaction(self._target._scope)
        limited, read = TimeLimit(seconds), partial(self._target.after, session_id, seq, limit=limit)
        found = await run_poll(self._runner, limited, read)
        if found.items or found.damaged or not limited.seconds_left:
            return found
        woken = Waker()
        with self._target._arrivals(session_id, seq, limited.seconds_left, interval, woken.up) as arrivals:
            await woken.wait_for_arrival(arrivals)
        return await run_poll(self._runner, limited, read)

    def follow(
        self,
        session_id: str,
        seq: int = 0,
        *,
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[Change]:
        """See `Changes.follow`. Ends when the loop over it is left or its task is cancelled."""
        left = StopEvent(stop)
        return stream_items(
            lambda: self._target.follow(
                session_id, seq, idle_timeout=idle_timeout, poll_interval=poll_interval, stop=left
            ),
            left,
        )

    def follow_all(
        self,
        since: datetime,
        *,
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[SessionSummary]:
        """See `Changes.follow_all`. Ends when the loop over it is left or its task is cancelled."""
        left = StopEvent(stop)
        return stream_items(
            lambda: self._target.follow_all(since, idle_timeout=idle_timeout, poll_interval=poll_interval, stop=left),
            left,
        )

    def subscribe(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """See `Changes.subscribe`. The callback runs on the worker thread that committed."""
        return self._target.subscribe(callback)


class AsyncExchange(Face[Exchange]):
    """The async form of ``store.conversations.exchange``."""

    send = forward_write(Exchange.send)
    publish = forward_write(Exchange.publish)
    inbox = forward_read(Exchange.inbox)
    take = forward_write(Exchange.take)
    ack = forward_write(Exchange.ack)
    release = forward_write(Exchange.release)
    outbox = forward_read(Exchange.outbox)
    deliveries = forward_read(Exchange.deliveries)
    join = forward_write(Exchange.join)
    leave = forward_write(Exchange.leave)
    members = forward_read(Exchange.members)

    async def wait(
        self,
        owner: str,
        after_ord: int | None = None,
        *,
        timeout: float,  # noqa: ASYNC109 - as the sync method
        poll_interval: float = 0.5,
        limit: int = 50,
    ) -> Page[Delivery]:
        """See the sync `wait`. No thread is blocked during the wait."""
        seconds, interval = valid.seconds("timeout", timeout), valid.seconds("poll_interval", poll_interval)
        refuse_in_transaction(self._target._scope)
        limited = TimeLimit(seconds)
        read = partial(self._target.inbox, owner, after_ord=after_ord, state="all", limit=limit)
        found = await run_poll(self._runner, limited, read)
        if found.items or found.damaged or not limited.seconds_left:
            return found
        woken = Waker()
        with self._target._arrivals(owner, after_ord, limited.seconds_left, interval, woken.up) as arrivals:
            await woken.wait_for_arrival(arrivals)
        return await run_poll(self._runner, limited, read)


class AsyncConversations(Face[Conversations]):
    """The async form of ``store.conversations``."""

    #: Messages, each stored once and referred to by id.
    messages: Part[AsyncMessages] = Part("lastlight_state.aio.conversations.AsyncMessages")
    #: The message classes of the programs that wrote the messages.
    message_types: Part[AsyncMessageTypes] = Part("lastlight_state.aio.conversations.AsyncMessageTypes")
    #: Ordered lists of messages.
    progressions: Part[AsyncProgressions] = Part("lastlight_state.aio.conversations.AsyncProgressions")
    #: Sessions, each with the set of its messages.
    sessions: Part[AsyncSessions] = Part("lastlight_state.aio.conversations.AsyncSessions")
    #: Branches of sessions: appends and histories.
    branches: Part[AsyncBranches] = Part("lastlight_state.aio.conversations.AsyncBranches")
    #: Forks and ancestors of branches.
    lineage: Part[AsyncLineage] = Part("lastlight_state.aio.conversations.AsyncLineage")
    #: Whole sessions, saved and loaded at once.
    trees: Part[AsyncTrees] = Part("lastlight_state.aio.conversations.AsyncTrees")
    #: Chunks of text with their embeddings.
    vectors: Part[AsyncVectors] = Part("lastlight_state.aio.conversations.AsyncVectors")
    #: The status of sessions, status history, and heartbeats.
    lifecycle: Part[AsyncLifecycle] = Part("lastlight_state.aio.conversations.AsyncLifecycle")
    #: Changes in sessions, for watchers.
    changes: Part[AsyncChanges] = Part("lastlight_state.aio.conversations.AsyncChanges")
    #: Messages that are sent to other owners' inboxes and taken from there.
    exchange: Part[AsyncExchange] = Part("lastlight_state.aio.conversations.AsyncExchange")
