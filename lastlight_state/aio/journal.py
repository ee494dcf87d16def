"""The async form of ``store.journal``."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any, overload

from lastlight_state.aio.blocks import StopEvent, stream_items
from lastlight_state.aio.forward import Face, Waker, forward_read, forward_write, run_poll
from lastlight_state.aio.journal_writer import AsyncWriter
from lastlight_state.db import valid
from lastlight_state.db.news.watch import TimeLimit, refuse_in_transaction
from lastlight_state.journal import ANY, Event, EventFilter, Frame, Journal, Signal
from lastlight_state.journal.arguments import AnyType
from lastlight_state.journal.events import Events
from lastlight_state.journal.frames import Frames
from lastlight_state.journal.sandboxes import Sandboxes
from lastlight_state.journal.scores import Scores
from lastlight_state.journal.signals import Signals
from lastlight_state.journal.tool_calls import ToolCalls
from lastlight_state.lazy import Part


class AsyncEvents(Face[Events]):
    """The async form of ``store.journal.events``."""

    append = forward_write(Events.append)
    append_many = forward_write(Events.append_many)
    ensure_start = forward_write(Events.ensure_start)
    get = forward_read(Events.get)
    find = forward_read(Events.find)
    latest_seq = forward_read(Events.latest_seq)
    list = forward_read(Events.list)
    count = forward_read(Events.count)

    @overload
    def follow(
        self,
        run_id: str,
        *,
        after_seq: int | None = None,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[Event]: ...
    @overload
    def follow(
        self,
        run_id: str,
        *,
        after_seq: int | None = None,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[Event | None]: ...
    def follow(
        self,
        run_id: str,
        *,
        after_seq: int | None = None,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[Any]:
        """See `Events.follow`. Ends when the loop over it is left or its task is cancelled."""
        return self.follow_many(
            {run_id: after_seq},
            where=where,
            stop_types=stop_types,
            until_end=until_end,
            idle_timeout=idle_timeout,
            heartbeat=heartbeat,
            poll_interval=poll_interval,
            stop=stop,
        )

    @overload
    def follow_many(
        self,
        cursors: Mapping[str, int | None],
        *,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[Event]: ...
    @overload
    def follow_many(
        self,
        cursors: Mapping[str, int | None],
        *,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[Event | None]: ...
    def follow_many(
        self,
        cursors: Mapping[str, int | None],
        *,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        until_end: bool = False,
        idle_timeout: float | None = None,
        heartbeat: float | None = None,
        poll_interval: float = 0.5,
        stop: threading.Event | None = None,
    ) -> AsyncIterator[Any]:
        """See `Events.follow_many`. Ends when the loop over it is left or its task is cancelled."""
        left = StopEvent(stop)
        follow: Any = self._target.follow_many
        started = partial(
            follow,
            cursors,
            where=where,
            stop_types=stop_types,
            until_end=until_end,
            idle_timeout=idle_timeout,
            heartbeat=heartbeat,
            poll_interval=poll_interval,
            stop=left,
        )
        return stream_items(started, left)


class AsyncSignals(Face[Signals]):
    """The async form of ``store.journal.signals``."""

    send = forward_write(Signals.send)
    find_taken = forward_read(Signals.find_taken)
    get = forward_read(Signals.get)
    find = forward_read(Signals.find)
    latest_seq = forward_read(Signals.latest_seq)
    list = forward_read(Signals.list)
    count = forward_read(Signals.count)

    async def try_take(
        self,
        run_id: str,
        signal_name: str,
        *,
        consumer: str,
        correlation_id: str | AnyType | None = ANY,
        received_after: datetime | None = None,
        wait: float = 0,
        poll_interval: float = 0.5,
    ) -> Signal | None:
        """See `Signals.try_take`. No thread is blocked during the wait."""
        take = partial(
            self._target.try_take,
            run_id,
            signal_name,
            consumer=consumer,
            correlation_id=correlation_id,
            received_after=received_after,
        )
        seconds = valid.seconds("wait", wait)
        valid.seconds("poll_interval", poll_interval)
        if not seconds:
            return await self._runner.write(take)
        refuse_in_transaction(self._target._scope)
        limit, woken = TimeLimit(seconds), Waker()
        taken = await run_poll(self._runner, limit, take, writes=True)
        with self._target._arrivals(run_id, limit.seconds_left, poll_interval, woken.up) as arrivals:
            while taken is None and await woken.wait_for_arrival(arrivals):
                taken = await run_poll(self._runner, limit, take, writes=True)
        return taken


class AsyncFrames(Face[Frames]):
    """The async form of ``store.journal.frames``."""

    append = forward_write(Frames.append)
    get = forward_read(Frames.get)
    find_latest = forward_read(Frames.find_latest)
    list = forward_read(Frames.list)
    diff = forward_read(Frames.diff)
    verify = forward_read(Frames.verify)

    def replay(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> AsyncIterator[Frame]:
        """See `Frames.replay`."""
        return stream_items(lambda: self._target.replay(run_id, after=after, upto=upto))


class AsyncToolCalls(Face[ToolCalls]):
    """The async form of ``store.journal.tool_calls``."""

    create = forward_write(ToolCalls.create)
    record = forward_write(ToolCalls.record)
    finish = forward_write(ToolCalls.finish)
    get = forward_read(ToolCalls.get)
    find = forward_read(ToolCalls.find)
    list = forward_read(ToolCalls.list)
    count = forward_read(ToolCalls.count)


class AsyncSandboxes(Face[Sandboxes]):
    """The async form of ``store.journal.sandboxes``."""

    put = forward_write(Sandboxes.put)
    get = forward_read(Sandboxes.get)
    find = forward_read(Sandboxes.find)
    list = forward_read(Sandboxes.list)


class AsyncScores(Face[Scores]):
    """The async form of ``store.journal.scores``."""

    record = forward_write(Scores.record)
    get = forward_read(Scores.get)
    list = forward_read(Scores.list)
    aggregate = forward_read(Scores.aggregate)


class AsyncJournal(Face[Journal]):
    """The async form of ``store.journal``."""

    #: Events of runs, numbered without gaps.
    events: Part[AsyncEvents] = Part("lastlight_state.aio.journal.AsyncEvents")
    #: Creates queued writers of events.
    writer: Part[AsyncWriter] = Part("lastlight_state.aio.journal_writer.AsyncWriter")
    #: Messages that are sent into runs from outside, each taken once.
    signals: Part[AsyncSignals] = Part("lastlight_state.aio.journal.AsyncSignals")
    #: The rendered frames of runs, step by step.
    frames: Part[AsyncFrames] = Part("lastlight_state.aio.journal.AsyncFrames")
    #: Every call of a tool.
    tool_calls: Part[AsyncToolCalls] = Part("lastlight_state.aio.journal.AsyncToolCalls")
    #: Sandboxes: the places where parts of runs work.
    sandboxes: Part[AsyncSandboxes] = Part("lastlight_state.aio.journal.AsyncSandboxes")
    #: Scorers' results for attempts of tasks.
    scores: Part[AsyncScores] = Part("lastlight_state.aio.journal.AsyncScores")
