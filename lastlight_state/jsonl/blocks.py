"""Reading a line file block by block, closed in between: an iterator that is left and kept holds nothing open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from lastlight_state.errors import BackendUnavailable

T = TypeVar("T")

#: Read at once, with one opening of the file.
BLOCK_BYTES = 256 * 1024


def in_blocks(path: Path, opened: Callable[[], int], take: Callable[[int], list[T] | None]) -> Iterator[T]:
    """What ``take`` makes of each next block, until it returns None. It is called with a descriptor to read from.

    Raises what ``opened`` raises, and `BackendUnavailable` for a file that was replaced meanwhile: its lines would not
    go on where those of the other ended.
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
