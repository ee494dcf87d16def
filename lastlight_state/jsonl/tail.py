"""The last records of a line file, read backwards: the cost depends on their bytes, not on the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Generic, NamedTuple

from lastlight_state.jsonl import recovery
from lastlight_state.jsonl.reader import MAIN, Issue, L, LineKind, lines_of_verdict, read_at
from lastlight_state.jsonl.writer import MAX_LINE_BYTES

BLOCK_BYTES = 64 * 1024
_LARGEST_BLOCK = 1024 * 1024


class Tail(NamedTuple, Generic[L]):
    """The last records before an offset, oldest first, and the bad lines met on the way."""

    lines: tuple[L, ...]
    torn_tail: bool
    issues: tuple[Issue, ...]


def read_tail(
    descriptor: int,
    path: Path,
    kind: LineKind[L],
    *,
    n: int,
    before: int,
    max_line_bytes: int = MAX_LINE_BYTES,
    block_bytes: int = BLOCK_BYTES,
) -> Tail[L]:
    """The last ``n`` records that end at or before ``before``. Bad lines do not count towards ``n``."""
    found: list[L] = []
    issues: list[Issue] = []
    torn_tail = False
    for offset, length, raw, is_ended in _backwards(descriptor, path, before, max_line_bytes, block_bytes):
        verdict = recovery.Verdict((), "oversize") if raw is None else recovery.judge(raw, kind.accepts)
        if not is_ended and verdict.reason is not None:
            torn_tail = True
            continue
        if verdict.reason is not None:
            issues.append(Issue(offset, length, verdict.reason))
        lines = lines_of_verdict(kind.line, verdict, offset, length if is_ended else -1, MAIN)
        found += reversed(list(lines))
        if len(found) >= n:
            break
    return Tail(tuple(reversed(found[:n])), torn_tail, tuple(reversed(issues)))


def _backwards(
    descriptor: int, path: Path, end: int, max_line_bytes: int, size: int
) -> Iterator[tuple[int, int, bytes | None, bool]]:
    """The lines before ``end``, last one first: offset, length, bytes (None past the limit), is it terminated."""
    later: list[bytes] = []  # parts of the line that is being read, last one first
    held, is_ended = 0, False
    while end > 0:
        start = max(0, end - size)
        size = min(size * 2, _LARGEST_BLOCK)
        block = read_at(descriptor, path, end - start, start)
        stop = len(block)
        while True:
            newline = block.rfind(b"\n", 0, stop)
            later.append(block[newline + 1 : stop])
            held += stop - newline - 1
            if held > max_line_bytes:
                later.clear()
            if newline < 0:
                break
            yield start + newline + 1, held, _joined(later, held), is_ended
            stop, later, held, is_ended = newline, [], 0, True
        end = start
    yield 0, held, _joined(later, held), is_ended


def _joined(later: list[bytes], length: int) -> bytes | None:
    raw = b"".join(reversed(later))
    return raw if len(raw) == length else None
