"""Records of bundles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from lastlight_state.db.rows.records import Record
from lastlight_state.db.valid import words
from lastlight_state.receipts import Receipt

#: What a bundle holds.
BundleKind = Literal["run", "session"]
#: What happens where rows and files are there already: those with other contents refuse the bundle, or stay, or
#: everything is loaded once more under new ids.
OnConflict = Literal["refuse", "skip", "new_ids"]

#: What a bundle can leave out.
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


#: The name of a part with rows.
ROWS = re.compile(r"rows/([A-Za-z_][A-Za-z0-9_]*)\.jsonl")


class BundlePart(Record):
    """One file inside a bundle. ``rows`` is the number of its lines, None for a log."""

    name: str
    rows: int | None
    size_bytes: int
    sha256: str


def tables_of(parts: Iterable[BundlePart]) -> dict[str, BundlePart]:
    """Return the parts with rows among these, by table."""
    return {found[1]: part for part in parts if (found := ROWS.fullmatch(part.name))}


class Bundle(Record):
    """The description of a bundle: one run or one session of a conversation, with everything that belongs to it.

    ``revision`` is the schema of the database that it came from. ``context`` names the other sessions and branches
    that are in the bundle only because branches of this session were forked from theirs, ``redacted`` what was left
    out on request. ``left_columns`` are those, as ``table.column``, that another program added to tables of this
    library and that held something there: no bundle has them.
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
        """Return the parts with rows, by table."""
        return tables_of(self.parts)


class LoadedBundle(Record):
    """The result or plan of a load: ``receipt`` is None for a plan, which writes nothing.

    ``id`` is the one under which it is stored now; a plan under new ids has the one of the bundle. ``rows`` counts
    added rows by table. ``files`` are the log files that were added.
    """

    kind: str
    id: str
    rows: Mapping[str, int]
    files: tuple[str, ...]
    receipt: Receipt | None
