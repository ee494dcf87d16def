"""Brings a database to a revision: looks, locks, looks again, and applies what is missing in one transaction.

Any number of processes may start at once: those that find the newest revision lock nothing; of the others one migrates
and the rest find it done. A process that dies in between leaves the schema as it was.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from lastlight_state.backends.base import Backend
from lastlight_state.backends.hosted import hold_migration_lock
from lastlight_state.errors import InvalidValue
from lastlight_state.migrations import scripts
from lastlight_state.migrations.records import MigrationResult, Revision
from lastlight_state.migrations.state import read_state, word_for
from lastlight_state.migrations.verify import refuse

LOCK_SECONDS = 60.0


def migrate(backend: Backend, to: str = "head", lock_timeout: float = LOCK_SECONDS) -> MigrationResult:
    """Bring the database up to ``to``, which is a revision or ``"head"``. There is no way down: at or past it, nothing.

    Raises what `verify` raises for a schema that an upgrade cannot mend, and `BackendBusy` when another migration, or
    the traffic on a table, held its lock for longer than ``lock_timeout`` seconds. After any error, and after a
    ``kill -9``, the schema is as it was.
    """
    target = _target(to)
    state = read_state(backend)
    refuse(state)
    if state.revision is not None and state.revision >= target:
        return MigrationResult(word_for(state.revision), state.revision, state.revision, ())
    try:
        with backend.migration(lock_timeout) as connection:
            return _apply(connection, target)
    except DBAPIError as error:
        cause = error.orig
        raise (backend.translate(cause) if isinstance(cause, backend.driver_errors) else error) from cause


def upgrade(connection: Connection, to: str = "head") -> MigrationResult:
    """The same on a connection of the caller's, in the caller's transaction, which the caller commits or rolls back.

    For services that migrate their own tables together with ours: our version table stands beside theirs. The schema
    on Postgres is the first of the connection's ``search_path``. Driver errors come as SQLAlchemy raises them.
    """
    target = _target(to)
    hold_migration_lock(connection)
    return _apply(connection, target)


def current(backend: Backend) -> str | None:
    """The revision that the database is at, None without one."""
    return read_state(backend).revision


def history() -> tuple[Revision, ...]:
    """All revisions that this library knows, oldest first."""
    from lastlight_state.migrations import apply  # noqa: PLC0415 see `_apply`

    return apply.history()


def _target(to: str) -> str:
    known = scripts.revisions()
    if to != "head" and to not in known:
        raise InvalidValue("to", f"unknown revision {to!r}", permitted=("head", *known))
    return known[-1] if to == "head" else to


def _apply(connection: Connection, target: str) -> MigrationResult:
    """Imported here because Alembic takes longer to import than a current database takes to open."""
    from lastlight_state.migrations import apply  # noqa: PLC0415

    return apply.upgrade(connection, target)
