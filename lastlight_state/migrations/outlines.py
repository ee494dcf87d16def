"""Looks at every opening whether a current schema has its tables, columns and guards. Needs no statement of its own.

What the SELECT for the version can read beside it is looked at, and no more: `drift` compares definitions, too.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from lastlight_state.backends.facts import Entry
from lastlight_state.backends.sql import expressions
from lastlight_state.migrations import drift, scripts

KINDS = ("column", "trigger")
_OR = {"table": "", "column": "", "trigger": " or switched off"}


class Outline(NamedTuple):
    """The tables of the newest revision, and their columns and guards."""

    tables: frozenset[str]
    entries: frozenset[Entry]


def outline_expression(product: str, version: str) -> str:
    """Return the outline of our tables as an expression, in a SELECT from the version table named ``version``."""
    return expressions.outline(product, _promised(product).tables, version)


def missing_entries(product: str, found: str | None) -> tuple[str, ...]:
    """Return one line for each table, column and guard of the newest revision that is not in the outline found."""
    promised = _promised(product)
    absent = promised.entries - expressions.entries(found)
    tables = promised.tables - {table for kind, table, _ in promised.entries - absent if kind == "column"}
    lost = {("table", table, "") for table in tables} | {entry for entry in absent if entry[1] not in tables}
    return tuple(f"{drift.words_for(entry)} is missing{_OR[entry[0]]}" for entry in sorted(lost))


def _promised(product: str) -> Outline:
    return _outline_of(product, scripts.folder(), scripts.head())


@cache
def _outline_of(product: str, _folder: Path, _newest: str) -> Outline:
    promised = drift.promised(product)
    tables = frozenset(table for kind, table, _ in promised if kind == "table")
    return Outline(tables, frozenset(entry for entry in promised if entry[0] in KINDS))
