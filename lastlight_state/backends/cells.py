"""Stored values that a driver cannot read: text that is no UTF-8, a time beyond the calendar, a number beyond JSON's.

One such value must not cost the rows beside it, so a backend's `Backend.fetched` puts an `Unreadable` in its place.
"""

from __future__ import annotations


class Unreadable:
    """Stands in a row for a value that the driver could not read. ``raw`` are its bytes, as far as they are known."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes = b"") -> None:
        self.raw = raw

    def __str__(self) -> str:
        return self.raw.decode("utf-8", "backslashreplace")

    def __bool__(self) -> bool:
        raise TypeError("unreadable")
