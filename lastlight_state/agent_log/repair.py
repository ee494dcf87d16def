"""Checking a log, and ending its torn tail. Copies and replacements of damaged files are made by maintenance."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from lastlight_state.agent_log import raw_files
from lastlight_state.agent_log.raw import references_of
from lastlight_state.agent_log.records import LOG_LINES, LogCheck, LogIssue, LogLine, SessionFile
from lastlight_state.agent_log.sessions import Sessions
from lastlight_state.agent_log.tree import open_log
from lastlight_state.db.gate import guarded
from lastlight_state.jsonl import files, repair
from lastlight_state.jsonl.reader import MAIN, LineReader

MOST_NAMED = 1_000


class LogRepair:
    """``store.agent_log.repair``"""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @guarded
    def check(self, session_id: str, *, slug: str | None = None) -> LogCheck:
        """Check a session's main log. Reads all of it, and writes nothing. Raises `NotFound`.

        A torn tail alone is no issue: the line may still be written.
        """
        log = self._sessions.get(session_id, slug=slug)
        before = _kept(log)
        descriptor = open_log(log)
        try:
            reader = LineReader(descriptor, log.path, LOG_LINES)
            seen = _Seen()
            for line in reader.records():
                seen.add(line)
        finally:
            os.close(descriptor)
        return LogCheck(
            lines=seen.sound + reader.issue_count + reader.torn_tail,
            records=seen.sound + seen.recovered,
            recovered=seen.recovered,
            issues=tuple(LogIssue.at(issue, MAIN) for issue in reader.issues),
            issue_count=reader.issue_count,
            torn_tail=reader.torn_tail,
            missing_raw=_some(seen.referred - _kept(log)),
            unreferenced_raw=_some(before - seen.referred),
            repeated_results=_some(call for call, times in seen.results.items() if times > 1),
        )

    @guarded
    def seal(self, session_id: str, *, slug: str | None = None) -> bool:
        """End a torn tail with a newline, under the lock of its writers; returns whether there was one. Idempotent.

        Nothing else in the file changes. Raises `NotFound`, `BackendBusy`, `BackendUnavailable`.
        """
        return repair.seal(self._sessions.get(session_id, slug=slug).path)


class _Seen:
    """Counts of a log's lines."""

    def __init__(self) -> None:
        self.sound = 0
        self.recovered = 0
        self.results: Counter[str] = Counter()
        self.referred: set[str] = set()

    def add(self, line: LogLine) -> None:
        """Count a line."""
        if line.recovered:
            self.recovered += 1
        else:
            self.sound += 1
        self.referred.update(references_of(line.value))
        self.results.update(_results_of(line))


def _kept(log: SessionFile) -> set[str]:
    """The hashes of the untruncated results that are there. Each is stored before the line that refers to it."""
    directory = raw_files.directory_of(log.path)
    try:
        return set(raw_files.kept(directory))
    except OSError as error:
        raise files.failure(error, directory) from error


def _some(found: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(found)[:MOST_NAMED])


def _results_of(line: LogLine) -> list[str]:
    """The ids of the tool calls whose results are in the line."""
    message = line.value.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    calls = [block.get("tool_use_id") for block in blocks if block.get("type") == "tool_result"]
    return [call for call in calls if isinstance(call, str)]
