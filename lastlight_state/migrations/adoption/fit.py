"""Compares another program's tables with the tables that a revision creates.

Additional columns, indexes and tables are permitted. They count as differences only if they would refuse rows that this
library writes, or have the name of an object that a later revision creates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend
from lastlight_state.backends.facts import Catalogue, Entry
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import apply, scripts

# The schema at a revision, found by applying the revisions up to it to an empty database.


def blueprints(backend: Backend, *revisions: str) -> list[Catalogue]:
    """Return the schema's shape at each of these revisions, which must be given oldest first."""
    found = []
    with backend.scratch() as connection:
        for revision in revisions:
            apply.apply_revisions(connection, revision)
            found.append(without_version(backend.shape(connection)))
    return found


def without_version(catalogue: Catalogue) -> Catalogue:
    """Return the catalogue without the version table, because no revision creates that table."""
    return {entry: text for entry, text in catalogue.items() if entry[1] != VERSION_TABLE}


#: Kinds of entry that may exist before the revision that adds them, if they are equal to it.
MADE_UNLESS_EQUAL = ("column", "index")

_TOLD = {
    "column": "column {table}.{name}",
    "index": "index {name} of {table}",
    "constraint": "{name} of {table}",
    "key": "primary key of {table}",
    "table": "table {table}",
    "trigger": "trigger {name} of {table}",
}


def misfits(found: Catalogue, expected: Catalogue, *, additive: bool = False) -> list[str]:
    """Return one line for each entry that is missing or different.

    With ``additive``, entries that can be added later may be missing.
    """
    missing = {table for kind, table, _ in expected.keys() - found.keys() if kind == "table"}
    lines = [] if additive else [f"table {table} is missing" for table in sorted(missing)]
    for entry, text in sorted(expected.items()):
        there = found.get(entry)
        if there == text or entry[1] in missing or (additive and there is None and _can_be_added(entry[0], text)):
            continue
        said = "missing" if there is None else _quoted_text(there)
        lines.append(f"{_entry_text(entry)} is {said}, expected {_quoted_text(text)}")
    return [*lines, *_refusal_lines(found, expected)]


def missing_entries(found: Catalogue, expected: Catalogue) -> list[Entry]:
    """Return the missing tables, and the missing columns and indexes of existing tables."""
    tables = _tables(found)
    return [
        entry
        for entry in sorted(expected.keys() - found.keys())
        if entry[0] == "table" or (entry[0] in MADE_UNLESS_EQUAL and entry[1] in tables)
    ]


def clashes(found: Catalogue, expected: Catalogue, later: Catalogue) -> list[str]:
    """Return one line for each entry that exists although only a later revision creates it."""
    tables = _tables(expected)
    return [
        f"{_entry_text(entry)} is there already, and a later revision makes one"
        for entry in sorted(found.keys() & (later.keys() - expected.keys()))
        if entry[1] in tables or entry[0] == "table"
    ]


def present(found: Catalogue, expected: Catalogue, later: Catalogue) -> frozenset[Entry]:
    """Return the existing columns and indexes that equal those that a later revision creates."""
    tables = _tables(expected)
    return frozenset(
        entry
        for entry in found.keys() & (later.keys() - expected.keys())
        if entry[0] in MADE_UNLESS_EQUAL and entry[1] in tables and found[entry] == later[entry]
    )


def _refusal_lines(found: Catalogue, expected: Catalogue) -> Iterator[str]:
    tables = _tables(expected)
    for entry in sorted(found.keys() - expected.keys()):
        if entry[1] in tables and _refuses_rows(entry[0], found[entry]):
            yield f"{_entry_text(entry)} is {_quoted_text(found[entry])}, which may refuse what this library writes"


def _refuses_rows(kind: str, text: str) -> bool:
    if kind == "column":
        return _must_be_given(text) and "identity" not in text
    return kind == "constraint" or text.lower().startswith("create unique ")


def _can_be_added(kind: str, text: str) -> bool:
    """True if the entry can be added to a table with rows without changing the rows."""
    return kind == "index" or (kind == "column" and not _must_be_given(text))


def _must_be_given(text: str) -> bool:
    return "NOT NULL" in text and "DEFAULT" not in text


def _tables(catalogue: Catalogue) -> set[str]:
    return {table for kind, table, _ in catalogue if kind == "table"}


def _entry_text(entry: Entry) -> str:
    kind, table, name = entry
    return _TOLD.get(kind, "{kind} {table} {name}").format(kind=kind, table=table, name=name).strip()


def _quoted_text(text: str) -> str:
    return f"'{text}'" if text else "nothing"


# A check of a schema against its revision, before that revision is recorded.


@dataclass(frozen=True)
class Blueprint:
    """The shape of a schema at a revision, and at the newest one."""

    promised: Catalogue
    newest: Catalogue


def blueprint(backend: Backend, revision: str) -> Blueprint:
    """Return the schema's shape at this revision.

    To find it, the revision is run in a temporary schema or file on that server.
    """
    promised, newest = blueprints(backend, revision, scripts.head())
    return Blueprint(promised, newest)


def compare(backend: Backend, connection: Connection, revision: str, expected: Blueprint) -> None:
    """Raise `SchemaMismatch` with every difference between the schema and this revision's shape."""
    found = without_version(backend.shape(connection))
    differences = [
        *misfits(found, expected.promised),
        *clashes(found, expected.promised, expected.newest),
    ]
    if differences:
        raise SchemaMismatch(
            f"the schema is not the one of revision {revision}; "
            f"`{backend.command('stamp', '--to', revision, '--force')}` stamps it all the same:",
            differences=differences,
        )
