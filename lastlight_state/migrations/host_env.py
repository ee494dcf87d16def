"""Upgrades the library's tables from the ``env.py`` of a host application when the application upgrades its own tables.

Alembic runs ``env.py`` for every command, also for read-only ones. The command is recognised by the name of the
function that Alembic will run, which the migration context holds.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext

from alembic import context
from alembic.migration import MigrationContext

from lastlight_state.backends.host_connections import inside, written_inside
from lastlight_state.migrations import offline
from lastlight_state.migrations.metadata import METADATA, is_over_expressions
from lastlight_state.migrations.records import MigrationResult
from lastlight_state.migrations.runner import target_of, upgrade

#: ``-x NAME=0001`` tells ``alembic upgrade --sql``, which reads no database, which revision our tables are at.
AT = "lastlight_state"
#: The functions that Alembic runs for ``check`` and for ``revision --autogenerate``.
_COMPARES = "retrieve_migrations"


def upgrade_from_env(*, schema: str | None = None, to: str = "head") -> MigrationResult | None:
    """Upgrade our tables if the command is ``alembic upgrade``. For every other command, do nothing and return None.

    Call it in a host's ``env.py`` after ``context.configure``. It uses the host's transaction, or begins one.
    ``schema`` is the Postgres schema of our tables; by default, the first of the ``search_path``. With ``--sql``, our
    statements are written to the script: those after the revision that ``-x lastlight_state=`` names, or all of them.
    """
    migration = context.get_context()
    command = getattr(migration.opts.get("fn"), "__name__", "")
    if command == _COMPARES:
        _silence()
    if command != "upgrade":
        return None
    if migration.as_sql:
        _write(migration, schema, target_of(to))
        return None
    connection = context.get_bind()
    with nullcontext() if connection.in_transaction() else connection.begin(), inside(connection, schema):
        return upgrade(connection, to)


def _silence() -> None:
    """Suppress SQLAlchemy's warnings about those indexes of ours that it cannot read on SQLite.

    It still warns about the host's.
    """
    indexes = (index for table in METADATA.sorted_tables for index in table.indexes if is_over_expressions(index))
    ours = "|".join(sorted(str(index.name) for index in indexes))
    warnings.filterwarnings("ignore", f"Skipped unsupported reflection of expression-based index ({ours})$")


def _write(migration: MigrationContext, schema: str | None, target: str) -> None:
    named = context.get_x_argument(as_dictionary=True).get(AT)
    found = target_of(str(named)) if named else None
    if found is None or found < target:
        body = offline.statements_of(migration.dialect, found, target)
        written = written_inside(migration.dialect, schema, body)
        # If DDL runs outside transactions, or each revision in its own, Alembic writes no transaction around the
        # script.
        apart = migration.opts.get("transaction_per_migration") or not migration.impl.transactional_ddl
        migration.impl.static_output(f"BEGIN;\n\n{written}\n\nCOMMIT;" if apart else written)
