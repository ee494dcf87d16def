"""The async form of ``store.conversations``."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial

from lastlight_state.aio.blocks import StopEvent, streamed
from lastlight_state.aio.forward import Face, Waker, looked, reading, writing
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

    create = writing(Messages.create)
    ensure = writing(Messages.ensure)
    put = writing(Messages.put)
    get = reading(Messages.get)
    find = reading(Messages.find)
    get_many = reading(Messages.get_many)
    list = reading(Messages.list)
    count = reading(Messages.count)
    uses = reading(Messages.uses)
    set_embedding = writing(Messages.set_embedding)
    similar = reading(Messages.similar)


class AsyncMessageTypes(Face[MessageTypes]):
    """The async form of ``store.conversations.message_types``."""

    resolve = writing(MessageTypes.resolve)
    name = reading(MessageTypes.name)
    find = reading(MessageTypes.find)
    list = reading(MessageTypes.list)


class AsyncProgressions(Face[Progressions]):
    """The async form of ``store.conversations.progressions``."""

    create = writing(Progressions.create)
    ensure = writing(Progressions.ensure)
    get = reading(Progressions.get)
    find = reading(Progressions.find)
    ids = reading(Progressions.ids)
    collection = reading(Progressions.collection)
    append = writing(Progressions.append)
    replace = writing(Progressions.replace)
    pop = writing(Progressions.pop)
    truncate = writing(Progressions.truncate)
    containing = reading(Progressions.containing)


class AsyncSessions(Face[Sessions]):
    """The async form of ``store.conversations.sessions``."""

    create = writing(Sessions.create)
    ensure = writing(Sessions.ensure)
    get = reading(Sessions.get)
    find = reading(Sessions.find)
    list = reading(Sessions.list)
    count = reading(Sessions.count)
    update = writing(Sessions.update)
    merge_metadata = writing(Sessions.merge_metadata)
    touch = writing(Sessions.touch)
    hold = writing(Sessions.hold)
    delete = writing(Sessions.delete)


class AsyncBranches(Face[Branches]):
    """The async form of ``store.conversations.branches``."""

    create = writing(Branches.create)
    ensure = writing(Branches.ensure)
    get = reading(Branches.get)
    find = reading(Branches.find)
    list = reading(Branches.list)
    update = writing(Branches.update)
    append = writing(Branches.append)
    pop = writing(Branches.pop)
    truncate = writing(Branches.truncate)
    delete = writing(Branches.delete)
    replace_system = writing(Branches.replace_system)
    history = reading(Branches.history)
    order = reading(Branches.order)
    tail = reading(Branches.tail)


class AsyncLineage(Face[Lineage]):
    """The async form of ``store.conversations.lineage``."""

    fork = writing(Lineage.fork)
    ancestors = reading(Lineage.ancestors)
    forks = reading(Lineage.forks)


class AsyncTrees(Face[Trees]):
    """The async form of ``store.conversations.trees``."""

    save = writing(Trees.save)
    load = reading(Trees.load)


class AsyncVectors(Face[Vectors]):
    """The async form of ``store.conversations.vectors``."""

    put = writing(Vectors.put)
    get = reading(Vectors.get)
    find = reading(Vectors.find)
    list = reading(Vectors.list)
    search = reading(Vectors.search)
    count = reading(Vectors.count)
    clear = writing(Vectors.clear)
    namespaces = reading(Vectors.namespaces)
    index = writing(Vectors.index)
    indexes = reading(Vectors.indexes)
    drop_index = writing(Vectors.drop_index)


class AsyncLifecycle(Face[Lifecycle]):
    """The async form of ``store.conversations.lifecycle``."""

    transition = writing(Lifecycle.transition)
    try_transition = writing(Lifecycle.try_transition)
    reopen = writing(Lifecycle.reopen)
    heartbeat = writing(Lifecycle.heartbeat)
    history = reading(Lifecycle.history)
    record_verification = writing(Lifecycle.record_verification)
    state = reading(Lifecycle.state)
    states = reading(Lifecycle.states)


class AsyncChanges(Face[Changes]):
    """The async form of ``store.conversations.changes``."""

    after = reading(Changes.after)
    head = reading(Changes.head)
    updated_sessions = reading(Changes.updated_sessions)
    trim = writing(Changes.trim)

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
        found = await looked(self._runner, limited, read)
        if found.items or found.damaged or not limited.left:
            return found
        woken = Waker()
        with self._target._arrivals(session_id, seq, limited.left, interval, woken.up) as arrivals:
            await woken.arrived(arrivals)
        return await looked(self._runner, limited, read)

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
        return streamed(
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
        return streamed(
            lambda: self._target.follow_all(since, idle_timeout=idle_timeout, poll_interval=poll_interval, stop=left),
            left,
        )

    def subscribe(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """See `Changes.subscribe`. The callback runs on the worker thread that committed."""
        return self._target.subscribe(callback)


class AsyncExchange(Face[Exchange]):
    """The async form of ``store.conversations.exchange``."""

    send = writing(Exchange.send)
    publish = writing(Exchange.publish)
    inbox = reading(Exchange.inbox)
    take = writing(Exchange.take)
    ack = writing(Exchange.ack)
    release = writing(Exchange.release)
    outbox = reading(Exchange.outbox)
    deliveries = reading(Exchange.deliveries)
    join = writing(Exchange.join)
    leave = writing(Exchange.leave)
    members = reading(Exchange.members)

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
        found = await looked(self._runner, limited, read)
        if found.items or found.damaged or not limited.left:
            return found
        woken = Waker()
        with self._target._arrivals(owner, after_ord, limited.left, interval, woken.up) as arrivals:
            await woken.arrived(arrivals)
        return await looked(self._runner, limited, read)


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
