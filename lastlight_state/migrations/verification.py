"""Checks that this library can work on a database as it is. Never writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.backends.base import Backend
from lastlight_state.errors import NewerSchema, NotMigrated, SchemaMismatch
from lastlight_state.lazy import Module
from lastlight_state.migrations import drift, scripts
from lastlight_state.migrations.records import SchemaState
from lastlight_state.migrations.state import read_state, unreleased_error

if TYPE_CHECKING:
    from lastlight_state.migrations import adoption
    from lastlight_state.migrations.adoption import survey
else:  # These modules need Alembic, and a current database is opened without it.
    adoption = Module("lastlight_state.migrations.adoption")
    survey = Module("lastlight_state.migrations.adoption.survey")

#: The probable cause for a file that has no tables, or is shorter than its header says.
LOG_LOST = (
    "this seems to be a copy of an open file, made without the log beside it in which the last commits stand: "
    "copy the original with `lastlight-state backup DIR`"
)
#: A second possible cause for a file that lacks some of its tables.
LOG_LOST_TOO = (
    "a copy of an open file, made without the log beside it, looks so, too: "
    "copy the original with `lastlight-state backup DIR`"
)


def verify(backend: Backend) -> SchemaState:
    """Return the state of a database on which this library can work: ``current``, or ``ahead`` and compatible.

    Raises `NotMigrated` with the command that upgrades it, or `NewerSchema`. Raises `SchemaMismatch` for another
    program's tables or version, a version from before the first release, and an unfinished copy. Creates nothing.
    """
    state = read_state(backend)
    refuse(backend, state)
    refuse_damaged(backend, state)
    if state.state == "unversioned":
        refuse_foreign(backend)
    if state.state in ("empty", "behind", "unversioned"):
        raise NotMigrated(found=state.revision, head=state.head, command=backend.command("migrate"))
    return state


def refuse(backend: Backend, state: SchemaState) -> None:
    """Raise an error for a database that can be neither opened nor upgraded."""
    if state.state == "incompatible":
        raise NewerSchema(found=state.revision or "", head=state.head, min_reader=state.min_reader or "")
    if state.state == "unreleased":
        raise unreleased_error(state.revision)
    if state.state == "foreign":
        found = actual_revision(backend, state)
        hint = f"the schema is that of revision {found}" if found else "if the tables are ours, a stamp corrects it"
        raise SchemaMismatch(
            f"the version table holds {state.revision!r}, which is not a revision of lastlight-state; {hint}; "
            f"run: {backend.command('stamp', '--to', found or 'REVISION')}"
        )
    if state.unfinished_copy:
        problem = "unfinished copy: a copy into this database was begun and has not ended"
        raise SchemaMismatch(problem, code="unfinished_copy")


def actual_revision(backend: Backend, state: SchemaState) -> str | None:
    """Return the schema's real revision if another one or none is recorded.

    Returns None if no revision fits, and for a database of the original program. Reads the version again, because
    another process may have migrated between the two reads.
    """
    found = drift.recognised_revision(backend)
    if found in (None, state.revision) or (state.state == "unversioned" and found == scripts.FIRST):
        return None
    return found if read_state(backend).revision == state.revision else None


def refuse_wrong(backend: Backend, state: SchemaState) -> None:
    """Raise an error if the schema is not that of its recorded version, because later revisions would not fit it."""
    found = actual_revision(backend, state)
    if found is not None:
        raise SchemaMismatch(
            f"the version is {state.revision}, but the schema is that of revision {found}; "
            f"run: {backend.command('stamp', '--to', found)}"
        )


def refuse_foreign(backend: Backend) -> None:
    """Raise an error for tables without a version, unless they are the original program's and `migrate` adopts them."""
    error = lost_version_error(backend)
    if error is not None:
        raise error
    found = survey.read_survey(backend)
    if found is None or found.differences:
        raise adoption.refusal(backend, found)


def refuse_damaged(backend: Backend, state: SchemaState) -> None:
    """Raise `SchemaMismatch` ``damaged`` if a current schema lost a part on which an invariant depends."""
    if not state.lacking:
        return
    refuse_wrong(backend, state)
    raise SchemaMismatch(
        f"the schema lacks parts of revision {state.revision}, which it says it has; {mending_of(backend, state)}; "
        f"to see every difference, run: {backend.command('check')}",
        code="damaged",
        differences=state.lacking,
    )


def mending_of(backend: Backend, state: SchemaState) -> str:
    """Return advice on how to repair a schema that lacks a part."""
    return state.remedy or f"to put back what is lost, run: {backend.command('migrate')}"


def lost_version_error(backend: Backend) -> SchemaMismatch | None:
    """Return the error for a schema of ours, newer than the original program's, whose version is missing.

    Else return None.
    """
    found = actual_revision(backend, read_state(backend))
    return (
        None
        if found is None
        else SchemaMismatch(
            f"the version table is lost, and the schema is that of revision {found}; "
            f"run: {backend.command('stamp', '--to', found)}"
        )
    )
