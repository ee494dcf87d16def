"""Records of logs, their lines, messages, summaries and checks.

`LogLine` is a named tuple and not a pydantic model: reading a log makes one for each line, and a named tuple adds
little to the cost of parsing.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from lastlight_state.db.rows.records import Page, Record
from lastlight_state.files.agent_log import events
from lastlight_state.files.agent_log.paths import Scope
from lastlight_state.files.jsonl.cursor import mark_behind
from lastlight_state.files.jsonl.reader import Issue, Line, LineKind
from lastlight_state.files.jsonl.recovery import Reason


class SessionFile(Record):
    """A log file, as listed in its directory. ``safe`` is False for an id under which no log would be written."""

    id: str
    slug: str
    scope: Scope
    bytes: int
    modified_at: datetime
    path: Path
    safe: bool


class SessionPage(Page[SessionFile]):
    """A page of log files. ``skipped`` counts dangling links and unreadable directories."""

    skipped: int = 0


class LogLine(Line):
    """A line of a log. ``raw`` holds its exact bytes without the newline, and ``end`` is the offset of the next line.

    ``source`` is ``main`` or the name of a sub-agent's file. ``recovered`` is True for a line found in a damaged line.
    """

    __slots__ = ()

    @property
    def length(self) -> int:
        """Return the number of bytes of the line."""
        return len(self.raw)

    @property
    def type(self) -> str | None:
        """Return the line's ``type``; None for a role line."""
        kind = self.value.get("type")
        return kind if isinstance(kind, str) else None

    @property
    def timestamp(self) -> datetime | None:
        """Return the time of the line, aware UTC."""
        return events.time_of(self.value)

    @property
    def cursor(self) -> str:
        """Return the cursor after this line, for ``after`` of the readers of a main log."""
        is_ended = self.end > self.offset + len(self.raw)
        mark = mark_behind(self.raw + b"\n" if is_ended else self.raw, self.end)
        return events.to_text({self.source: events.Position(mark, self.timestamp)})


#: The kind of the files of agent logs.
LOG_LINES = LineKind(LogLine, events.is_record)


class LogIssue(Record):
    """A line that is not a record."""

    offset: int
    length: int
    reason: Reason
    source: str

    @classmethod
    def at(cls, issue: Issue, source: str) -> LogIssue:
        """Return the issue for a damaged line in a file."""
        return cls.of({**issue._asdict(), "source": source})


class _Reading(Record):
    """The facts about the file in every page of a log.

    To read on, pass ``cursor`` as the argument ``after``. To read backwards, pass ``before`` as the argument ``before``
    of `tail`. ``torn_tail`` is True if the file ends in the middle of a line, which may still be written. ``reset`` is
    True if the given cursor belonged to another file, so that the page begins at the start.
    """

    cursor: str
    at_end: bool
    torn_tail: bool
    issues: tuple[LogIssue, ...]
    reset: bool


class LogPage(_Reading):
    """A page of a log's lines, in file order."""

    lines: tuple[LogLine, ...]
    before: str


class LogMessage(Record):
    """A message of a session, for display. (``source``, ``offset``, ``part``) identifies it permanently.

    ``content`` is text. Of a role line, the content is returned whatever its type is, and the other keys are in
    ``extra``.
    """

    offset: int
    part: int
    source: str
    role: str
    content: Any
    timestamp: datetime | None
    tool_call_id: str | None = None
    is_error: bool = False
    raw_ref: dict[str, Any] | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    reasoning: str | None = None
    finish_reason: str | None = None
    model: str | None = None
    extra: dict[str, Any]


class MessagePage(_Reading):
    """A page of a session's messages. The messages of one line stay on one page."""

    messages: tuple[LogMessage, ...]


class Hit(Record):
    """A message in which a text was found, with the text around it."""

    session_id: str
    slug: str
    offset: int
    part: int
    role: str
    timestamp: datetime | None
    snippet: str


class RunResult(Record):
    """The last result line of a session. ``result`` has at most 4,000 characters."""

    subtype: str | None
    stop_reason: str | None
    result: str
    turns: float
    cost_usd: float
    input_tokens: float
    output_tokens: float
    cache_read_input_tokens: float
    cache_creation_input_tokens: float
    duration_ms: float
    timestamp: datetime | None


class LogUsage(Record):
    """The summed usage of a log's agent runs.

    For each run, only the last result is added, because a result holds the totals of its run so far.

    A result belongs to the same run as the result before it if both have the same start, or if only errors are between
    them.
    """

    turns: float = 0
    cost_usd: float = 0
    input_tokens: float = 0
    output_tokens: float = 0
    cache_read_input_tokens: float = 0
    cache_creation_input_tokens: float = 0
    duration_ms: float = 0

    def plus(self, result: RunResult | None) -> LogUsage:
        """Return the sum of this usage and the usage of a result."""
        if result is None:
            return self
        return LogUsage.of({name: getattr(self, name) + getattr(result, name) for name in type(self).model_fields})


class AgentSessionSummary(Record):
    """A summary of a session: of its main log and the logs of its sub-agents.

    ``started_at`` and ``last_message_at`` are the earliest and latest times of all lines. If no line has a time, they
    are the file's modification time and None. The first prompt has at most 500 characters, the last text at most 4,000.
    ``usage`` and ``last_result`` come from the main log.
    """

    id: str
    slug: str
    scope: Scope
    session_type: str
    started_at: datetime
    last_message_at: datetime | None
    model: str | None
    source: str | None
    message_count: int
    tool_call_count: int
    first_prompt: str
    last_assistant_text: str
    agent_ids: tuple[str, ...]
    result_count: int
    last_result: RunResult | None
    usage: LogUsage
    error_count: int
    issues: int
    torn_tail: bool
    bytes: int


class RawFile(Record):
    """An untruncated tool result that is stored in a file of its own."""

    sha256: str
    bytes: int


class RawCheck(Record):
    """A comparison of the stored tool results with a log.

    It lists the intact results, the damaged ones, the ones that are missing, and the ones that the log does not refer
    to.
    """

    sound: tuple[str, ...]
    damaged: tuple[str, ...]
    missing: tuple[str, ...]
    unreferenced: tuple[str, ...]


class LogCheck(Record):
    """A check of a log. ``lines`` counts all lines that are not blank, ``records`` those that readers return.

    ``recovered`` counts the records in damaged lines. ``issues`` are the first 1,000 of ``issue_count``.
    ``missing_raw`` are hashes of untruncated results that the log refers to but which do not exist.
    ``unreferenced_raw`` are hashes of existing ones that no line refers to. ``repeated_results`` are tool calls whose
    result occurs more than once. Each has at most 1,000 entries.
    """

    lines: int
    records: int
    recovered: int
    issues: tuple[LogIssue, ...]
    issue_count: int
    torn_tail: bool
    missing_raw: tuple[str, ...]
    unreferenced_raw: tuple[str, ...]
    repeated_results: tuple[str, ...]
