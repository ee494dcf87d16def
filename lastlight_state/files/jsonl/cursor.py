"""Positions in a line file: marks that stay valid while it grows, its blocks, and its last records.

A mark is an offset with a checksum of the bytes before it, so it is valid in other processes and for copies of a file.
If the file is shorter, or has other bytes there, the mark is invalid, and a reader starts again from the beginning.
"""

from __future__ import annotations

import base64
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from lastlight_state.errors import BackendUnavailable, InvalidValue
from lastlight_state.files.jsonl import recovery
from lastlight_state.files.jsonl.reader import ISSUES_KEPT, MAIN, Issue, L, LineKind, lines_of_verdict, read_at
from lastlight_state.files.jsonl.writer import MAX_LINE_BYTES

# Reading a line file block by block, closing it in between, so that an abandoned iterator holds no file open.

T = TypeVar("T")

#: The bytes that are read at one opening of the file.
BLOCK_BYTES = 256 * 1024


def in_blocks(path: Path, opened: Callable[[], int], take: Callable[[int], list[T] | None]) -> Iterator[T]:
    """Yield the items that ``take`` returns, block by block, until it returns None.

    ``take`` is called with a descriptor to read from. Raises the errors of ``opened``. Raises `BackendUnavailable` if
    the file was replaced meanwhile, because the new file's lines do not continue the old ones.
    """
    first: os.stat_result | None = None
    while True:
        descriptor = opened()
        try:
            found = os.fstat(descriptor)
            if first is not None and not os.path.samestat(first, found):
                raise BackendUnavailable(f"{path}: replaced while it was read", path=str(path))
            first = found
            taken = take(descriptor)
        finally:
            os.close(descriptor)
        if taken is None:
            return
        yield from taken


# The last records of a line file, read backwards: the cost depends on their bytes, not on the file's size.

TAIL_BLOCK_BYTES = 64 * 1024
_LARGEST_BLOCK = 1024 * 1024


class Tail(NamedTuple, Generic[L]):
    """The last records before an offset, oldest first, and the last 1,000 bad lines found on the way."""

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
    is_wanted: Callable[[L], bool] | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    block_bytes: int = TAIL_BLOCK_BYTES,
) -> Tail[L]:
    """Return the last ``n`` records that end at or before the offset ``before``.

    Bad lines and unwanted records do not count towards ``n``.
    """
    found: list[L] = []
    issues: list[Issue] = []
    torn_tail = False
    for offset, length, raw, is_ended in _backwards(descriptor, path, before, max_line_bytes, block_bytes):
        verdict = recovery.Verdict((), "oversize") if raw is None else recovery.judge(raw, kind.accepts)
        if not is_ended and verdict.reason is not None:
            torn_tail = True
            continue
        if verdict.reason is not None and len(issues) < ISSUES_KEPT:
            issues.append(Issue(offset, length, verdict.reason))
        lines = lines_of_verdict(kind.line, verdict, offset, length if is_ended else -1, MAIN)
        found += [line for line in reversed(list(lines)) if is_wanted is None or is_wanted(line)]
        if len(found) >= n:
            break
    return Tail(tuple(reversed(found[:n])), torn_tail, tuple(reversed(issues)))


def _backwards(
    descriptor: int, path: Path, end: int, max_line_bytes: int, size: int
) -> Iterator[tuple[int, int, bytes | None, bool]]:
    """Yield the lines before the offset ``end``, last one first, each with its offset and length.

    Also yields the line's bytes, or None if it is too long, and True if it ends in a newline.
    """
    later: list[bytes] = []  # parts of the current line, last one first
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
            yield start + newline + 1, held, _join_parts(later, held), is_ended
            stop, later, held, is_ended = newline, [], 0, True
        end = start
    yield 0, held, _join_parts(later, held), is_ended


def _join_parts(later: list[bytes], length: int) -> bytes | None:
    raw = b"".join(reversed(later))
    return raw if len(raw) == length else None


_CHECKED_BYTES = 64
_LAYOUT = struct.Struct(">QBI")


class Mark(NamedTuple):
    """A position in a file: an offset, the number of checked bytes before it, and their CRC-32 checksum."""

    offset: int
    checked: int
    checksum: int

    def to_text(self) -> str:
        """Return the mark as opaque text of 18 characters."""
        return base64.urlsafe_b64encode(_LAYOUT.pack(*self)).decode().rstrip("=")

    def holds(self, descriptor: int, path: Path) -> bool:
        """True if the file has the same bytes before the offset as the file that was marked."""
        before = read_at(descriptor, path, self.checked, self.offset - self.checked)
        return len(before) == self.checked and zlib.crc32(before) == self.checksum


START = Mark(0, 0, 0)


def mark_at(descriptor: int, path: Path, offset: int) -> Mark:
    """Return the mark of an offset in an open file. If the file was truncated meanwhile, the mark never holds."""
    size = min(offset, _CHECKED_BYTES)
    return Mark(offset, size, zlib.crc32(read_at(descriptor, path, size, offset - size)))


def mark_behind(before: bytes, offset: int) -> Mark:
    """Return the mark of an offset, given the bytes ``before`` it."""
    checked = before[-_CHECKED_BYTES:]
    return Mark(offset, len(checked), zlib.crc32(checked))


#: Makes the characters of the standard Base64 alphabet invalid. Python before 3.15 accepts them as well.
_OTHER_ALPHABET = str.maketrans("+/", "!!")


def mark_of_text(where: str, text: str) -> Mark:
    """Return the mark from the text that `Mark.to_text` made. Raises `InvalidValue` for any other text."""
    try:
        padded = (text + "==").translate(_OTHER_ALPHABET)
        offset, checked, checksum = _LAYOUT.unpack(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, struct.error):
        raise InvalidValue(
            where, "expected a cursor of an earlier call: this one is damaged, or not a cursor"
        ) from None
    if not min(offset, 1) <= checked <= min(offset, _CHECKED_BYTES):
        raise InvalidValue(where, "expected a cursor of an earlier call: this one is damaged, or not a cursor")
    return Mark(offset, checked, checksum)
