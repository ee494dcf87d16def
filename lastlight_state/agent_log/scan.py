"""All lines of a log, streamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from lastlight_state.agent_log.records import LOG_LINES, LogLine, SessionFile
from lastlight_state.agent_log.tree import open_log
from lastlight_state.errors import BackendUnavailable
from lastlight_state.jsonl.reader import LineReader

#: Read at once, with one opening of the file.
_BLOCK_BYTES = 256 * 1024


def scanned(log: SessionFile) -> Iterator[LogLine]:
    """The lines of the main log. Raises `NotFound` when it has vanished before the first.

    The file is closed between two blocks, so that an iterator that is left and kept holds nothing open. A file that
    was replaced meanwhile is `BackendUnavailable`: its lines would not go on where those of the other ended.
    """
    reader = LineReader(-1, log.path, LOG_LINES, block_bytes=_BLOCK_BYTES)
    first: os.stat_result | None = None
    while True:
        with _opened(log) as descriptor:
            found = os.fstat(descriptor)
            if first is not None and not os.path.samestat(first, found):
                raise BackendUnavailable(f"{log.path}: replaced while it was read", path=str(log.path))
            first = found
            lines = reader.batch(descriptor)
        if lines is None:
            break
        yield from lines
    last = reader.tail()
    if last is not None:
        yield last


@contextmanager
def _opened(log: SessionFile) -> Iterator[int]:
    descriptor = open_log(log)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
