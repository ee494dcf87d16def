"""LineReader: the records of a line file, streamed, whatever is in the file.

It works on bytes and splits at ``\\n`` alone. What is no JSON object is skipped and counted, with what can be recovered
from it (see `recovery`). Memory depends on the longest line, never on the file; a line longer than the limit is skipped
without being held.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from lastlight_state.jsonl import files, recovery
from lastlight_state.jsonl.recovery import Accepts, Reason
from lastlight_state.jsonl.writer import MAX_LINE_BYTES

BLOCK_BYTES = 256 * 1024
ISSUES_KEPT = 1_000


class Line(NamedTuple):
    """One record: where it begins, its bytes, its value, where reading goes on, and whether its line was damaged."""

    offset: int
    raw: bytes
    value: dict[str, Any]
    end: int
    recovered: bool


class Issue(NamedTuple):
    """A line that is no record: where it is, how long, and why."""

    offset: int
    length: int
    reason: Reason


class LineReader:
    """Reads an open file from an offset on. ``lines`` may be called again when the file has grown.

    ``offset`` is where the next line begins, ``issues`` the first 1,000 of ``issue_count``, ``torn_tail`` whether the
    last call of `tail` saw an end that is no record (yet). ``position`` is how far the file has been read.
    """

    def __init__(
        self,
        descriptor: int,
        path: Path,
        accepts: Accepts,
        *,
        start: int = 0,
        max_line_bytes: int = MAX_LINE_BYTES,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        self.offset = start
        self.position = start
        self.issues: list[Issue] = []
        self.issue_count = 0
        self.torn_tail = False
        self._descriptor = descriptor
        self._path = path
        self._accepts = accepts
        self._max_line_bytes = max_line_bytes
        self._block_bytes = block_bytes
        self._begun: list[bytes] = []  # blocks of a line whose end has not been read
        self._begun_bytes = 0
        self._is_oversize = False

    def lines(self) -> Iterator[Line]:
        """The records of all terminated lines up to the present end of the file."""
        loads = orjson.loads
        while block := read_at(self._descriptor, self._path, self._block_bytes, self.position):
            self.position += len(block)
            for raw in self._ended(block):
                offset = self.offset
                self.offset = end = offset + len(raw) + 1
                try:
                    value = loads(raw)
                except ValueError:
                    value = None
                if type(value) is dict and len(raw) <= self._max_line_bytes:
                    yield Line(offset, raw, value, end, False)
                else:
                    yield from self._judged(raw, offset)

    def records(self) -> Iterator[Line]:
        """The records of all lines up to the present end of the file, the unterminated one included."""
        yield from self.lines()
        last = self.tail()
        if last is not None:
            yield last

    def tail(self) -> Line | None:
        """The unterminated end of the file, as far as read, if it is a whole object: no mere part of one parses.

        It is not consumed: `lines` gives it again when it is terminated.
        """
        self.torn_tail = self._is_oversize
        raw = b"".join(self._begun)
        if self._is_oversize or not raw.strip():
            return None
        pieces, reason = recovery.judge(raw, self._accepts)
        if reason is not None:
            self.torn_tail = True
            return None
        return Line(self.offset, raw, pieces[0].value, self.offset + len(raw), False)

    def _ended(self, block: bytes) -> list[bytes]:
        """The lines that end in this block. What is left of it is kept for the next."""
        head, newline, rest = block.partition(b"\n")
        self._begin(head)
        if not newline:
            return []
        ended = []
        if self._is_oversize:
            self._report(self.offset, self._begun_bytes, "oversize")
            self.offset += self._begun_bytes + 1
        else:
            ended.append(b"".join(self._begun))
        ended += rest.split(b"\n")
        self._begun.clear()
        self._begun_bytes = 0
        self._begin(ended.pop())
        return ended

    def _begin(self, part: bytes) -> None:
        self._begun_bytes += len(part)
        self._is_oversize = self._begun_bytes > self._max_line_bytes
        if self._is_oversize:
            self._begun.clear()
        elif part:
            self._begun.append(part)

    def _judged(self, raw: bytes, offset: int) -> Iterator[Line]:
        if len(raw) > self._max_line_bytes:
            return self._report(offset, len(raw), "oversize")
        pieces, reason = recovery.judge(raw, self._accepts)
        if reason is not None:
            self._report(offset, len(raw), reason)
        yield from line_of_pieces(pieces, offset, len(raw), recovered=reason is not None)

    def _report(self, offset: int, length: int, reason: Reason) -> None:
        self.issue_count += 1
        if len(self.issues) < ISSUES_KEPT:
            self.issues.append(Issue(offset, length, reason))


def line_of_pieces(pieces: tuple[recovery.Piece, ...], offset: int, length: int, *, recovered: bool) -> Iterator[Line]:
    """The records found in the terminated line at ``offset``. The one that reaches its newline ends behind it."""
    for piece in pieces:
        end = piece.start + len(piece.raw)
        yield Line(offset + piece.start, piece.raw, piece.value, offset + end + (end == length), recovered)


def read_at(descriptor: int, path: Path, size: int, offset: int) -> bytes:
    """Up to ``size`` bytes from ``offset`` on. Raises `BackendUnavailable` when the file cannot be read."""
    try:
        return os.pread(descriptor, size, offset)
    except OSError as error:
        raise files.failure(error, path) from error
