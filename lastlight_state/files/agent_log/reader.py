"""Reads the logs of agent sessions: pages of lines or messages, last lines, all lines, new lines, search.

No content of a file makes a reader fail: a line that is not a record is skipped and counted, with its position.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from lastlight_state.db.gate import check_arguments, guard_arguments
from lastlight_state.db.valid import number, page_limit, seconds
from lastlight_state.errors import NotFound
from lastlight_state.files.agent_log import events, merge
from lastlight_state.files.agent_log.events import Position
from lastlight_state.files.agent_log.merge import Search, main_lines
from lastlight_state.files.agent_log.messages import messages_of
from lastlight_state.files.agent_log.records import LOG_LINES, Hit, LogIssue, LogLine, LogMessage, LogPage, MessagePage
from lastlight_state.files.agent_log.summaries import ScopeFilter, Sessions
from lastlight_state.files.agent_log.tree import AgentFiles, open_log
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.cursor import mark_at, read_tail
from lastlight_state.files.jsonl.follow import Reset, Stop, follow
from lastlight_state.files.jsonl.reader import MAIN


class Reader:
    """Readers of logs: ``store.agent_log.reader``.

    If several projects have a log of the session, ``slug`` selects one. The default is the log that changed last.
    """

    def __init__(self, sessions: Sessions, agents: AgentFiles) -> None:
        self._sessions = sessions
        self._agents = agents

    @guard_arguments
    def read(
        self,
        session_id: str,
        *,
        after: str | None = None,
        limit: int = 200,
        types: Collection[str] | None = None,
        include_agents: bool = False,
        slug: str | None = None,
    ) -> LogPage:
        """Return a page of lines after the cursor ``after``, in file order. ``limit``: 1 to 500.

        ``types`` selects lines of these types. ``include_agents`` merges the logs of sub-agents by time, never changing
        the order inside a file. Raises `NotFound`, and `InvalidValue` for a damaged cursor.
        """
        limit = page_limit(limit)
        wanted = None if types is None else frozenset([types] if isinstance(types, str) else types)
        with self._open_sources(session_id, slug, after, include_agents=include_agents) as sources:
            before = sources.cursor()
            lines: list[LogLine] = []
            while len(lines) < limit and (line := sources.take()):
                if wanted is None or line.type in wanted:
                    lines.append(line)
            return LogPage.of({**_state_of(sources), "lines": tuple(lines), "before": before})

    @guard_arguments
    def messages(
        self,
        session_id: str,
        *,
        after: str | None = None,
        limit: int = 200,
        include_agents: bool = False,
        slug: str | None = None,
    ) -> MessagePage:
        """Return a page of messages for display, in file order. ``limit``: 1 to 500; arguments and errors as in `read`.

        The messages of one line stay together; a page is longer than ``limit`` only if one line has more messages.
        """
        limit = page_limit(limit)
        with self._open_sources(session_id, slug, after, include_agents=include_agents) as sources:
            found: list[LogMessage] = []
            while len(found) < limit and (line := sources.peek()):
                messages = messages_of(line)
                if found and len(found) + len(messages) > limit:
                    break
                found += messages
                sources.take()
            return MessagePage.of({**_state_of(sources), "messages": tuple(found)})

    @guard_arguments
    def tail(self, session_id: str, *, n: int = 50, before: str | None = None, slug: str | None = None) -> LogPage:
        """Return the last ``n`` (1 to 500) lines, oldest first; with ``before``, the last lines before that cursor.

        Pass the page's ``before`` to go further back, and the page's ``cursor`` to `read` or `follow` to go on. The
        cost depends on the size of these lines, not on the size of the file. Raises `NotFound`.
        """
        n = page_limit(n)
        given = events.of_text("before", before).get(MAIN)
        log = self._sessions.get(session_id, slug=slug)
        path, descriptor = log.path, open_log(log)
        try:
            size = os.fstat(descriptor).st_size
            holds = given is None or given.mark.holds(descriptor, path)
            end = given.mark.offset if given and holds else size
            found = read_tail(descriptor, path, LOG_LINES, n=n, before=end)
            first = found.lines[0].offset if found.lines else 0
            last = found.lines[-1].end if found.lines else 0
            return LogPage.of(
                {
                    "lines": found.lines,
                    "cursor": events.to_text({MAIN: Position(mark_at(descriptor, path, last))}),
                    "before": events.to_text({MAIN: Position(mark_at(descriptor, path, first))}),
                    "at_end": end == size,
                    "torn_tail": found.torn_tail and end == size,
                    "issues": tuple(LogIssue.at(issue, MAIN) for issue in found.issues),
                    "reset": not holds,
                }
            )
        finally:
            os.close(descriptor)

    @guard_arguments
    def scan(self, session_id: str, *, slug: str | None = None) -> Iterator[LogLine]:
        """Yield all lines of the main log as a stream. Raises `NotFound` at the call, not at the first line."""
        return main_lines(self._sessions.get(session_id, slug=slug))

    @check_arguments
    def follow(
        self, session_id: str, *, after: str | None = None, poll: float = 0.5, stop: Stop | None = None
    ) -> Iterator[LogLine | Reset]:
        """Yield the lines of the main log after the cursor ``after``, then new lines as they are appended.

        Waits for a log that does not exist yet.

        A line is yielded after its newline was written. A `Reset` means that the file was truncated or replaced, and
        that reading begins again. Polls every ``poll`` seconds until ``stop`` (a ``threading.Event``) is set. Leaving
        the loop closes the file.
        """
        start = events.of_text("after", after).get(MAIN, Position())
        seconds("poll", poll)

        def locate() -> Path | None:
            log = self._sessions.find(session_id)
            return log.path if log else None

        locate()  # so that an unsafe id is refused at the call
        return follow(locate, LOG_LINES, after=start.mark, poll=poll, stop=stop, base=files.ROOT)

    @guard_arguments
    def search(self, text: str, *, scope: ScopeFilter = "sandbox", sessions: int = 200, limit: int = 50) -> list[Hit]:
        """Return one hit for each message that contains the text in any case, from the sessions that changed last.

        Reads at most ``sessions`` (1 to 500) logs and returns at most ``limit`` (1 to 500) hits, each with 60
        characters before the text and 120 after it. Raises `InvalidValue` for an empty text.
        """
        search = Search(text, page_limit(limit))
        for log in self._sessions.list(scope=scope, limit=number("sessions", sessions, least=1, most=500)):
            with suppress(NotFound):  # vanished meanwhile
                if not search.add(log, main_lines(log)):
                    break
        return search.hits

    def _open_sources(
        self, session_id: str, slug: str | None, after: str | None, *, include_agents: bool
    ) -> AbstractContextManager[merge.Sources]:
        positions = events.of_text("after", after)
        log = self._sessions.get(session_id, slug=slug)
        return merge.open_sources(log, self._agents.of(log) if include_agents else (), positions)


def _state_of(sources: merge.Sources) -> dict[str, Any]:
    """Return the state of the files, for a page."""
    return {
        "at_end": sources.peek() is None,
        "cursor": sources.cursor(),
        "torn_tail": sources.torn_tail,
        "issues": sources.issues(),
        "reset": sources.reset,
    }
