"""Summaries of sessions, kept in memory so that of a grown log only the new bytes are read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from lastlight_state.agent_log.agents import AgentFiles, Recent
from lastlight_state.agent_log.arguments import SessionTypes
from lastlight_state.agent_log.records import LOG_LINES, AgentSessionSummary, SessionFile
from lastlight_state.agent_log.tally import Tally
from lastlight_state.agent_log.tree import open_log
from lastlight_state.errors import NotFound
from lastlight_state.jsonl import files, places
from lastlight_state.jsonl.cursor import START, Mark, mark_at
from lastlight_state.jsonl.reader import LineReader


@dataclass
class _Scan:
    """How far a file has been counted."""

    identity: tuple[int, int]
    mark: Mark = START
    tally: Tally = field(default_factory=Tally)
    issues: int = 0
    torn_tail: bool = False

    def copy(self) -> _Scan:
        """A copy to continue with, so that holders of this one are not affected."""
        return replace(self, tally=replace(self.tally))


class Summaries:
    """Summaries of sessions, over their main logs and those of their sub-agents."""

    def __init__(self, agents: AgentFiles, session_types: SessionTypes) -> None:
        self._agents = agents
        self._session_types = session_types
        self._scans: Recent[Path, _Scan] = Recent()

    def of(self, log: SessionFile) -> AgentSessionSummary:
        """The summary of a session. Raises `NotFound` if its log has vanished."""
        scan = self._scanned(log.path, open_log(log))
        for path in self._agents.of(log):
            try:
                descriptor = files.open_to_read(path, base=places.ROOT)
            except OSError:  # vanished meanwhile, a link, or unreadable
                continue
            other = self._scanned(path, descriptor)
            scan.tally.add_file(other.tally)
            scan.issues += other.issues
        return self._summary(log, scan)

    def find(self, log: SessionFile) -> AgentSessionSummary | None:
        """The summary of a session, or None if its log has vanished."""
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

    def _scanned(self, path: Path, descriptor: int) -> _Scan:
        """A scan of the file up to its end, for the caller to change. Closes the file."""
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
        scan = scan.copy()  # the unterminated end counts now, and again when it is terminated
        scan.torn_tail = reader.torn_tail
        if last:
            scan.tally.add(last.value)
        return scan
