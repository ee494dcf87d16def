"""Searching messages for a text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lastlight_state.agent_log.messages import parts_of
from lastlight_state.agent_log.records import Hit, LogLine, SessionFile
from lastlight_state.errors import InvalidValue

_BEFORE, _BEHIND = 60, 120


class Search:
    """Collects the messages that contain a text, up to a number of hits."""

    def __init__(self, text: str, limit: int) -> None:
        if not text:
            raise InvalidValue("text", "empty")
        self.hits: list[Hit] = []
        self._pattern = re.compile(re.escape(text), re.IGNORECASE)
        self._limit = limit

    def add(self, log: SessionFile, lines: Iterable[LogLine]) -> bool:
        """Search the lines of a session; returns False once there are enough hits."""
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
