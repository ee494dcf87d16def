"""An upgrade as a script, for administrators who change schemas by hand."""

from __future__ import annotations

import io

from alembic import command
from sqlalchemy.engine import Dialect

from lastlight_state.backends.base import Backend
from lastlight_state.migrations import apply
from lastlight_state.migrations.hosts import environment_kept


def statements(backend: Backend, found: str | None, target: str, lock_timeout: float) -> str:
    """The statements from revision ``found`` (None: nothing is there) to ``target``, executable as they stand.

    They are one transaction with the lock and the limits on waiting of the runner. On a database that is at another
    revision than ``found`` they fail, and change nothing.
    """
    return backend.as_script(statements_of(backend.dialect, found, target), lock_timeout)


def statements_of(dialect: Dialect, found: str | None, target: str) -> str:
    """The statements alone, without the transaction and the lock, for a script that has its own."""
    config = apply.config()
    written = io.StringIO()
    config.output_buffer = written
    config.attributes["dialect"] = dialect
    with environment_kept():
        command.upgrade(config, f"{found or 'base'}:{target}", sql=True)
    return written.getvalue().strip()
