"""Records of imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lastlight_state.db.records import Record
from lastlight_state.receipts import Receipt

#: What is imported from.
SourceKind = Literal[
    "lionagi-runs",
    "lionagi-db",
    "smithers-db",
    "lastlight-db",
    "lionagi-teams",
    "codelia",
    "lastlight-logs",
    "nanoclaw",
]


class FailedUnit(Record):
    """A part of a source that was not imported: its name there, a code, and the reason. Nothing of it is stored."""

    unit: str
    code: str
    reason: str


class ImportConflict(Record):
    """Something of a unit that differs from its source, and was kept because it was changed or has ended here."""

    unit: str
    kept: str


class ImportReport(Record):
    """What an import did, or would do: ``receipt`` is None for a plan, which writes nothing.

    ``units`` counts the units of the source by outcome: ``imported``, ``grown``, ``unchanged``, ``pruned``,
    ``ignored`` and ``failed``. ``rows`` counts what was added, by table or kind of file. ``noticed`` counts what a
    source says and no row does.
    ``failures`` are the first 500 units that failed. ``conflicts`` are the first 500 things that differ from the source
    and stay as they are here; ``noticed`` counts them all.
    """

    kind: str
    units: Mapping[str, int]
    rows: Mapping[str, int]
    noticed: Mapping[str, int]
    failures: tuple[FailedUnit, ...]
    receipt: Receipt | None
    conflicts: tuple[ImportConflict, ...] = ()
