"""Embeddings as bytes: little-endian numbers of 32 bits, without a header, on any machine."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import isfinite, sqrt
from operator import mul
from typing import Any

from lastlight_state.db import valid
from lastlight_state.errors import InvalidValue

_WIDTH = 4


def packed(where: str, vector: Any, *, most: int) -> bytes:
    """The bytes of a vector: of a sequence of finite numbers, or of a buffer of such bytes.

    NaN, infinities, numbers beyond 32 bits, booleans, an empty vector and an odd number of bytes are `InvalidValue`.
    """
    if isinstance(vector, bytes | bytearray | memoryview):
        data = bytes(vector)
        if not data or len(data) % _WIDTH:
            raise InvalidValue(where, f"{len(data)} bytes: expected a multiple of {_WIDTH}, and not 0")
        unpacked = unpack(data)
        if not all(map(isfinite, unpacked)):
            raise InvalidValue(where, "NaN or infinity")
    else:
        data = _of_numbers(where, vector)
    valid.number(f"{where} dimensions", len(data) // _WIDTH, least=1, most=most)
    return data


def unpack(data: bytes) -> tuple[float, ...]:
    """The numbers of a stored embedding."""
    return struct.unpack(f"<{len(data) // _WIDTH}f", data)


def norm(numbers: Sequence[float]) -> float:
    """The length of a vector."""
    return sqrt(sum(map(mul, numbers, numbers)))


def _of_numbers(where: str, vector: Any) -> bytes:
    if isinstance(vector, str) or not isinstance(vector, Sequence):
        raise InvalidValue(where, f"expected a sequence of numbers, got {type(vector).__name__}")
    for i, number in enumerate(vector):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidValue(f"{where}[{i}]", f"expected a number, got {type(number).__name__}")
        if isinstance(number, float) and not isfinite(number):
            raise InvalidValue(f"{where}[{i}]", "NaN or infinity")
    try:
        return struct.pack(f"<{len(vector)}f", *vector)
    except (OverflowError, struct.error):  # the second for an integer that no float holds
        raise InvalidValue(where, "a number beyond the range of 32 bits") from None
