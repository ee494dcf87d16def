"""Runs the revisions of this folder.

The runner (`lastlight_state.migrations`) hands its connection in, already locked and inside the one transaction of the
upgrade. The plain ``alembic`` command gets one from the database that ``-x url=...`` names, else the environment, else
``./state/lastlight.db``; ``-x schema=...`` chooses the schema on Postgres.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy.engine import Connection

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.migrations.autogenerate import options
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.migrations.operations import RefuseRows
from lastlight_state.settings import DATABASE_FILE, load_settings

LOCK_SECONDS = 60.0
OPERATIONS = (RefuseRows,)  # importing them makes them known to `op`


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=METADATA, **options(connection.dialect))
    with context.begin_transaction():
        context.run_migrations()


def run_from_command_line() -> None:
    named = context.get_x_argument(as_dictionary=True)
    settings = load_settings(None, url=named.get("url"), schema_name=named.get("schema"))
    backend = open_backend(settings.url or settings.state_dir / DATABASE_FILE, Options(schema=settings.schema_name))
    try:
        with backend.migration(LOCK_SECONDS) as connection:
            run(connection)
    finally:
        backend.close()


given = context.config.attributes.get("connection")
if given is None:
    run_from_command_line()
else:
    run(given)
