"""Compares a database with the newest revision's schema. Never writes, and does not need Alembic.

The revisions' folder holds a list for each product, with one line for each object of the newest revision: its kind,
table, name, a digest of its definition, and the first revision that has it. On Postgres the definitions of indexes,
triggers and constraints have no digest, because server versions write them differently. The line of an index says
whether it is unique.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.facts import Catalogue, Entry
from lastlight_state.migrations import scripts
from lastlight_state.migrations.failures import translated_errors

#: The end of the definition of an object that exists but is switched off.
IDLE = (" DISABLED", " INVALID", " NOT VALID")
ANY = "-"
#: Kinds whose definitions a Postgres server rewrites in its own way.
_SERVERS_OWN = ("index", "trigger", "constraint", "view", "enum")
_UNIQUE = "unique "


class SchemaEntry(NamedTuple):
    """The definition of an object in the newest revision, and the first revision that has it."""

    digest: str
    since: str
    unique: bool = False


def differences(backend: Backend) -> tuple[str, ...]:
    """Return one line for each object of the newest revision that the database lacks, or has changed or disabled."""
    return tuple(difference_lines(shape(backend), promised_entries(backend.name)))


def recognised_revision(backend: Backend) -> str | None:
    """Return the revision whose names the schema has completely, without names of later revisions.

    Ignores the recorded version. Returns None for any other schema, and for products without a list in the revisions'
    folder.
    """
    expected = promised_entries(backend.name)
    if not expected:
        return None
    found = expected.keys() & shape(backend).keys()
    last = max((expected[entry].since for entry in found), default=None)
    whole = last is not None and len(found) == sum(made.since <= last for made in expected.values())
    return last if whole else None


def shape(backend: Backend) -> Catalogue:
    """Return the structure of the tables that the database has now."""
    with Checkout(Mode.SNAPSHOT, backend) as checkout:
        try:
            with translated_errors(backend):
                backend.enter(checkout)
                return backend.shape(backend.connection(checkout))
        finally:
            backend.rollback(checkout)


def is_made_otherwise(entry: Entry, found: str, made: SchemaEntry) -> bool:
    """True if the definition of an object, switched off or not, differs from the revision's.

    Postgres rewrites the definitions of indexes, so that only UNIQUE is compared there.
    """
    for word in IDLE:
        found = found.removesuffix(word)
    return made.digest not in (ANY, _digest(found)) or made.unique != _is_unique(entry, found)


def promised_entries(product: str) -> Mapping[Entry, SchemaEntry]:
    """Return all objects of the newest revision on this product. Empty for unknown products."""
    return _listed_entries(scripts.folder() / "shapes" / f"{product}.txt", scripts.head())


@cache
def _listed_entries(file: Path, newest: str) -> Mapping[Entry, SchemaEntry]:
    """Return the objects in a list's file. Return none if the list is not of the newest revision."""
    if not file.is_file():
        return {}
    revision, *lines = file.read_text("utf-8").splitlines()
    if revision != newest:
        return {}
    parts = [line.split("\t") for line in lines]
    return {
        (kind, table, name): SchemaEntry(digest.removeprefix(_UNIQUE), since, digest.startswith(_UNIQUE))
        for kind, table, name, digest, since in parts
    }


def words_for(entry: Entry) -> str:
    """Describe an entry for errors: its kind, and the table to which it belongs."""
    kind, table, name = entry
    return " ".join([kind, ".".join(part for part in (table, name) if part)])


def lines_of(backend: Backend, shapes: Sequence[Catalogue]) -> Iterator[str]:
    """Yield the lines of a list's file, given the schema's shape at each revision from the oldest on."""
    yield scripts.head()
    for entry, text in sorted(shapes[-1].items()):
        digest = ANY if backend.writes_definitions and entry[0] in _SERVERS_OWN else _digest(text)
        digest = f"{_UNIQUE}{digest}" if _is_unique(entry, text) else digest
        since = next(known for known, shape in zip(scripts.revisions(), shapes, strict=True) if entry in shape)
        yield "\t".join([*entry, digest, since])


def _is_unique(entry: Entry, text: str) -> bool:
    return entry[0] == "index" and text.lower().startswith("create unique ")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def difference_lines(found: Catalogue, expected: Mapping[Entry, SchemaEntry]) -> Iterator[str]:
    """Yield one line for each expected object that the schema ``found`` lacks, has in another form or switched off."""
    missing = {table for kind, table, _ in expected.keys() - found.keys() if kind == "table"}
    for entry, made in sorted(expected.items()):
        kind, table, _ = entry
        told = words_for(entry)
        if entry not in found:
            if kind == "table" or table not in missing:
                yield f"{told} is missing"
        elif found[entry].endswith(IDLE):
            yield f"{told} is switched off"
        elif is_made_otherwise(entry, found[entry], made):
            yield f"{told} is not as revision {scripts.head()} makes it"
