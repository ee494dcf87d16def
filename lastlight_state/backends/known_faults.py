"""Known faults of databases and drivers that lose, damage or expose the data of this library, by version.

The list has only faults that this library's use of a product can trigger, each with its source. A distribution may have
fixed a fault without changing the version number.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

_log = logging.getLogger("lastlight_state.backends")

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Fault:
    """A fault of a product.

    ``versions`` are ranges of affected versions: the first affected version, and the version that fixes the fault.
    ``happens`` describes the consequence, ``mended`` the versions that fix it, ``source`` the report. ``avoided``
    describes what this library does against the fault; None if it can do nothing.
    """

    product: str
    name: str
    versions: tuple[tuple[str, str], ...]
    happens: str
    mended: str
    source: str
    avoided: str | None = None

    @property
    def sentence(self) -> str:
        """Describe the fault in a sentence for the person who runs the product."""
        against = f" (against it: {self.avoided})" if self.avoided else ""
        return f"{self.happens}; mended in {self.mended}{against}"

    def affects(self, version: str) -> bool:
        """True if this version has the fault."""
        number = _number(version)
        return any(_number(first) <= number < _number(mended) for first, mended in self.versions)


def _number(version: str) -> tuple[int, ...]:
    """Convert a version to a tuple of numbers, without the suffix that a distribution adds."""
    return tuple(int(part) for part in _NUMBER.findall(version.split(" ", maxsplit=1)[0].split("-", maxsplit=1)[0]))


WAL_RESET = Fault(
    "SQLite",
    "wal_reset",
    (("3.7.0", "3.44.6"), ("3.45.0", "3.50.7"), ("3.51.0", "3.51.3")),
    "committed rows can be lost, or the file damaged, when a checkpoint of the write-ahead log begins in the moment in"
    " which another connection commits",
    "3.51.3, 3.50.7 and 3.44.6",
    "SQLite's page on write-ahead logging (the WAL-reset bug), and its release notes of 3.51.3",
    "a store makes its checkpoints while nobody writes; other programs on the file do not",
)
SAVEPOINT_IN_MEMORY = Fault(
    "SQLite",
    "savepoint_in_memory",
    (("3.35.0", "3.37.2"),),
    "the file can be damaged when a savepoint is undone, more is written, and the transaction commits, with PRAGMA"
    " temp_store = MEMORY",
    "3.37.2",
    "SQLite's release notes of 3.37.2",
    "a store keeps temporary data in files there; engines and connections of yours should, too",
)
FAULTS: tuple[Fault, ...] = (
    WAL_RESET,
    SAVEPOINT_IN_MEMORY,
    Fault(
        "PostgreSQL",
        "hot_chains",
        (("14.0", "14.2"),),
        "VACUUM can damage chains of row versions, so that an index finds the wrong row, or none",
        "14.2; REINDEX afterwards",
        "PostgreSQL's release notes of 14.2",
    ),
    Fault(
        "PostgreSQL",
        "concurrent_indexes",
        (("14.0", "14.4"),),
        "CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY can leave out rows that are updated meanwhile",
        "14.4; REINDEX such indexes afterwards",
        "PostgreSQL's release notes of 14.4",
    ),
    Fault(
        "PostgreSQL",
        "inplace_updates",
        (("14.0", "14.14"), ("15.0", "15.9"), ("16.0", "16.5"), ("17.0", "17.1")),
        "what VACUUM or CREATE INDEX notes of a table can be lost beside a GRANT on it, and an index that is not noted"
        " lacks the rows that are written next",
        "17.1, 16.5, 15.9 and 14.14",
        "PostgreSQL's commit 'Fix data loss at inplace update after heap_update()' of September 2024, of which the"
        " releases of November 2024 were the next",
    ),
    Fault(
        "PostgreSQL",
        "multibyte_overrun",
        (("14.0", "14.21"), ("15.0", "15.16"), ("16.0", "16.12"), ("17.0", "17.8"), ("18.0", "18.2")),
        "whoever may send queries of their own, as by `query`, can run programs as the server's user (CVE-2026-2006)",
        "18.3, 17.9, 16.13, 15.17 and 14.22",
        "PostgreSQL's security page of CVE-2026-2006",
    ),
    Fault(
        "PostgreSQL",
        "substring_regression",
        (("14.21", "14.22"), ("15.16", "15.17"), ("16.12", "16.13"), ("17.8", "17.9"), ("18.2", "18.3")),
        "substring() of a stored text that is not ASCII can fail with 'invalid byte sequence', and a standby can stop",
        "18.3, 17.9, 16.13, 15.17 and 14.22",
        "PostgreSQL's announcement of 18.3, 17.9, 16.13, 15.17 and 14.22",
    ),
    Fault(
        "psycopg",
        "adapters_at_start",
        (("3.3.0", "3.3.2"),),
        "threads that use the driver for the first time at the same moment can meet its adapters half made, and fail",
        "3.3.2",
        "psycopg's release notes of 3.3.2",
    ),
)


def faults_of(product: str, version: str) -> list[Fault]:
    """Return the known faults of this version of a product."""
    return [fault for fault in FAULTS if fault.product == product and fault.affects(version)]


def log_faults(found: Iterable[tuple[str, Fault]]) -> None:
    """Log each fault with the affected version, once per process."""
    for version, fault in found:
        _log_once(version, fault)


@cache
def _log_once(version: str, fault: Fault) -> None:
    level = logging.INFO if fault.avoided else logging.WARNING
    _log.log(level, "%s has a known fault: %s", version, fault.sentence)
