"""Runs the revisions of this folder.

The runner (`lastlight_state.migrations`) hands its connection in, already locked and inside the one transaction of the
upgrade, or for a script its dialect. The plain ``alembic`` command takes the database that ``-x url=...`` or
``-x url_file=...`` names, else the one of the environment, else ``./state/lastlight.db``; ``-x schema=...`` chooses the
schema on Postgres.
"""

from __future__ import annotations

from contextlib import closing

from alembic import context
from sqlalchemy.engine import Connection, Dialect

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.migrations import plain_command
from lastlight_state.migrations.adoption.existing import skip_existing
from lastlight_state.migrations.metadata import METADATA, options
from lastlight_state.migrations.operations import RefuseRows
from lastlight_state.settings import DATABASE_FILE, load_settings

OPERATIONS = (RefuseRows,)  # importing them makes them known to `op`


def run(connection: Connection) -> None:
    given = context.config.attributes
    propose = given.get("propose")
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        process_revision_directives=propose,
        **options(connection.dialect),
    )
    skip_existing(context.get_context(), given.get("present", ()))
    with context.begin_transaction():
        context.run_migrations()


def write(dialect: Dialect) -> None:
    """The statements instead of their effect, without the frame that makes them one transaction."""
    context.configure(
        dialect_name=dialect.name,
        dialect_opts={"paramstyle": "named"},  # others double each percent sign, which here nobody halves again
        literal_binds=True,
        transactional_ddl=False,
        **options(dialect),
    )
    context.run_migrations()


def named_backend() -> Backend:
    named = context.get_x_argument(as_dictionary=True)
    settings = load_settings(
        None, url=named.get("url"), url_file=named.get("url_file"), schema_name=named.get("schema")
    )
    return open_backend(settings.url or settings.state_dir / DATABASE_FILE, Options(schema=settings.schema_name))


def run_from_command_line() -> None:
    with closing(named_backend()) as backend:
        command = plain_command.command_of(backend.dialect.name)
        if context.is_offline_mode():
            plain_command.act_in_frame(backend, context.config, write)
        else:
            plain_command.act(backend, command, context.config, run)


given = context.config.attributes
if "connection" in given:
    run(given["connection"])
elif "dialect" in given:
    write(given["dialect"])
else:
    run_from_command_line()
