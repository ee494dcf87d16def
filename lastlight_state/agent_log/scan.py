"""All lines of a log, streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from lastlight_state.agent_log.records import LOG_LINES, LogLine, SessionFile
from lastlight_state.agent_log.tree import open_log
from lastlight_state.jsonl.reader import LineReader


def scanned(log: SessionFile) -> Iterator[LogLine]:
    """The lines of the main log. Raises `NotFound` when it has vanished before the first."""
    descriptor = open_log(log)
    try:
        yield from LineReader(descriptor, log.path, LOG_LINES).records()
    finally:
        os.close(descriptor)
