"""Sources: the open files of a session, read as one sequence of lines.

Files are merged by time without changing the order inside a file. A line without a time, or with an earlier time than a
line before it, is merged as if it had the time of that line before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastlight_state.errors import InvalidValue
from lastlight_state.files.agent_log import events
from lastlight_state.files.agent_log.events import Position
from lastlight_state.files.agent_log.messages import parts_of
from lastlight_state.files.agent_log.records import LOG_LINES, Hit, LogIssue, LogLine, SessionFile
from lastlight_state.files.agent_log.tree import open_log
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.cursor import BLOCK_BYTES, in_blocks, mark_at
from lastlight_state.files.jsonl.reader import MAIN, LineReader

# Searching messages for a text.

_BEFORE, _BEHIND = 60, 120


class Search:
    """A search for messages that contain a text. It collects hits up to a limit."""

    def __init__(self, text: str, limit: int) -> None:
        if not text:
            raise InvalidValue("text", "must not be empty")
        self.hits: list[Hit] = []
        self._pattern = re.compile(re.escape(text), re.IGNORECASE)
        self._limit = limit

    def add(self, log: SessionFile, lines: Iterable[LogLine]) -> bool:
        """Search the lines of a session. Returns False once the number of hits has reached the limit."""
        for line in lines:
            for part, message in enumerate(parts_of(line.value)):
                found = self._pattern.search(message["content"]) if isinstance(message["content"], str) else None
                if found:
                    self.hits.append(_hit(log, line, part, message, found.span()))
                    if len(self.hits) >= self._limit:
                        return False
        return True


def _hit(log: SessionFile, line: LogLine, part: int, message: dict[str, Any], span: tuple[int, int]) -> Hit:
    return Hit(
        session_id=log.id,
        slug=log.slug,
        offset=line.offset,
        part=part,
        role=message["role"],
        timestamp=line.timestamp,
        snippet=message["content"][max(0, span[0] - _BEFORE) : span[1] + _BEHIND],
    )


# A stream of all lines of a log.


def main_lines(log: SessionFile) -> Iterator[LogLine]:
    """Yield the lines of the main log. Raises `NotFound` if the log has vanished before the first line is read.

    The file is closed between two blocks of bytes. If it was replaced meanwhile, raises `BackendUnavailable`.
    """
    reader = LineReader(-1, log.path, LOG_LINES, block_bytes=BLOCK_BYTES)
    yield from in_blocks(log.path, lambda: open_log(log), reader.batch)
    last = reader.tail()
    if last is not None:
        yield last


_EARLIEST = datetime.min.replace(tzinfo=UTC)


class Source:
    """One open file. ``next`` is its next line, or None at the end. ``order`` is the sort key of that line."""

    def __init__(self, name: str, path: Path, descriptor: int, start: Position) -> None:
        self.name = name
        self.next: LogLine | None = None
        self.order = start.latest or _EARLIEST
        self.reader = LineReader(descriptor, path, LOG_LINES, start=start.mark.offset, source=name)
        self._path = path
        self._descriptor = descriptor
        self._taken_to = start.mark.offset
        self._latest = start.latest
        self._lines = self.reader.records()
        self._advance()

    def take(self, line: LogLine) -> LogLine:
        """Return the next line, and move the position after it."""
        self._taken_to = line.end
        self._latest = None if self.order is _EARLIEST else self.order
        self._advance()
        return line

    def position(self) -> Position:
        """Return the position after the lines that were returned."""
        return Position(mark_at(self._descriptor, self._path, self._stands_at()), self._latest)

    def issues(self) -> list[LogIssue]:
        """Return the lines before the current position that are not records."""
        stands_at = self._stands_at()
        return [LogIssue.at(issue, self.name) for issue in self.reader.issues if issue.offset < stands_at]

    def _stands_at(self) -> int:
        if self.next is None:
            return max(self._taken_to, self.reader.offset)
        return self._taken_to if self.next.recovered else self.next.offset  # its damaged line is read once more

    def _advance(self) -> None:
        self.next = next(self._lines, None)
        moment = self.next.timestamp if self.next else None
        if moment is not None and moment > self.order:
            self.order = moment


class Sources:
    """The open files of a session.

    ``reset`` is True if a given position belonged to another file, so that all files are read from the start.
    """

    def __init__(self, sources: list[Source], *, reset: bool) -> None:
        self.reset = reset
        self._sources = sources

    def peek(self) -> LogLine | None:
        """Return the next line without advancing, or None at the end."""
        earliest = self._earliest()
        return earliest[1] if earliest else None

    def take(self) -> LogLine | None:
        """Return the next line and advance, or return None at the end."""
        earliest = self._earliest()
        return earliest[0].take(earliest[1]) if earliest else None

    def cursor(self) -> str:
        """Return the cursor after the lines that were returned."""
        return events.to_text({source.name: source.position() for source in self._sources})

    def issues(self) -> tuple[LogIssue, ...]:
        """Return the lines before the cursor that are not records."""
        return tuple(issue for source in self._sources for issue in source.issues())

    @property
    def torn_tail(self) -> bool:
        """True if the main file was read to its end, and ends in the middle of a line."""
        return self._sources[0].reader.torn_tail

    def _earliest(self) -> tuple[Source, LogLine] | None:
        waiting = [(source, source.next) for source in self._sources if source.next is not None]
        return min(waiting, key=lambda pair: pair[0].order, default=None)


@contextmanager
def open_sources(log: SessionFile, agents: Iterable[Path], positions: Mapping[str, Position]) -> Iterator[Sources]:
    """Open the files of a session for reading from these positions. Raises `NotFound` if the main file has vanished."""
    found = [(MAIN, log.path, open_log(log))]
    try:
        for path in agents:
            try:
                found.append((path.stem, path, files.open_to_read(path, base=files.ROOT)))
            except OSError:  # vanished meanwhile, a link, or unreadable
                continue
        starts = {name: positions.get(name, Position()) for name, _, _ in found}
        reset = not all(starts[name].mark.holds(descriptor, path) for name, path, descriptor in found)
        yield Sources(
            [Source(name, path, descriptor, Position() if reset else starts[name]) for name, path, descriptor in found],
            reset=reset,
        )
    finally:
        for _, _, descriptor in found:
            os.close(descriptor)
