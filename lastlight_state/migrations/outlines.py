"""Checks at every opening that a current schema is complete. Needs no extra round trip.

It checks only what the SELECT for the version can read as well; `drift` also compares definitions.
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from lastlight_state.backends.facts import Entry
from lastlight_state.backends.sql import expressions
from lastlight_state.backends.sql.expressions import EXTENSION, OFF, REFERENCES
from lastlight_state.migrations import drift, scripts
from lastlight_state.migrations.records import HOLDING, Absent

#: The kinds of objects in an outline, by product.
KINDS = {
    "sqlite": ("column", "trigger", "index", "constraint", "key", "view"),
    "postgresql": ("column", "trigger", "index", "constraint", "key", "function", "view"),
}
#: Kinds whose loss breaks no invariant: without them calls are slow, or a person's query finds nothing. Statements for
#: SQLite name their indexes, so without one they fail.
_DISPENSABLE = {"sqlite": ("view",), "postgresql": ("index", "view")}
#: Kinds that no statement restores: those that held values; on SQLite also those that belong to a CREATE TABLE.
_FINAL = {"sqlite": (*HOLDING, "constraint", "key"), "postgresql": HOLDING}
UNIQUE = "unique"


class Outline(NamedTuple):
    """The newest revision's tables with their functions and views, and the objects that belong to each table."""

    tables: frozenset[str]
    others: frozenset[str]
    entries: frozenset[Entry]


def outline_expression(product: str, version: str) -> str:
    """Return an SQL expression for the outline of our tables. ``version`` is the version table's name in SQL."""
    promised = _promised_outline(product)
    constraints = [entry for entry in promised.entries if entry[0] == "constraint"]
    return expressions.outline(product, promised.tables, promised.others, constraints, version)


def absent_entries(product: str, found: str | None) -> tuple[Absent, ...]:
    """Return the newest revision's objects that are not in the outline.

    For a lost table, only the table is returned.
    """
    return _absent(_promised_outline(product), product, expressions.entries(found))


def extensions(found: str | None) -> dict[str, str]:
    """Return the versions of the database's extensions, by name."""
    return {name: version for kind, name, version in expressions.entries(found) if kind == EXTENSION}


@lru_cache(maxsize=4)
def _absent(promised: Outline, product: str, found: frozenset[Entry]) -> tuple[Absent, ...]:
    absent = promised.entries - found
    whole = {table for kind, table, _ in found if kind == REFERENCES}
    absent = frozenset(entry for entry in absent if not (entry[1] in whole and entry[2].startswith("foreign key")))
    if not absent:
        return ()
    tables = promised.tables - {table for kind, table, _ in promised.entries - absent if kind == "column"}
    lost = {("table", table, "") for table in tables} | {entry for entry in absent if entry[1] not in tables}
    return tuple(sorted(_absent_of(entry, found, product) for entry in lost))


def _absent_of(entry: Entry, outline: frozenset[Entry], product: str) -> Absent:
    kind, table, name = entry
    plain = "index" if kind == UNIQUE else kind
    found: Literal["off", "other"] | None = None
    if (f"{plain}{OFF}", table, name) in outline:
        found = "off"
    elif plain == "index" and outline & {("index", table, name), (UNIQUE, table, name)}:
        found = "other"
    needed, final = kind not in _DISPENSABLE[product], kind in _FINAL[product]
    return Absent(plain, table, name, found, is_unique=kind == UNIQUE, is_needed=needed, is_final=final)


def _promised_outline(product: str) -> Outline:
    return _outline_of(product, scripts.folder(), scripts.head())


@cache
def _outline_of(product: str, _folder: Path, _newest: str) -> Outline:
    promised = drift.promised_entries(product)
    entries = frozenset(
        (UNIQUE, *entry[1:]) if made.unique else entry
        for entry, made in promised.items()
        if entry[0] in KINDS.get(product, ())
    )
    tables = frozenset(table for kind, table, _ in promised if kind == "table")
    return Outline(tables, frozenset(name for kind, name, _ in promised if kind in ("function", "view")), entries)
