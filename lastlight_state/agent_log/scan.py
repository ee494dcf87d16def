"""All lines of a log, streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from lastlight_state.agent_log import envelopes
from lastlight_state.agent_log.cursors import MAIN
from lastlight_state.agent_log.records import LogLine, SessionFile
from lastlight_state.agent_log.tree import open_log
from lastlight_state.jsonl.reader import LineReader


def scanned(log: SessionFile) -> Iterator[LogLine]:
    """The lines of the main log. Raises `NotFound` when it has vanished before the first."""
    descriptor = open_log(log)
    try:
        for line in LineReader(descriptor, log.path, envelopes.is_record).records():
            yield LogLine(*line, MAIN)
    finally:
        os.close(descriptor)
