"""Marks: places in a line file that stay valid while it grows, and tell when it was replaced.

A mark is an offset with a checksum of the bytes before it, so it holds for other processes and for copies of a file. If
the file is shorter, or has other bytes there, the mark does not hold, and a reader starts again.
"""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from lastlight_state.errors import InvalidValue
from lastlight_state.jsonl.reader import read_at

_CHECKED_BYTES = 64
_LAYOUT = struct.Struct(">QBI")


class Mark(NamedTuple):
    """An offset, how many bytes before it are checked, and their CRC-32."""

    offset: int
    checked: int
    checksum: int

    def to_text(self) -> str:
        """The mark as opaque text of 18 characters."""
        return base64.urlsafe_b64encode(_LAYOUT.pack(*self)).decode().rstrip("=")

    def holds(self, descriptor: int, path: Path) -> bool:
        """Whether this file has the same bytes before the offset as the one the mark was made of."""
        before = read_at(descriptor, path, self.checked, self.offset - self.checked)
        return len(before) == self.checked and zlib.crc32(before) == self.checksum


START = Mark(0, 0, 0)


def mark_at(descriptor: int, path: Path, offset: int) -> Mark:
    """The mark of an offset in an open file. It holds nowhere if the file is shorter, cut while it was read."""
    size = min(offset, _CHECKED_BYTES)
    return Mark(offset, size, zlib.crc32(read_at(descriptor, path, size, offset - size)))


def mark_behind(before: bytes, offset: int) -> Mark:
    """The mark of an offset, given the bytes ``before`` it."""
    checked = before[-_CHECKED_BYTES:]
    return Mark(offset, len(checked), zlib.crc32(checked))


def mark_of_text(where: str, text: str) -> Mark:
    """The mark of `Mark.to_text`. Raises `InvalidValue` for any other text."""
    try:
        offset, checked, checksum = _LAYOUT.unpack(base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (ValueError, struct.error):
        raise InvalidValue(where, "damaged, or not a cursor") from None
    if not min(offset, 1) <= checked <= min(offset, _CHECKED_BYTES):
        raise InvalidValue(where, "damaged, or not a cursor")
    return Mark(offset, checked, checksum)
