"""The ledger's record of the rows that a unit had at its last import.

Rows that are in this record but missing in the store were removed in the store. A line of the ledger is the digest of
the unit, then a JSON object. The object has short digests of the rows' keys, so that it names nobody who was erased.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from lastlight_state import codec


def line(digest: str, told: Any) -> str:
    """Return a line of the ledger: the digest of a unit, and then ``told`` as JSON."""
    return f"{digest} {codec.canonical(told).decode()}"


def told_by(noted: str | None) -> dict[str, Any]:
    """Return the JSON object in a line of the ledger, or an empty one if the line has none."""
    _, has, text = (noted or "").partition(" {")
    return dict(codec.decode("{" + text)) if has else {}


def mark(*key: Any) -> str:
    """Return a short digest of a key."""
    return hashlib.sha256(ascii(key).encode()).hexdigest()[:16]


def extend_ranges(stretches: Sequence[Sequence[int]], numbers: Iterable[int]) -> list[list[int]]:
    """Return ranges with further numbers added. A range is its first and last number; adjacent ranges are merged."""
    found: list[list[int]] = []
    for first, last in sorted([*((one[0], one[1]) for one in stretches), *((one, one) for one in set(numbers))]):
        if found and first <= found[-1][1] + 1:
            found[-1][1] = max(found[-1][1], last)
        else:
            found.append([first, last])
    return found


def within(number: int, stretches: Sequence[Sequence[int]]) -> bool:
    """True if a number is in one of these ranges."""
    return any(first <= number <= last for first, last in stretches)


def order(ids: Sequence[str]) -> list[Any]:
    """Return the ledger's summary of an order: its length, a digest of its ids, and its last id."""
    return [len(ids), mark(*ids), ids[-1] if ids else None]


def leading_ids(ids: Sequence[str], known: Sequence[Any] | None) -> Sequence[str]:
    """Return the leading ids of an order that the last import recorded.

    Return none if the order no longer begins with them.
    """
    count, digest = known[:2] if known else (0, "")
    return ids[:count] if count <= len(ids) and mark(*ids[:count]) == digest else ()
