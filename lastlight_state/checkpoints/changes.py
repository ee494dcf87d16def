"""The change that makes one value of another, on bytes that nobody here can read. Pure.

A change says piece by piece what is taken from the value before, and what is new. Pieces are found from the front,
and behind each difference a probe of the value before is looked for close by: serialised lists change their length
at the front and grow at the end, and most of what lies between moved by a few bytes or none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from struct import Struct, error as StructError  # noqa: N812 - a class, called like a function there

#: From where in the value before, how many bytes of it, and how many new ones follow.
_PIECE = Struct(">QQQ")
#: The bytes of a probe, and how far behind a difference it is looked for.
_PROBE, _WINDOW = 24, 16 * 1024
#: How far into the value before probes begin.
_STEPS = (0, *(2**power for power in range(13)))
#: After so many pieces the rest is new, but for its end.
_MOST_PIECES = 64


def change_between(before: bytes, after: bytes) -> bytes:
    """Return the change that makes ``after`` of ``before``: pieces of ``before``, each with new bytes behind it."""
    return b"".join(_PIECE.pack(start, taken, len(new)) + new for start, taken, new in _pieces(before, after))


def changed(before: bytes, *changes: bytes) -> bytes:
    """Return the value after changes, one after the other. Raises ValueError where one does not fit.

    Only the last value is put together: those between are views of what they are made of.
    """
    parts = [memoryview(before)]
    for change in changes:
        parts = [*_parts_after(parts, change)]
    return b"".join(parts) if changes else before


def _parts_after(parts: Sequence[memoryview], change: bytes) -> Iterator[memoryview]:
    """Yield the parts of the value after a change; ``parts`` are those of the value before."""
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
    """Yield the bytes from ``start`` to ``stop`` of a value in parts; ``ends`` says where each part ends."""
    one = bisect_right(ends, start)
    while start < stop:
        begin = ends[one] - len(parts[one])
        yield parts[one][start - begin : stop - begin]
        start, one = ends[one], one + 1


def _pieces(before: bytes, after: bytes) -> Iterator[tuple[int, int, bytes]]:
    i = j = 0
    for _ in range(_MOST_PIECES):
        same = _same(before, i, after, j)
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
    """Return places behind a difference from which both go on alike, None where none is found."""
    for step in _STEPS:
        probe = before[i + step : i + step + _PROBE]
        if len(probe) < _PROBE:
            return None
        found = after.find(probe, j, j + step + _WINDOW)
        if found >= 0:
            return i + step, found
    return None


def _same(a: bytes, i: int, b: bytes, j: int) -> int:
    """Return how many bytes are equal from these places on."""
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
    """Return how many bytes are equal at the ends of what follows these places."""
    most = min(len(a) - i, len(b) - j)
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[len(a) - middle :] == b[len(b) - middle :]:
            low = middle
        else:
            high = middle - 1
    return low
