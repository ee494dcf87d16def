"""Whether this library can work on a database as it is. Never writes."""

from __future__ import annotations

import shlex

from lastlight_state.backends.base import Backend
from lastlight_state.errors import NewerSchema, NotMigrated, SchemaMismatch
from lastlight_state.migrations import drift
from lastlight_state.migrations.records import SchemaState
from lastlight_state.migrations.state import read_state

#: Stands in a location for its password.
HIDDEN = ":***@"


def verify(backend: Backend) -> SchemaState:
    """The state of a database that this library can work on: ``current``, or ``ahead`` and compatible.

    Raises `NotMigrated` with the command that mends it, `NewerSchema`, or `SchemaMismatch` for foreign tables, a
    foreign version, and a copy that is not finished. Creates nothing.
    """
    state = read_state(backend)
    refuse(state)
    if state.state == "unversioned":
        refuse_foreign(backend)
    if state.state in ("empty", "behind", "unversioned"):
        raise NotMigrated(found=state.revision, head=state.head, command=remedy(backend))
    return state


def refuse(state: SchemaState) -> None:
    """Raise for what neither opening nor an upgrade can mend."""
    if state.state == "incompatible":
        raise NewerSchema(found=state.revision or "", head=state.head, min_reader=state.min_reader or "")
    if state.state == "foreign":
        raise SchemaMismatch(
            f"the version table holds {state.revision!r}, which is not a revision of lastlight-state; "
            "if the tables are ours, `lastlight-state stamp --to REVISION` corrects it"
        )
    if state.unfinished_copy:
        problem = "unfinished copy: a copy into this database was begun and has not ended"
        raise SchemaMismatch(problem, code="unfinished_copy")


def refuse_foreign(backend: Backend) -> None:
    """Raise for tables without a version, unless they are the original program's and `migrate` takes them over.

    Imported here because it needs Alembic, and a current database is opened without.
    """
    from lastlight_state.migrations import adoption  # noqa: PLC0415
    from lastlight_state.migrations.adoption import survey  # noqa: PLC0415

    found = survey.look(backend)
    if found is None or found.differences:
        raise adoption.refusal(found, drift.recognised(backend))


def remedy(backend: Backend) -> str:
    """The command that brings the database to the newest revision, to be pasted as it stands.

    A URL with a password is left out: the command takes it from ``LASTLIGHT_STATE_URL``, or from ``--url-file``.
    """
    words = ["lastlight-state", "migrate"]
    if HIDDEN not in backend.location:
        words += ["--url", backend.location]
    if backend.schema:
        words += ["--schema", backend.schema]
    return shlex.join(words)
