"""Everything that the newest revision makes, each with the statements that lose it and, of a column, bring it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lastlight_state.migrations import drift, mending
from lastlight_state.migrations.records import Absent

#: What one statement loses in each product: SQLite's constraints go with a table that is made anew.
KINDS = {
    "sqlite": ("index", "trigger", "view", "column"),
    "postgresql": ("index", "trigger", "view", "function", "constraint", "key", "column"),
}


class Loss(NamedTuple):
    """One thing of the newest revision. ``needed``: a store must not open without it."""

    kind: str
    place: str
    lose: str
    restore: str | None
    needed: bool


def losses(product: str, kind: str) -> Iterator[Loss]:
    """Everything of this kind, sorted."""
    for (found, table, name), made in sorted(drift.promised_entries(product).items()):
        if found == kind:
            needed = kind != "view" and (kind != "index" or made.unique or product == "sqlite")
            only = kind == "column" and _columns(product, table) == 1
            place = f"table {table}" if only else f"{kind} {'.'.join(part for part in (table, name) if part)}"
            yield Loss(kind, place, *_statements(product, kind, table, name), needed)


def _columns(product: str, table: str) -> int:
    """How many columns a table has; without its only one it counts as lost itself."""
    return sum(kind == "column" and of == table for kind, of, _ in drift.promised_entries(product))


def _statements(product: str, kind: str, table: str, name: str) -> tuple[str, str | None]:
    if kind == "column":
        rename = f'ALTER TABLE {table} RENAME COLUMN "{{}}" TO "{{}}"'
        return rename.format(name, "lost"), rename.format("lost", name)
    if kind == "trigger":
        return f"DROP TRIGGER {name}" + (f" ON {table}" if product == "postgresql" else ""), None
    if kind in ("constraint", "key"):
        constraint = mending.constraint_of(Absent(kind, table, name, None, is_unique=False, is_needed=True)).name
        return f"ALTER TABLE {table} DROP CONSTRAINT {constraint} CASCADE", None
    return f"DROP {kind} {name or table}" + (" CASCADE" if kind == "function" else ""), None
