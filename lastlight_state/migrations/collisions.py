"""Tables of another program that have the names of tables that a migration would make.

Those beside the tables of the original program are found by `adoption`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lastlight_state.backends.base import Backend
from lastlight_state.errors import SchemaMismatch, StateError
from lastlight_state.migrations import drift
from lastlight_state.migrations.records import SchemaState
from lastlight_state.migrations.state import qualified, read_state

#: Gives a row if a table of this name is where tables are made without a schema.
_THERE = {
    "sqlite": "SELECT 1 FROM sqlite_master WHERE lower(name) = '{table}'",
    "postgresql": "SELECT 1 WHERE to_regclass(quote_ident(current_schema()) || '.{table}') IS NOT NULL",
}


def colliding_tables(backend: Backend, state: SchemaState, target: str) -> tuple[str, ...]:
    """Return the tables that an upgrade to ``target`` would make, and that are there already, sorted."""
    after = state.revision or ""
    made = drift.promised(backend.name).items()
    wanted = sorted(table for (kind, table, _), one in made if kind == "table" and after < one.since <= target)
    return tuple(table for table in wanted if _is_there(backend, table))


def _is_there(backend: Backend, table: str) -> bool:
    """True if a new table of this name would meet another one: not where that is elsewhere on the search path."""
    if backend.schema is not None:
        return backend.peek(f"SELECT 1 FROM {qualified(backend, table)} LIMIT 0") is not None
    return bool(backend.peek(_THERE[backend.name].format(table=table)))


def lines(tables: Sequence[str]) -> tuple[str, ...]:
    """Return one line for each table."""
    return tuple(f"table {table} is there already, and a later revision makes one" for table in tables)


@contextmanager
def naming_collisions(backend: Backend, state: SchemaState, target: str) -> Iterator[None]:
    """Run a block that upgrades from ``state``. If it fails because of such tables, all of them are named."""
    try:
        yield
    except SchemaMismatch:
        raise
    except StateError as error:
        tables = colliding_tables(backend, state, target) if read_state(backend).revision == state.revision else ()
        if tables:
            raise refusal(lines(tables)) from error
        raise


def refusal(differences: Sequence[str]) -> SchemaMismatch:
    """Return the error that names them, given the lines."""
    return SchemaMismatch(
        "tables of another program have the names of ours; `--schema NAME` puts ours elsewhere on Postgres, "
        "and on SQLite ours need a file of their own:",
        code="collision",
        differences=differences,
    )
