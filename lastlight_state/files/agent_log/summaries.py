"""Summaries of sessions, cached in memory, so that only new bytes of a grown log are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeAlias

from lastlight_state.db.gate import guard_arguments
from lastlight_state.db.lists import pages
from lastlight_state.db.valid import page_limit
from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.files.agent_log import events, messages, paths
from lastlight_state.files.agent_log.arguments import SessionTypes
from lastlight_state.files.agent_log.records import (
    LOG_LINES,
    AgentSessionSummary,
    LogUsage,
    RunResult,
    SessionFile,
    SessionPage,
)
from lastlight_state.files.agent_log.tree import AgentFiles, FoundLog, LogTree, Recent, open_log
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.cursor import START, Mark, mark_at
from lastlight_state.files.jsonl.reader import LineReader
from lastlight_state.reprs import repr_of

# Tally: the counts of a summary, taken line by line.

PROMPT_CHARACTERS, TEXT_CHARACTERS = 500, 4_000
NOTHING = LogUsage()
_MILLISECOND = timedelta(milliseconds=1)
_COUNTED = frozenset({"user", "assistant", "tool"})


@dataclass
class Tally:
    """Counts of the lines so far, and their first and last values. The session type is found in ``prompt_blocks``."""

    first_at: datetime | None = None
    last_at: datetime | None = None
    told_start: datetime | None = None
    source: str | None = None
    model: str | None = None
    message_count: int = 0
    tool_call_count: int = 0
    first_prompt: str | None = None
    prompt_blocks: str = ""
    last_text: str = ""
    agent_ids: tuple[str, ...] = ()
    result_count: int = 0
    last_result: RunResult | None = None
    #: The usage of the runs before the last result's run, and whether anything but errors followed that result.
    earlier: LogUsage = NOTHING
    went_on: bool = False
    error_count: int = 0

    def add(self, value: Mapping[str, Any]) -> None:
        """Count one line of the log."""
        self._add_time(events.time_of(value))
        agent = events.text(value, "agentId")
        if agent and agent not in self.agent_ids:
            self.agent_ids += (agent,)
        if value.get("type") == "result":
            self._add_result(_result(value))
        elif value.get("role") == "session_meta":
            self._add_meta(value)
        else:
            is_error = value.get("isApiErrorMessage") is True
            self.error_count += is_error
            self.went_on |= not is_error
            for message in messages.parts_of(value):
                self._add_message(message, value)

    def add_file(self, other: Tally) -> None:
        """Add the counts of a sub-agent's file. The first and last values stay those of the main log."""
        self._add_time(other.first_at)
        self._add_time(other.last_at)
        self.model = self.model or other.model
        self.message_count += other.message_count
        self.tool_call_count += other.tool_call_count
        self.error_count += other.error_count
        self.agent_ids += tuple(agent for agent in other.agent_ids if agent not in self.agent_ids)

    def _add_result(self, result: RunResult) -> None:
        last = self.last_result
        if last is not None and self.went_on and not _same_run(last, result):
            self.earlier = self.earlier.plus(last)
        self.result_count += 1
        self.last_result = result
        self.went_on = False

    def _add_time(self, moment: datetime | None) -> None:
        if moment is not None:
            self.first_at = moment if self.first_at is None else min(self.first_at, moment)
            self.last_at = moment if self.last_at is None else max(self.last_at, moment)

    def _add_meta(self, value: Mapping[str, Any]) -> None:
        self.source = events.text(value, "platform") or events.text(value, "source") or self.source
        self.model = events.text(value, "model") or self.model
        self.told_start = events.time_of(value) or self.told_start

    def _add_message(self, message: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        role, content = message["role"], message["content"]
        self.message_count += role in _COUNTED
        self.tool_call_count += len(message.get("tool_calls", ()))
        if role == "assistant":
            self.model = self.model or message.get("model")
            if isinstance(content, str) and content:
                self.last_text = content[:TEXT_CHARACTERS]
        elif role == "user" and self.first_prompt is None:
            self.first_prompt = messages.text_of(content)[:PROMPT_CHARACTERS]
            blocks = messages.text_of(messages.content_of(value), joined_by=" ")
            self.prompt_blocks = blocks[:PROMPT_CHARACTERS]


def _same_run(last: RunResult, result: RunResult) -> bool:
    """True if two results have the same start, within a rounding error of one millisecond."""
    if last.timestamp is None or result.timestamp is None:
        return False
    passed = (result.timestamp - last.timestamp) / _MILLISECOND
    return abs(passed - (result.duration_ms - last.duration_ms)) <= 1


def _result(value: Mapping[str, Any]) -> RunResult:
    return RunResult(
        subtype=events.text(value, "subtype"),
        stop_reason=events.text(value, "stop_reason") or events.text(value, "subtype"),
        result=(events.text(value, "result") or "")[:TEXT_CHARACTERS],
        turns=_number(value, "num_turns"),
        cost_usd=_number(value, "total_cost_usd"),
        input_tokens=_number(value, "total_input_tokens"),
        output_tokens=_number(value, "total_output_tokens"),
        cache_read_input_tokens=_number(value, "total_cache_read_input_tokens"),
        cache_creation_input_tokens=_number(value, "total_cache_creation_input_tokens"),
        duration_ms=_number(value, "duration_ms"),
        timestamp=events.time_of(value),
    )


def _number(value: Mapping[str, Any], name: str) -> float:
    told = events.number(value.get(name))
    return 0 if told is None or not isfinite(told) else told


@dataclass
class _Scan:
    """A partial count of a file: the counts, and the position up to which lines were counted."""

    identity: tuple[int, int]
    mark: Mark = START
    tally: Tally = field(default_factory=Tally)
    issues: int = 0
    torn_tail: bool = False

    def copy(self) -> _Scan:
        """Return a copy that can be continued. This object stays unchanged for other readers."""
        return replace(self, tally=replace(self.tally))


class Summaries:
    """Summaries of sessions, over their main logs and those of their sub-agents."""

    def __init__(self, agents: AgentFiles, session_types: SessionTypes) -> None:
        self._agents = agents
        self._session_types = session_types
        self._scans: Recent[Path, _Scan] = Recent()

    def of(self, log: SessionFile) -> AgentSessionSummary:
        """Return the summary of a session. Raises `NotFound` if the session's log has vanished."""
        scan = self._scan_file(log.path, open_log(log))
        for path in self._agents.of(log):
            try:
                descriptor = files.open_to_read(path, base=files.ROOT)
            except OSError:  # vanished meanwhile, a link, or unreadable
                continue
            other = self._scan_file(path, descriptor)
            scan.tally.add_file(other.tally)
            scan.issues += other.issues
        return self._summary(log, scan)

    def find(self, log: SessionFile) -> AgentSessionSummary | None:
        """Return the summary of a session, or None if its log has vanished."""
        try:
            return self.of(log)
        except NotFound:
            return None

    def _summary(self, log: SessionFile, scan: _Scan) -> AgentSessionSummary:
        tally = scan.tally
        return AgentSessionSummary(
            id=log.id,
            slug=log.slug,
            scope=log.scope,
            session_type=self._type_of(log, tally.prompt_blocks),
            started_at=tally.told_start or tally.first_at or log.modified_at,
            last_message_at=tally.last_at,
            model=tally.model,
            source=tally.source,
            message_count=tally.message_count,
            tool_call_count=tally.tool_call_count,
            first_prompt=tally.first_prompt or "",
            last_assistant_text=tally.last_text,
            agent_ids=tally.agent_ids,
            result_count=tally.result_count,
            last_result=tally.last_result,
            usage=tally.earlier.plus(tally.last_result),
            error_count=tally.error_count,
            issues=scan.issues,
            torn_tail=scan.torn_tail,
            bytes=log.bytes,
        )

    def _type_of(self, log: SessionFile, prompt: str) -> str:
        for parts, word in self._session_types:
            if all(part in prompt for part in parts):
                return word
        return "chat" if log.scope == "chat" else "agent"

    def _scan_file(self, path: Path, descriptor: int) -> _Scan:
        """Return a scan of the file up to its end, which the caller may change. Closes the descriptor."""
        try:
            found = os.fstat(descriptor)
            known, identity = self._scans.find(path), (found.st_dev, found.st_ino)
            if known and known.identity == identity and known.mark.holds(descriptor, path):
                return self._go_on(known.copy(), descriptor, path)
            return self._go_on(_Scan(identity), descriptor, path)
        finally:
            os.close(descriptor)

    def _go_on(self, scan: _Scan, descriptor: int, path: Path) -> _Scan:
        reader = LineReader(descriptor, path, LOG_LINES, start=scan.mark.offset)
        for line in reader.lines():
            scan.tally.add(line.value)
        last = reader.tail()
        scan.issues += reader.issue_count
        if reader.offset != scan.mark.offset:
            scan.mark = mark_at(descriptor, path, reader.offset)
        self._scans.put(path, scan)
        scan = scan.copy()  # a last line without newline counts now, and again when it is complete
        scan.torn_tail = reader.torn_tail
        if last:
            scan.tally.add(last.value)
        return scan


# Finding, listing and summarising agent sessions by their files.

ScopeFilter: TypeAlias = Literal["all", "chat", "sandbox"]
_SCOPES = ("all", "chat", "sandbox")
_KIND = "agent_session"


class Sessions:
    """The sessions: ``store.agent_log.sessions``. Only `summary` and `summaries` read the contents of logs."""

    def __init__(self, tree: LogTree, summaries: Summaries) -> None:
        self._tree = tree
        self._summaries = summaries

    @guard_arguments
    def find(self, session_id: str, *, slug: str | None = None) -> SessionFile | None:
        """Return the session's log, or None. If there are several, return the one that changed last."""
        return next(iter(self.locations(session_id, slug=slug)), None)

    @guard_arguments
    def get(self, session_id: str, *, slug: str | None = None) -> SessionFile:
        """Return the session's log, as `find` does. Raises `NotFound` without a log."""
        found = self.find(session_id, slug=slug)
        if found is None:
            raise NotFound(_KIND, session_id)
        return found

    @guard_arguments
    def locations(self, session_id: str, *, slug: str | None = None) -> tuple[SessionFile, ...]:
        """Return all logs of this session, the last changed first. Several project directories may have a log of it.

        Raises `UnsafePath` for an id or slug that cannot name a file.
        """
        paths.readable_id(session_id)
        slugs = self._tree.slugs()[0] if slug is None else [paths.checked_slug(slug)]
        found = (self._tree.find(session_id, name) for name in slugs)
        return tuple(self._tree.file_of(log) for log in sorted(log for log in found if log))

    @guard_arguments
    def list(
        self, *, scope: ScopeFilter = "all", slug: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> SessionPage:
        """Return a page of session logs, the last changed first; equal times by slug and id. ``limit``: 1 to 500.

        Logs under ids that this library would not write have ``safe=False``. Unreadable entries are counted in
        ``skipped``.
        """
        limit = page_limit(limit)
        if scope not in _SCOPES:
            raise InvalidValue("scope", f"unknown: {repr_of(scope, 80)}", permitted=_SCOPES)
        asked = [scope, None if slug is None else paths.checked_slug(slug)]
        after = _key_of(asked, page_token)
        slugs, skipped = self._tree.slugs()
        logs: list[FoundLog] = []
        for name in slugs:
            if slug in (None, name) and scope in ("all", paths.scope_of(name)):
                found, unseen = self._tree.logs(name)
                logs += found
                skipped += unseen
        logs.sort()
        if after is not None:
            logs = [log for log in logs if log[:3] > after]
        token = pages.pack([asked, *logs[limit - 1][:3]]) if len(logs) > limit else None
        items = tuple(self._tree.file_of(log) for log in logs[:limit])
        return SessionPage(items=items, next_page_token=token, skipped=skipped)

    @guard_arguments
    def summary(self, session_id: str, *, slug: str | None = None) -> AgentSessionSummary:
        """Return the summary of the session.

        If the session was summarised before, only new lines are read. Raises `NotFound`.
        """
        return self._summaries.of(self.get(session_id, slug=slug))

    @guard_arguments
    def summaries(self, files: Iterable[SessionFile]) -> tuple[AgentSessionSummary, ...]:
        """Return the summaries of these sessions, in their order. Vanished files are left out."""
        found = (self._summaries.find(log) for log in files)
        return tuple(summary for summary in found if summary)


def _key_of(asked: list[Any], token: str | None) -> tuple[int, str, str] | None:
    if token is None:
        return None
    match pages.unpack("page_token", token):
        case [found, int(age), str(slug), str(session_id)] if found == asked:
            return age, slug, session_id
    raise InvalidValue(
        "page_token", "expected a token of this list with these filters: it was made for another list or another filter"
    )
