"""Binary deltas between two opaque byte values: computes a change, and applies changes. Pure functions.

A change is a list of pieces. Each piece is bytes copied from the old value, followed by new bytes. Pieces are searched
from the front. After each difference, a short sample of the old value is searched nearby in the new value. This suits
serialised lists: their length changes at the front, they grow at the end, and the bytes between move little or not at
all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from struct import Struct, error as StructError  # noqa: N812 - a class, called like a function there

#: The header of a piece: start in the old value, count of copied bytes, count of new bytes that follow.
_PIECE = Struct(">QQQ")
#: The length of a probe in bytes, and how many bytes after a difference it is searched.
_PROBE, _WINDOW = 24, 16 * 1024
#: The offsets in the old value, after a difference, at which probes start.
_STEPS = (0, *(2**power for power in range(13)))
#: Most pieces that are searched for. The rest is stored as new bytes, except for an equal end.
_MOST_PIECES = 64


def change_between(before: bytes, after: bytes) -> bytes:
    """Return the change that converts ``before`` to ``after``: pieces of ``before``, each followed by new bytes."""
    return b"".join(_PIECE.pack(start, taken, len(new)) + new for start, taken, new in _pieces(before, after))


def apply_changes(before: bytes, *changes: bytes) -> bytes:
    """Apply changes one after the other, and return the resulting value. Raises ValueError if a change does not fit.

    Only the final value is copied to one buffer; the intermediate values are memory views.
    """
    parts = [memoryview(before)]
    for change in changes:
        parts = [*_parts_after(parts, change)]
    return b"".join(parts) if changes else before


def _parts_after(parts: Sequence[memoryview], change: bytes) -> Iterator[memoryview]:
    """Apply a change to a value that is given in parts. Yield the parts of the new value."""
    at, ends, new = 0, [*accumulate(map(len, parts))], memoryview(change)
    length = ends[-1] if ends else 0
    try:
        while at < len(change):
            start, taken, added = _PIECE.unpack_from(change, at)
            at += _PIECE.size + added
            if start + taken > length or at > len(change):
                raise ValueError("takes bytes behind the end of the value before")
            yield from _range(parts, ends, start, start + taken)
            if added:
                yield new[at - added : at]
    except StructError as error:
        raise ValueError("ends within a piece") from error


def _range(parts: Sequence[memoryview], ends: Sequence[int], start: int, stop: int) -> Iterator[memoryview]:
    """Yield views of the bytes ``start`` to ``stop`` of a value given in parts.

    ``ends`` has each part's end position.
    """
    one = bisect_right(ends, start)
    while start < stop:
        begin = ends[one] - len(parts[one])
        yield parts[one][start - begin : stop - begin]
        start, one = ends[one], one + 1


def _pieces(before: bytes, after: bytes) -> Iterator[tuple[int, int, bytes]]:
    i = j = 0
    for _ in range(_MOST_PIECES):
        same = _common_length(before, i, after, j)
        here, i, j = i, i + same, j + same
        if j == len(after):
            yield here, same, b""
            return
        again = _again(before, i, after, j)
        if again is None:
            yield here, same, b""
            break
        yield here, same, after[j : again[1]]
        i, j = again
    end = _same_end(before, i, after, j)
    yield 0, 0, after[j : len(after) - end]
    yield len(before) - end, end, b""


def _again(before: bytes, i: int, after: bytes, j: int) -> tuple[int, int] | None:
    """Return the positions in both values from which they are equal again after a difference.

    None if there are none.
    """
    for step in _STEPS:
        probe = before[i + step : i + step + _PROBE]
        if len(probe) < _PROBE:
            return None
        found = after.find(probe, j, j + step + _WINDOW)
        if found >= 0:
            return i + step, found
    return None


def _common_length(a: bytes, i: int, b: bytes, j: int) -> int:
    """Return how many bytes of ``a`` from ``i`` on equal the bytes of ``b`` from ``j`` on."""
    most = min(len(a) - i, len(b) - j)
    same, size, growing = 0, 64, True
    while same < most:
        size = min(size, most - same)
        if a[i + same : i + same + size] == b[j + same : j + same + size]:
            same += size
            size = size * 2 if growing else max(1, size // 2)
        elif size == 1:
            break
        else:
            growing, size = False, size // 2
    return same


def _same_end(a: bytes, i: int, b: bytes, j: int) -> int:
    """Return how many bytes at the ends of ``a`` and ``b`` are equal, without looking before ``i`` and ``j``."""
    most = min(len(a) - i, len(b) - j)
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle :] == b[len(b) - middle :]:
            low = middle
        else:
            high = middle - 1
    return low
