"""LineReader: streams the records of a line file, whatever the file contains.

The reader works on bytes and splits at ``\\n`` only. A line that is not a JSON object is skipped and counted; whole
objects in it are recovered (see `recovery`). Memory depends on the longest line, never on the file; a line longer than
the limit is skipped without being held.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from lastlight_state import codec
from lastlight_state.files.jsonl import files, recovery
from lastlight_state.files.jsonl.recovery import Accepts, Reason
from lastlight_state.files.jsonl.writer import MAX_LINE_BYTES

BLOCK_BYTES = 64 * 1024
ISSUES_KEPT = 1_000
MAIN = "main"


class Line(NamedTuple):
    """One record: its offset, its bytes without newline, its value, and the offset of the next line.

    ``recovered`` is True for a record found inside a damaged line. ``source`` is the reader's name for the file.
    """

    offset: int
    raw: bytes
    value: dict[str, Any]
    end: int
    recovered: bool
    source: str


L = TypeVar("L", bound=Line)


@dataclass(frozen=True)
class LineKind(Generic[L]):
    """A kind of line file: the class for its records, and a function that accepts recovered objects as records."""

    line: type[L]
    accepts: Accepts


class Issue(NamedTuple):
    """A line that is not a record: its offset, its length, and the reason."""

    offset: int
    length: int
    reason: Reason


class RawLine(NamedTuple):
    """An unparsed line: its offset, its length, and its bytes without newline (None beyond the limit)."""

    offset: int
    length: int
    raw: bytes | None


class LineReader(Generic[L]):
    """Reads an open file from an offset on. ``lines`` may be called again when the file has grown.

    ``offset`` is the start of the next line. ``issues`` holds the first 1,000 bad lines of ``issue_count``.
    ``torn_tail`` is True if the last call of `tail` found that the end of the file is not (yet) a record. ``position``
    is the offset up to which the file was read.
    """

    def __init__(
        self,
        descriptor: int,
        path: Path,
        kind: LineKind[L],
        *,
        start: int = 0,
        source: str = MAIN,
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
        self._kind = kind
        self._source = source
        self._max_line_bytes = max_line_bytes
        self._block_bytes = block_bytes
        self._begun: list[bytes] = []  # blocks of a line that has not ended yet
        self._begun_bytes = 0
        self._is_oversize = False

    def lines(self) -> Iterator[L]:
        """Yield the records of all lines that end in a newline, up to the present end of the file."""
        make, line, source = tuple.__new__, self._kind.line, self._source
        most = self._max_line_bytes
        while block := read_at(self._descriptor, self._path, self._block_bytes, self.position):
            self.position += len(block)
            ended = self._ended_lines(block)
            loads = _loads_of(block, ended)
            for raw in ended:
                offset = self.offset
                self.offset = end = offset + len(raw) + 1
                try:
                    value = loads(raw)
                except ValueError:
                    value = None
                if type(value) is dict and len(raw) <= most:
                    yield make(line, (offset, raw, value, end, False, source))  # same as line(...), in half the time
                else:
                    yield from self._judge_line(raw, offset)

    def batch(self, descriptor: int) -> list[L] | None:
        """Return the records of the lines that end in the descriptor's next block, or None at the end of the file.

        This is for readers that close the file between two blocks.
        """
        self._descriptor = descriptor
        block = read_at(descriptor, self._path, self._block_bytes, self.position)
        if not block:
            return None
        self.position += len(block)
        make, line, source = tuple.__new__, self._kind.line, self._source
        found: list[L] = []
        ended = self._ended_lines(block)
        loads = _loads_of(block, ended)
        for raw in ended:
            offset = self.offset
            self.offset = end = offset + len(raw) + 1
            try:
                value = loads(raw)
            except ValueError:
                value = None
            if type(value) is dict and len(raw) <= self._max_line_bytes:
                found.append(make(line, (offset, raw, value, end, False, source)))  # as in `lines`
            else:
                found += self._judge_line(raw, offset)
        return found

    def raw_batch(self, descriptor: int) -> list[RawLine] | None:
        """Return the lines that end in the next block, unparsed; None at the end of the file.

        Otherwise like `batch`.
        """
        self._descriptor = descriptor
        block = read_at(descriptor, self._path, self._block_bytes, self.position)
        if not block:
            return None
        self.position += len(block)
        return self._raw_ended(block)

    def raw_lines(self, size: int) -> Iterator[RawLine]:
        """Yield the unread lines that end within the first ``size`` bytes, unparsed; later lines are left out."""
        while block := read_at(
            self._descriptor, self._path, min(self._block_bytes, max(0, size - self.position)), self.position
        ):
            self.position += len(block)
            yield from self._raw_ended(block)

    def raw_tail(self) -> RawLine | None:
        """Return the bytes after the last newline that was read, or None if there are none."""
        if not self._begun_bytes:
            return None
        return RawLine(self.offset, self._begun_bytes, None if self._is_oversize else b"".join(self._begun))

    def records(self) -> Iterator[L]:
        """Yield the records of all lines up to the present end of the file, even of a last line without a newline."""
        yield from self.lines()
        last = self.tail()
        if last is not None:
            yield last

    def tail(self) -> L | None:
        """Return the record after the last newline if it is a whole object. A part of an object can never be parsed.

        The record is not consumed: `lines` yields it again after its newline was written.
        """
        self.torn_tail = self._is_oversize
        raw = b"".join(self._begun)
        if self._is_oversize or not raw.strip(recovery.BLANK):
            return None
        pieces, reason = recovery.judge(raw, self._kind.accepts)
        if reason is not None:
            self.torn_tail = True
            return None
        return self._kind.line(self.offset, raw, pieces[0].value, self.offset + len(raw), False, self._source)

    def _raw_ended(self, block: bytes) -> list[RawLine]:
        found: list[RawLine] = []
        offset = self.offset
        ended = self._ended_lines(block)
        if self.offset != offset:
            found.append(RawLine(offset, self.offset - offset - 1, None))
        for raw in ended:
            found.append(RawLine(self.offset, len(raw), raw if len(raw) <= self._max_line_bytes else None))
            self.offset += len(raw) + 1
        return found

    def _ended_lines(self, block: bytes) -> list[bytes]:
        """Return the lines that end in this block. The rest of the block is stored for the next call."""
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

    def _judge_line(self, raw: bytes, offset: int) -> Iterator[L]:
        if len(raw) > self._max_line_bytes:
            return self._report(offset, len(raw), "oversize")
        verdict = recovery.judge(raw, self._kind.accepts)
        if verdict.reason is not None:
            self._report(offset, len(raw), verdict.reason)
        yield from lines_of_verdict(self._kind.line, verdict, offset, len(raw), self._source)

    def _report(self, offset: int, length: int, reason: Reason) -> None:
        self.issue_count += 1
        if len(self.issues) < ISSUES_KEPT:
            self.issues.append(Issue(offset, length, reason))


def lines_of_verdict(line: type[L], verdict: recovery.Verdict, offset: int, length: int, source: str) -> Iterator[L]:
    """Yield the records that were found in the line at ``offset``.

    If a record ends at the line's newline, which is at ``length``, the record's end is after the newline.
    """
    for piece in verdict.pieces:
        end = piece.start + len(piece.raw)
        is_recovered = verdict.reason is not None
        yield line(offset + piece.start, piece.raw, piece.value, offset + end + (end == length), is_recovered, source)


def _loads_of(block: bytes, ended: list[bytes]) -> Callable[[bytes], Any]:
    """Return the function with which to parse the lines that end in a block. It depends on long integers in the text.

    The first line may have begun in an earlier block.
    """
    is_long = codec.may_hold_long_integers(block) or codec.may_hold_long_integers(ended[0] if ended else b"")
    return codec.decode if is_long else orjson.loads


def read_at(descriptor: int, path: Path, size: int, offset: int) -> bytes:
    """Return up to ``size`` bytes from ``offset`` on. Raises `BackendUnavailable` if the file cannot be read."""
    try:
        return os.pread(descriptor, size, offset)
    except OSError as error:
        raise files.failure(error, path) from error
