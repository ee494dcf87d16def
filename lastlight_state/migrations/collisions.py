"""Finds tables, indexes, triggers and functions of another program with names that a migration would use.

Names used in addition to the original program's tables are found by `adoption`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lastlight_state.backends.base import Backend
from lastlight_state.backends.facts import Entry
from lastlight_state.backends.sql.expressions import literal
from lastlight_state.errors import SchemaMismatch
from lastlight_state.lazy import Module
from lastlight_state.migrations import drift
from lastlight_state.migrations.records import SchemaState
from lastlight_state.migrations.state import read_state

if TYPE_CHECKING:
    from lastlight_state.migrations import apply
else:  # needs Alembic
    apply = Module("lastlight_state.migrations.apply")

#: Queries for the taken names. Tables, indexes and types share one namespace. Functions of Postgres have their own, and
#: so have triggers of SQLite. A trigger of Postgres is named within its table.
_TAKEN = {
    "sqlite": "SELECT CASE type WHEN 'trigger' THEN type ELSE 'table' END, lower(name) FROM sqlite_master",
    "postgresql": """
        SELECT 'table', relname::text FROM pg_class WHERE relnamespace = {place}
        UNION SELECT 'table', typname::text FROM pg_type WHERE typnamespace = {place}
        UNION SELECT 'function', proname::text FROM pg_proc WHERE pronamespace = {place} AND pronargs = 0""",
}
#: An index that a revision makes unless somebody has made it before.
_MAY_EXIST = re.compile(r"CREATE (?:UNIQUE )?INDEX IF NOT EXISTS (\w+)")
_PLACE = "(SELECT oid FROM pg_namespace WHERE nspname = coalesce({schema}, current_schema()))"


def colliding_names(backend: Backend, state: SchemaState, target: str) -> tuple[str, ...]:
    """Return the names that an upgrade to ``target`` would use and that are taken, each with its kind, sorted."""
    after = state.revision or ""
    made = [entry for entry, one in drift.promised_entries(backend.name).items() if after < one.since <= target]
    if not made:
        return ()
    place = _PLACE.format(schema=literal(backend.schema) if backend.schema else "NULL")
    taken = set(backend.peek(_TAKEN[backend.name].format(place=place)) or ())
    named = {entry: _kind_and_name(entry) for entry in made}
    met = [entry for entry, (_, shared, name) in named.items() if (shared, name) in taken]
    early = _early_indexes(backend, state, target, met)
    return tuple(sorted(f"{named[entry][0]} {named[entry][2]}" for entry in met if entry not in early))


def _early_indexes(backend: Backend, state: SchemaState, target: str, met: Iterable[Entry]) -> set[Entry]:
    """Return the indexes among these entries that the revisions make unless they exist, and that are made alike.

    An operator creates such an index before the upgrade, without blocking writers.
    """
    indexes = {entry for entry in met if entry[0] == "index"}
    if not indexes:
        return set()
    made = apply.statements(backend.dialect, state.revision, target)
    may_exist = {match[1] for statement in made if (match := _MAY_EXIST.match(statement))}
    found, promised = drift.shape(backend), drift.promised_entries(backend.name)
    early = {entry for entry in indexes & found.keys() if entry[2] in may_exist}
    return {entry for entry in early if not drift.is_made_otherwise(entry, found[entry], promised[entry])}


def _kind_and_name(entry: Entry) -> tuple[str, str, str]:
    """Return the kind of an entry, its name, and the kind whose names must differ from it."""
    kind, table, name = entry
    return kind, "table" if kind == "index" else kind, name if kind in ("index", "trigger") else table


def lines(names: Sequence[str]) -> tuple[str, ...]:
    """Return one line for each taken name."""
    return tuple(f"{name} is there already, and a later revision makes one" for name in names)


def refuse_collisions(backend: Backend, state: SchemaState, target: str) -> None:
    """Raise `SchemaMismatch` with all taken names that an upgrade from ``state`` to ``target`` would use.

    If another process has migrated the database since ``state`` was read, the names may be this library's own, and
    nothing is raised.
    """
    names = colliding_names(backend, state, target)
    if names and read_state(backend).revision == state.revision:
        raise refusal(lines(names))


def refusal(differences: Sequence[str]) -> SchemaMismatch:
    """Return the error that has these lines about taken names."""
    return SchemaMismatch(
        "another program has names of ours; `--schema NAME` puts ours elsewhere on Postgres, "
        "and on SQLite ours need a file of their own:",
        code="collision",
        differences=differences,
    )
