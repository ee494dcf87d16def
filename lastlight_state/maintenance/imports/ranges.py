"""Bytes of a source file that is copied: read in blocks, and known by their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

from lastlight_state.errors import Conflict

_BLOCK = 1024 * 1024


def blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The next bytes of a file, as many as there are of them."""
    while block := file.read(min(size, _BLOCK)):
        size -= len(block)
        yield block


def digest(file: BinaryIO, size: int) -> str:
    """SHA-256 of the next bytes of a file, in hex."""
    seen = hashlib.sha256()
    for block in blocks(file, size):
        seen.update(block)
    return seen.hexdigest()


def copy(file: BinaryIO, to: BinaryIO, begin: int, size: int, expected: str) -> None:
    """Write the bytes from ``begin`` up to ``size``. Raises `Conflict` ``damaged_source`` if the file has changed."""
    if digest(file, size) != expected:
        raise Conflict("the source was changed while it was read: import it again", code="damaged_source")
    file.seek(begin)
    to.writelines(blocks(file, size - begin))
