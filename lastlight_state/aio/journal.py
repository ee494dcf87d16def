"""``store.journal`` from coroutines."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Collection, Mapping

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.aio.streams import streamed
from lastlight_state.journal import Event, EventFilter, Frame, Journal
from lastlight_state.journal.events import Events
from lastlight_state.journal.frames import Frames
from lastlight_state.journal.sandboxes import Sandboxes
from lastlight_state.journal.scores import Scores
from lastlight_state.journal.signals import Signals
from lastlight_state.journal.tool_calls import ToolCalls
from lastlight_state.lazy import Part


class AsyncEvents(Face[Events]):
    """``store.journal.events``"""

    append = writing(Events.append)
    append_many = writing(Events.append_many)
    ensure_start = writing(Events.ensure_start)
    get = reading(Events.get)
    find = reading(Events.find)
    latest_seq = reading(Events.latest_seq)
    list = reading(Events.list)
    count = reading(Events.count)

    def follow(
        self,
        run_id: str,
        *,
        after_seq: int | None = None,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
    ) -> AsyncIterator[Event]:
        """As `Events.follow`, until the iteration is left or its task is cancelled."""
        return self.follow_many(
            {run_id: after_seq},
            where=where,
            stop_types=stop_types,
            idle_timeout=idle_timeout,
            poll_interval=poll_interval,
        )

    def follow_many(
        self,
        cursors: Mapping[str, int | None],
        *,
        where: EventFilter | None = None,
        stop_types: Collection[str] = (),
        idle_timeout: float | None = None,
        poll_interval: float = 0.5,
    ) -> AsyncIterator[Event]:
        """As `Events.follow_many`, until the iteration is left or its task is cancelled."""
        stop = threading.Event()
        return streamed(
            lambda: self._target.follow_many(
                cursors,
                where=where,
                stop_types=stop_types,
                idle_timeout=idle_timeout,
                poll_interval=poll_interval,
                stop=stop,
            ),
            stop,
        )


class AsyncSignals(Face[Signals]):
    """``store.journal.signals``"""

    send = writing(Signals.send)
    try_take = writing(Signals.try_take)
    find_taken = reading(Signals.find_taken)
    get = reading(Signals.get)
    find = reading(Signals.find)
    latest_seq = reading(Signals.latest_seq)
    list = reading(Signals.list)
    count = reading(Signals.count)


class AsyncFrames(Face[Frames]):
    """``store.journal.frames``"""

    append = writing(Frames.append)
    get = reading(Frames.get)
    find_latest = reading(Frames.find_latest)
    list = reading(Frames.list)
    diff = reading(Frames.diff)
    verify = reading(Frames.verify)

    def replay(self, run_id: str, *, after: int | None = None, upto: int | None = None) -> AsyncIterator[Frame]:
        """As `Frames.replay`."""
        return streamed(lambda: self._target.replay(run_id, after=after, upto=upto))


class AsyncToolCalls(Face[ToolCalls]):
    """``store.journal.tool_calls``"""

    create = writing(ToolCalls.create)
    record = writing(ToolCalls.record)
    finish = writing(ToolCalls.finish)
    get = reading(ToolCalls.get)
    find = reading(ToolCalls.find)
    list = reading(ToolCalls.list)
    count = reading(ToolCalls.count)


class AsyncSandboxes(Face[Sandboxes]):
    """``store.journal.sandboxes``"""

    put = writing(Sandboxes.put)
    get = reading(Sandboxes.get)
    find = reading(Sandboxes.find)
    list = reading(Sandboxes.list)


class AsyncScores(Face[Scores]):
    """``store.journal.scores``"""

    record = writing(Scores.record)
    get = reading(Scores.get)
    list = reading(Scores.list)
    aggregate = reading(Scores.aggregate)


class AsyncJournal(Face[Journal]):
    """``store.journal``"""

    #: What happened in runs, numbered without gaps.
    events: Part[AsyncEvents] = Part("lastlight_state.aio.journal.AsyncEvents")
    #: Messages sent into runs from outside, each taken once.
    signals: Part[AsyncSignals] = Part("lastlight_state.aio.journal.AsyncSignals")
    #: What runs had rendered, step by step.
    frames: Part[AsyncFrames] = Part("lastlight_state.aio.journal.AsyncFrames")
    #: Every invocation of a tool.
    tool_calls: Part[AsyncToolCalls] = Part("lastlight_state.aio.journal.AsyncToolCalls")
    #: Where parts of runs work.
    sandboxes: Part[AsyncSandboxes] = Part("lastlight_state.aio.journal.AsyncSandboxes")
    #: What scorers said about attempts of tasks.
    scores: Part[AsyncScores] = Part("lastlight_state.aio.journal.AsyncScores")
