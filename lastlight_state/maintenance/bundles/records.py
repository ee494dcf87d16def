"""Records of bundles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from lastlight_state.db.rows.records import Record
from lastlight_state.db.valid import words
from lastlight_state.receipts import Receipt

#: The kinds of bundles.
BundleKind = Literal["run", "session"]
#: How to treat existing rows and files with other contents: refuse the bundle, keep them, or load everything under new
#: ids.
OnConflict = Literal["refuse", "skip", "new_ids"]

#: The parts that a bundle can leave out.
Redaction = Literal[
    "context",
    "scratch",
    "content",
    "output_text",
    "outputs",
    "logs",
    "inputs",
    "events",
    "errors",
    "questions",
    "scores",
    "metadata",
]

KINDS = words(BundleKind)
REDACTIONS = words(Redaction)
ON_CONFLICT = words(OnConflict)


#: Matches the name of a part with rows.
ROWS = re.compile(r"rows/([A-Za-z_][A-Za-z0-9_]*)\.jsonl")


class BundlePart(Record):
    """One file inside a bundle. ``rows`` is the number of its lines, None for a log."""

    name: str
    rows: int | None
    size_bytes: int
    sha256: str


def tables_of(parts: Iterable[BundlePart]) -> dict[str, BundlePart]:
    """Return the parts that contain rows, by table."""
    return {found[1]: part for part in parts if (found := ROWS.fullmatch(part.name))}


class Bundle(Record):
    """The description of a bundle: one run or one session of a conversation, with everything that belongs to it.

    ``revision`` is the schema of the source database. ``context`` names other sessions and branches. They are in the
    bundle only because branches of this session were forked from their branches. ``redacted`` names what was left out
    on request. ``left_columns`` are columns with values, as ``table.column``, that another program added to tables of
    this library. Bundles do not include them.
    """

    format: int
    kind: str
    id: str
    revision: str
    context: Mapping[str, tuple[str, ...]]
    redacted: tuple[str, ...] = ()
    left_columns: tuple[str, ...] = ()
    parts: tuple[BundlePart, ...]

    @property
    def tables(self) -> dict[str, BundlePart]:
        """Return the parts of the bundle that contain rows, by table."""
        return tables_of(self.parts)


class LoadedBundle(Record):
    """The result or plan of a load. A plan writes nothing, and its ``receipt`` is None.

    ``id`` is the id under which the run or session is stored; a plan under new ids has the bundle's id. ``rows`` counts
    added rows by table. ``files`` are the log files that were added.
    """

    kind: str
    id: str
    rows: Mapping[str, int]
    files: tuple[str, ...]
    receipt: Receipt | None
