"""Faults of databases and drivers that lose, damage or give away what this library stores, by version."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Fault:
    """A fault of a product.

    ``versions`` are ranges of versions that have it: from the first, up to and without the one that is mended.
    ``happens`` says what can happen, ``mended`` which versions mend it, ``source`` who says so. ``avoided`` says what
    this library does against it, None where it can do nothing.
    """

    product: str
    name: str
    versions: tuple[tuple[str, str], ...]
    happens: str
    mended: str
    source: str
    avoided: str | None = None

    def affects(self, version: str) -> bool:
        """True if a version has the fault."""
        number = _number(version)
        return any(_number(first) <= number < _number(mended) for first, mended in self.versions)


def _number(version: str) -> tuple[int, ...]:
    """Return a version as numbers, without what a distribution adds to it."""
    return tuple(int(part) for part in _NUMBER.findall(version.split(" ", maxsplit=1)[0].split("-", maxsplit=1)[0]))


WAL_RESET = Fault(
    "SQLite",
    "wal_reset",
    (("3.7.0", "3.44.6"), ("3.45.0", "3.50.7"), ("3.51.0", "3.51.3")),
    "committed rows can be lost, or the file damaged, when a checkpoint of the write-ahead log begins in the moment in"
    " which another connection commits",
    "3.51.3, 3.50.7 or 3.44.6",
    "SQLite's page on write-ahead logging, and the release notes of 3.51.3",
    "its own checkpoints are made while nobody writes; those of other programs on the file are not",
)
