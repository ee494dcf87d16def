"""All lines of a log, streamed."""

from __future__ import annotations

from collections.abc import Iterator

from lastlight_state.agent_log.records import LOG_LINES, LogLine, SessionFile
from lastlight_state.agent_log.tree import open_log
from lastlight_state.jsonl.blocks import BLOCK_BYTES, in_blocks
from lastlight_state.jsonl.reader import LineReader


def scanned(log: SessionFile) -> Iterator[LogLine]:
    """The lines of the main log. Raises `NotFound` when it has vanished before the first.

    The file is closed between two blocks. One that was replaced meanwhile is `BackendUnavailable`.
    """
    reader = LineReader(-1, log.path, LOG_LINES, block_bytes=BLOCK_BYTES)
    yield from in_blocks(log.path, lambda: open_log(log), reader.batch)
    last = reader.tail()
    if last is not None:
        yield last
