"""The async form of ``store.agent_log``.

Its calls run on their own threads, so that files never wait for a database.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self

from lastlight_state.aio.blocks import StopEvent, stream_items
from lastlight_state.aio.forward import Face, forward_read, forward_write
from lastlight_state.files.agent_log import (
    AgentLog,
    LogLine,
    LogRepair,
    Place,
    Raw,
    Reader,
    Reset,
    Sessions,
    SessionWriter,
    TranslationOptions,
    Writer,
)
from lastlight_state.files.agent_log.arguments import OnError
from lastlight_state.files.agent_log.writer import NO_OPTIONS
from lastlight_state.files.jsonl.writer import SyncWord
from lastlight_state.lazy import Part


class AsyncSessionWriter(Face[SessionWriter]):
    """A `SessionWriter` for ``async with``.

    Await each call before you make the next, so that the lines keep their order.
    """

    feed = forward_write(SessionWriter.feed)
    feed_many = forward_write(SessionWriter.feed_many)
    append = forward_write(SessionWriter.append)
    finish = forward_write(SessionWriter.finish)
    finish_failed = forward_write(SessionWriter.finish_failed)
    sync = forward_write(SessionWriter.sync)
    close = forward_write(SessionWriter.close)

    @property
    def session_id(self) -> str | None:
        """See `SessionWriter.session_id`."""
        return self._target.session_id

    @property
    def slug(self) -> str | None:
        """See `SessionWriter.slug`."""
        return self._target.slug

    @property
    def path(self) -> Path | None:
        """See `SessionWriter.path`."""
        return self._target.path

    @property
    def ignored(self) -> Mapping[str, int]:
        """See `SessionWriter.ignored`."""
        return self._target.ignored

    @property
    def lines_written(self) -> int:
        """Number of lines written."""
        return self._target.lines_written

    @property
    def failed_appends(self) -> int:
        """Number of calls whose failure was logged instead of raised."""
        return self._target.failed_appends

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncWriter(Face[Writer]):
    """The async form of ``store.agent_log.writer``."""

    record_command = forward_write(Writer.record_command)

    def open(
        self,
        *,
        place: Place | None = None,
        session_id: str | None = None,
        prompt: str | None = None,
        model: str | None = None,
        options: TranslationOptions = NO_OPTIONS,
        sync: SyncWord | None = None,
        on_error: OnError = "raise",
    ) -> AsyncSessionWriter:
        """See `Writer.open`. Not a coroutine, because it touches no file."""
        opened = self._target.open(
            place=place,
            session_id=session_id,
            prompt=prompt,
            model=model,
            options=options,
            sync=sync,
            on_error=on_error,
        )
        return AsyncSessionWriter(opened, self._runner)


class AsyncSessionFiles(Face[Sessions]):
    """The async form of ``store.agent_log.sessions``."""

    find = forward_read(Sessions.find)
    get = forward_read(Sessions.get)
    locations = forward_read(Sessions.locations)
    list = forward_read(Sessions.list)
    summary = forward_read(Sessions.summary)
    summaries = forward_read(Sessions.summaries)


class AsyncReader(Face[Reader]):
    """The async form of ``store.agent_log.reader``."""

    read = forward_read(Reader.read)
    messages = forward_read(Reader.messages)
    tail = forward_read(Reader.tail)
    search = forward_read(Reader.search)

    def scan(self, session_id: str, *, slug: str | None = None) -> AsyncIterator[LogLine]:
        """See `Reader.scan`. Raises `NotFound` only when the first line is requested."""
        return stream_items(lambda: self._target.scan(session_id, slug=slug))

    def follow(
        self, session_id: str, *, after: str | None = None, poll: float = 0.5, stop: threading.Event | None = None
    ) -> AsyncIterator[LogLine | Reset]:
        """See `Reader.follow`. Ends when the loop over it is left or its task is cancelled."""
        left = StopEvent(stop)
        return stream_items(lambda: self._target.follow(session_id, after=after, poll=poll, stop=left), left)


class AsyncRaw(Face[Raw]):
    """The async form of ``store.agent_log.raw``. The file that ``open`` returns is read synchronously."""

    get = forward_read(Raw.get)
    open = forward_read(Raw.open)
    list = forward_read(Raw.list)
    verify = forward_read(Raw.verify)


class AsyncLogRepair(Face[LogRepair]):
    """The async form of ``store.agent_log.repair``."""

    check = forward_read(LogRepair.check)
    seal = forward_write(LogRepair.seal)


class AsyncAgentLog(Face[AgentLog]):
    """The async form of ``store.agent_log``."""

    #: Opens the writers of sessions' logs.
    writer: Part[AsyncWriter] = Part("lastlight_state.aio.agent_log.AsyncWriter")
    #: Finds, lists and summarises logs.
    sessions: Part[AsyncSessionFiles] = Part("lastlight_state.aio.agent_log.AsyncSessionFiles")
    #: Reads logs.
    reader: Part[AsyncReader] = Part("lastlight_state.aio.agent_log.AsyncReader")
    #: Untruncated tool results.
    raw: Part[AsyncRaw] = Part("lastlight_state.aio.agent_log.AsyncRaw")
    #: Checks logs, and ends a torn last line with a newline.
    repair: Part[AsyncLogRepair] = Part("lastlight_state.aio.agent_log.AsyncLogRepair")

    @property
    def root(self) -> Path:
        """Return the directory of all logs."""
        return self._target.root
