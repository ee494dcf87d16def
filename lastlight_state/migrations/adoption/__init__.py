"""Adopts a database that the original program made: it has that program's tables, but no version of this library.

Different versions of that program made different tables. The existing tables are compared with revision 0001 and
checked for damage. Missing parts are added, and from then on the database is upgraded like any other. All of this is
one transaction, and no row is lost. Extra tables and columns stay as they are. If a type, key or check contradicts the
revision, the adoption is refused.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace

from sqlalchemy import text
from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import apply
from lastlight_state.migrations.adoption.survey import FIRST, ONE_ACTIVE, SESSIONS, Promised, Survey, make_survey
from lastlight_state.migrations.records import MigrationResult
from lastlight_state.migrations.state import IMPORTED

_log = logging.getLogger("lastlight_state.migrations")


def adopt(backend: Backend, connection: Connection, target: str, promised: Promised) -> MigrationResult:
    """Adopt the database and upgrade it, on a connection of ``Backend.migration(rebuilds=True)``.

    Raises `SchemaMismatch` with every difference. Raises `BackendUnavailable` if the adoption takes longer than a file
    of this size needs, for example because of an endless trigger. Then nothing is changed. If another process adopted
    the database first, only upgrades it.
    """
    if apply.version(connection) is not None:
        return apply.apply_revisions(connection, target)
    original = backend.original(connection)
    with nullcontext() if original is None else original.time_limit():
        return _adopt_database(backend, connection, target, promised)


def _adopt_database(backend: Backend, connection: Connection, target: str, promised: Promised) -> MigrationResult:
    found = make_survey(backend, connection, promised)
    if found is None or found.differences:
        raise refusal(backend, found)
    if found.shared_keys and target == FIRST:
        raise SchemaMismatch(
            f"active chat sessions share a key, and only the revision after {FIRST} retires all but one of each: "
            "migrate to that one or a later one",
            differences=found.shared_keys,
        )
    for remark in found.remarks:
        _log.warning("adopted as it is: %s", remark)
    if found.too_strict:
        _loosen(backend, connection)
    _repair(backend, connection, found)
    apply.complete(connection, FIRST, found.present)
    result = apply.apply_revisions(connection, target, found.present)
    if found.shared_keys:
        connection.execute(text(promised.first[ONE_ACTIVE]))
    return replace(result, from_revision=None, adopted=True)


def refusal(backend: Backend, found: Survey | None) -> SchemaMismatch:
    """Return the error for a database that has our tables but no version, and that cannot be adopted."""
    if found is None:
        return SchemaMismatch(
            "there are tables named like ours, but no version of ours beside them; if they are ours, "
            f"`{backend.command('stamp', '--to', 'REVISION')}` writes it; if they are another program's, "
            "`--schema NAME` puts ours elsewhere on Postgres"
        )
    if found.differences == (IMPORTED,):
        return SchemaMismatch(IMPORTED)
    return SchemaMismatch(
        "there are tables named like ours, no version of ours beside them, and they are not as the original program "
        "makes them; if they are another program's, `--schema NAME` puts ours elsewhere on Postgres:",
        differences=found.differences,
    )


def _repair(backend: Backend, connection: Connection, found: Survey) -> None:
    original = backend.original(connection)
    if original is None:
        return
    for one in found.misspelt:
        original.repair(one.table, one.column, one.form)
        _log.warning("%s: rewrote %d values: %s", one.table, one.found.values, one.change)


def _loosen(backend: Backend, connection: Connection) -> None:
    original = backend.original(connection)
    if original is not None:
        rows = original.loosen(SESSIONS)
        _log.warning("%s: rebuilt without its UNIQUE over the whole key, with all its %d rows", SESSIONS, rows)
