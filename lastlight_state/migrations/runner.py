"""Migrates a database to a revision: reads its version, locks, reads again, and applies all missing revisions.

Any number of processes may start at the same time. Those that find the newest revision take no lock. Of the others, one
migrates, and the rest then find the migration done. If a process dies, the schema stays as it was.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend
from lastlight_state.backends.host_connections import hold_migration_lock
from lastlight_state.errors import InvalidValue, NotSupported
from lastlight_state.lazy import Module
from lastlight_state.migrations import collisions, scripts
from lastlight_state.migrations.failures import translated_errors
from lastlight_state.migrations.records import MigrationResult, SchemaState
from lastlight_state.migrations.state import read_state, word_for
from lastlight_state.migrations.verification import lost_version_error, refuse, refuse_foreign, refuse_wrong

if TYPE_CHECKING:
    from lastlight_state.migrations import adoption, apply, mending, offline
    from lastlight_state.migrations.adoption import fit as stamping, survey
else:  # These modules need Alembic, whose import takes longer than opening a current database.
    adoption = Module("lastlight_state.migrations.adoption")
    apply = Module("lastlight_state.migrations.apply")
    mending = Module("lastlight_state.migrations.mending")
    offline = Module("lastlight_state.migrations.offline")
    stamping = Module("lastlight_state.migrations.adoption.fit")
    survey = Module("lastlight_state.migrations.adoption.survey")

LOCK_SECONDS = 60.0


def migrate(backend: Backend, to: str = "head", lock_timeout: float = LOCK_SECONDS) -> MigrationResult:
    """Upgrade the database to ``to``, a revision or ``"head"``.

    Does nothing if it is there or further: there is no downgrade. Restores parts that a current schema lost: indexes,
    guards, functions, and on Postgres keys and references. Raises `SchemaMismatch` ``damaged`` for lost tables and
    columns, and with the rows that violate a unique index. A database of the original program is adopted first. Raises
    what `verify` raises for a schema that no upgrade can repair. Raises `BackendBusy` if another migration, or other
    users of a table, held a needed lock for longer than ``lock_timeout`` seconds. After any error, and after a ``kill
    -9``, the schema is as it was.
    """
    target = target_of(to)
    state = read_state(backend)
    refuse(backend, state)
    if state.revision is not None and state.revision >= target:
        if not state.absent:
            return MigrationResult(word_for(state.revision), state.revision, state.revision, ())
        refuse_wrong(backend, state)
        with translated_errors(backend), backend.migration(lock_timeout) as connection:
            return _apply(connection, target)
    if state.state == "unversioned":
        return _adopt(backend, target, lock_timeout)
    if state.revision is not None:
        refuse_wrong(backend, state)
    collisions.refuse_collisions(backend, state, target)
    with translated_errors(backend), backend.migration(lock_timeout) as connection:
        return _apply(connection, target)


def script(backend: Backend, to: str = "head", lock_timeout: float = LOCK_SECONDS) -> str | None:
    """Return the SQL that `migrate` would run, ready to execute. Return None if there is nothing to do.

    Writes nothing. Raises what `migrate` raises, and `NotSupported` for a database that would have to be adopted.
    """
    target = target_of(to)
    state = read_state(backend)
    refuse(backend, state)
    if state.state == "unversioned":
        refuse_foreign(backend)
        raise NotSupported("a database that is to be taken over must be looked at: run migrate without --sql")
    if state.revision is not None and state.revision >= target and not state.absent:
        return None
    if state.revision is not None:
        refuse_wrong(backend, state)
    if state.absent:
        return _mending_script(backend, state, lock_timeout)
    collisions.refuse_collisions(backend, state, target)
    return offline.statements(backend, state.revision, target, lock_timeout)


def stamp(
    backend: Backend, to: str = "head", *, force: bool = False, lock_timeout: float = LOCK_SECONDS
) -> MigrationResult:
    """Record that the database is at ``to``, and change nothing else.

    For databases whose version is missing or wrong. Raises `SchemaMismatch` with every difference from the schema at
    ``to``; with ``force`` nothing is compared. Rows are not read.
    """
    target = target_of(to)
    found = read_state(backend).revision
    expected = None if force else stamping.blueprint(backend, target)
    with translated_errors(backend), backend.migration(lock_timeout) as connection:
        if expected is not None:
            stamping.compare(backend, connection, target, expected)
        apply.write_version(connection, target)
    return MigrationResult(word_for(target), found, target, ())


def upgrade(connection: Connection, to: str = "head") -> MigrationResult:
    """Upgrade the database to ``to`` on the caller's connection and in the caller's transaction, which stays open.

    For services that migrate their own tables together with ours: each set of tables has its own version table. On
    Postgres the schema is the first of the connection's ``search_path``. Driver errors are raised as SQLAlchemy raises
    them.
    """
    target = target_of(to)
    hold_migration_lock(connection)
    return _apply(connection, target)


def current(backend: Backend) -> str | None:
    """Return the revision of the database, or None if it has no version."""
    return read_state(backend).revision


def target_of(to: str) -> str:
    """Return the revision with this name or number. Raises `InvalidValue` with all known revisions if there is none."""
    known = scripts.revisions()
    meant = known[-1:] if to == "head" else [revision for revision in known if to in (revision, revision[:4])]
    if not meant:
        raise InvalidValue("to", f"unknown revision {to!r}", permitted=("head", *known))
    return meant[0]


def _apply(connection: Connection, target: str) -> MigrationResult:
    """Apply the missing revisions. If there are none, restore lost parts of a current schema."""
    result = apply.apply_revisions(connection, target)
    return result if result.revisions else replace(result, mended=mending.put_back(connection, result.to_revision))


def _mending_script(backend: Backend, state: SchemaState, lock_timeout: float) -> str:
    mending.refuse_lost(state.absent)
    return backend.as_script(
        "\n\n".join(f"{one};" for one in mending.statements(backend.dialect, state.absent)), lock_timeout
    )


def _adopt(backend: Backend, target: str, lock_timeout: float) -> MigrationResult:
    error = lost_version_error(backend)
    if error is not None:
        raise error
    with translated_errors(backend):
        promised = survey.promised_shapes(backend)
    with translated_errors(backend), backend.migration(lock_timeout, rebuilds=True) as connection:
        return adoption.adopt(backend, connection, target, promised)
