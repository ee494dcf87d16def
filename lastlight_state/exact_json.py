"""Reads JSON without changing a number.

orjson silently reads an integer beyond 64 bits as the nearest float; this module reads it exactly. It refuses a number
beyond the largest float, such as ``1e400``. A number with a fraction or an exponent becomes the nearest float, as usual
in Python.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

#: The range of integers that orjson reads and writes.
SMALLEST, GREATEST = -(2**63), 2**64 - 1
#: The number of digits of the shortest integer beyond 64 bits.
_LONG = 19

_DIGITS = bytes(ord("0") if byte in b"0123456789" else ord(" ") for byte in range(256))
#: A text, or a whole number that may be beyond 64 bits.
_TEXT_OR_LONG = re.compile(rb'"(?>(?:[^"\\]++|\\.)*)"|(?<![0-9.eE+-])(-?[1-9][0-9]{18,}+)(?![.eE])', re.DOTALL)
#: Replaces such a number while the rest is parsed. Nobody can write it into a file beforehand, because it is random.
_STAND_IN = os.urandom(16).hex()


def decode(text: str | bytes, number: Callable[[int], Any] = int) -> Any:
    """Parse JSON text, with exact integers of any size. Raises ValueError for text that is not JSON.

    A number that no float can hold, such as ``1e400``, is refused. ``number`` converts each integer beyond 64 bits.
    """
    data: Any = text.encode() if isinstance(text, str) else text
    # If data is not text, orjson raises with the reason.
    is_long = isinstance(data, bytes) and len(data) >= _LONG and may_hold_long_integers(data)
    return _exact(data, number) if is_long else orjson.loads(data)


def decode_jsonb(text: str | bytes) -> Any:
    """Parse the text that Postgres made from JSONB. In such text, a large float looks like an integer."""
    return decode(text, _as_stored)


def may_hold_long_integers(data: bytes) -> bool:
    """Return False if JSON text surely has no integer of 19 digits or more, and so none beyond 64 bits.

    True may be wrong. It looks for digits at every fourth byte, then at every second one, because times and ids have no
    long runs of digits. Both halves of the text are checked, because in a list of small integers one of them is all
    digits. A full search for the digits would take ten times as long as parsing.
    """
    return (
        b"0" * 4 in data[::4].translate(_DIGITS)
        and b"0" * 9 in data[::2].translate(_DIGITS)
        and b"0" * 9 in data[1::2].translate(_DIGITS)
    )


def _exact(data: bytes, number: Callable[[int], Any]) -> Any:
    """Parse JSON text. ``number`` converts each integer beyond 64 bits."""
    long: list[int] = []

    def stand_in(found: re.Match[bytes]) -> bytes:
        if found[1] is None or SMALLEST <= (value := int(found[1])) <= GREATEST:
            return found[0]
        long.append(value)
        return b'["%s",%d]' % (_STAND_IN.encode(), len(long) - 1)  # an array cannot be an object's key

    root = [orjson.loads(_TEXT_OR_LONG.sub(stand_in, data))]
    containers: list[Any] = [root] if long else []
    for container in containers:
        for key, child in container.items() if type(container) is dict else enumerate(container):
            if type(child) is list and len(child) == 2 and child[0] == _STAND_IN:
                container[key] = number(long[child[1]])
            elif type(child) is dict or type(child) is list:
                containers.append(child)
    return root[0]


def _as_stored(whole: int) -> Any:
    """Return the float whose shortest digits these are.

    If there is none, return the integer, which another program stored.
    """
    try:
        number = float(whole)
    except OverflowError:
        return whole
    return number if int(Decimal(repr(number))) == whole else whole


def by_value(value: Any, least: float = 0.0) -> Any:
    """Return ``value`` with whole floats from ``least`` on replaced by equal integers, if the integers fit 64 bits."""
    kind = type(value)
    if kind is float and value.is_integer() and abs(value) >= least and SMALLEST <= value <= GREATEST:
        return int(value)
    if kind is dict:
        return {key: by_value(child, least) for key, child in value.items()}
    if kind is list or kind is tuple:
        return [by_value(child, least) for child in value]
    return value


def dumped_with_long_integers(
    value: Any, refusal: TypeError, *, sort_keys: bool = False, indent: int | None = None
) -> bytes:
    """Return the JSON text of a value with integers that are too long for orjson. Raises orjson's other errors."""
    if "64-bit" not in str(refusal):
        raise refusal
    separators = (",", ":" if indent is None else ": ")
    return json.dumps(value, ensure_ascii=False, separators=separators, sort_keys=sort_keys, indent=indent).encode()
