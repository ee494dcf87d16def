"""Compares a database that says it is current with what the newest revision makes. Never writes, needs no Alembic.

The revisions' folder holds, for each product, one line for each thing that the newest revision has: its kind, table,
name, and a digest of its definition. On Postgres the definitions of indexes, triggers, functions and constraints have
no digest, because servers of different versions write them differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.facts import Catalogue, Entry
from lastlight_state.migrations import scripts
from lastlight_state.migrations.failures import translated

#: What a definition ends with that is there and does nothing.
IDLE = (" DISABLED", " INVALID", " NOT VALID")
ANY = "-"
#: Kinds whose definition a Postgres server writes in its own way.
_SERVERS_OWN = ("index", "trigger", "function", "constraint", "view", "enum")


def differences(backend: Backend) -> tuple[str, ...]:
    """One line for each thing of the newest revision that is missing, different or switched off; more may be there."""
    expected = promised(backend.name)
    with Checkout(Mode.SNAPSHOT, backend) as checkout:
        try:
            with translated(backend):
                backend.enter(checkout)
                found = backend.shape(backend.connection(checkout))
        finally:
            backend.rollback(checkout)
    return tuple(_compared(found, expected))


def recognised(backend: Backend) -> str | None:
    """The newest revision, if the schema is exactly that although no version says so."""
    return scripts.head() if promised(backend.name) and not differences(backend) else None


@cache
def promised(product: str) -> dict[Entry, str]:
    """Everything that the newest revision has on this product, with its digest. Empty for unknown products."""
    file = scripts.folder() / "shapes" / f"{product}.txt"
    if not file.is_file():
        return {}
    revision, *lines = file.read_text("utf-8").splitlines()
    if revision != scripts.head():
        return {}
    parts = [line.split("\t") for line in lines]
    return {(kind, table, name): digest for kind, table, name, digest in parts}


def lines_of(backend: Backend, shape: Catalogue) -> Iterator[str]:
    """The lines of the file for a shape, which is that of the newest revision."""
    yield scripts.head()
    for entry, text in sorted(shape.items()):
        yield "\t".join([*entry, ANY if backend.writes_definitions and entry[0] in _SERVERS_OWN else _digest(text)])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _compared(found: Catalogue, expected: dict[Entry, str]) -> Iterator[str]:
    missing = {table for kind, table, _ in expected.keys() - found.keys() if kind == "table"}
    for entry, digest in sorted(expected.items()):
        kind, table, name = entry
        told = " ".join([kind, ".".join(part for part in (table, name) if part)])
        if entry not in found:
            if kind == "table" or table not in missing:
                yield f"{told} is missing"
        elif found[entry].endswith(IDLE):
            yield f"{told} is switched off"
        elif digest not in (ANY, _digest(found[entry])):
            yield f"{told} is not as revision {scripts.head()} makes it"
