"""An upgrade as an SQL script, for administrators who change schemas by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy.engine import Dialect

from lastlight_state.backends.base import Backend
from lastlight_state.db import valid
from lastlight_state.db.schema.base import VERSION_TABLE, Base
from lastlight_state.db.schema.guards import Guard
from lastlight_state.migrations import apply
from lastlight_state.migrations.metadata import GUARDS, METADATA
from lastlight_state.migrations.state import qualified_name
from lastlight_state.migrations.verification import verify
from lastlight_state.receipts import models as receipts

# The rights on our tables that a service needs to open a store and work, and no others.
#
# A right is left out if a guard would refuse its use anyway. A service may only read what maintenance writes, above all
# the permits that lift the guards.

LONGEST_ROLE = 63
#: The rights that a service needs on an output table.
OUTPUT_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
#: The tables of `lastlight_state.receipts`.
OPERATORS = frozenset(
    mapper.class_.__tablename__ for mapper in Base.registry.mappers if mapper.class_.__module__ == receipts.__name__
)


def grants(backend: Backend, role: str) -> tuple[str, ...]:
    """Return the GRANT statements of ``role`` for the existing tables, without final semicolons.

    The owner of the tables executes them, and again after each migration that adds tables. Raises what `verify` raises,
    and `NotSupported` on a database without roles.
    """
    valid.identifier("role", role, LONGEST_ROLE)
    statements = tuple(backend.grants(role, {**rights(), **dict.fromkeys(_output_tables(backend), OUTPUT_RIGHTS)}))
    verify(backend)
    return statements


def _output_tables(backend: Backend) -> list[str]:
    """Return the output tables that the library created. They are listed in the registry, but not in the models."""
    registry = qualified_name(backend, "output_tables")
    found = backend.peek(f"SELECT table_name FROM {registry} WHERE kind <> 'custom' ORDER BY table_name")
    return [str(row[0]) for row in found or ()]


def rights() -> Mapping[str, tuple[str, ...]]:
    """Return the rights on each table, including the version table."""
    return {VERSION_TABLE: ("SELECT",), **{table: tuple(_rights_to(table)) for table in sorted(METADATA.tables)}}


def _rights_to(table: str) -> Iterator[str]:
    yield "SELECT"
    if table in OPERATORS:
        return
    yield "INSERT"
    if not any(_forbids(guard, table, "update") for guard in GUARDS):
        yield "UPDATE"
    if not any(_forbids(guard, table, "delete") for guard in GUARDS):
        yield "DELETE"


def _forbids(guard: Guard, table: str, event: str) -> bool:
    """True if a guard refuses this statement for every row, except under a maintenance permit."""
    return guard.table == table and guard.event == event and guard.when is None


def statements(backend: Backend, found: str | None, target: str, lock_timeout: float) -> str:
    """Return the statements from revision ``found`` (None for an empty database) to ``target``, ready to execute.

    They form one transaction, with the same lock and time limits as the runner. On a database at another revision than
    ``found`` they fail and change nothing.
    """
    return backend.as_script(statements_of(backend.dialect, found, target), lock_timeout)


def statements_of(dialect: Dialect, found: str | None, target: str) -> str:
    """Return only the statements, without transaction and lock, for a script that has its own transaction."""
    return "\n\n".join(apply.statements(dialect, found, target))
