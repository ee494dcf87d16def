"""Compares a schema with what a revision promises, before that revision is recorded."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend
from lastlight_state.backends.facts import Catalogue
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import scripts
from lastlight_state.migrations.adoption import fit
from lastlight_state.migrations.adoption.blueprint import blueprints, without_version


@dataclass(frozen=True)
class Blueprint:
    """The shape of a schema at a revision, and at the newest one."""

    promised: Catalogue
    newest: Catalogue


def blueprint(backend: Backend, revision: str) -> Blueprint:
    """What the revisions up to this one make on that server, tried in a scratch schema or file."""
    promised, newest = blueprints(backend, revision, scripts.head())
    return Blueprint(promised, newest)


def compare(backend: Backend, connection: Connection, revision: str, expected: Blueprint) -> None:
    """Raise `SchemaMismatch` with every difference of the schema from the expected one of this revision."""
    found = without_version(backend.shape(connection))
    differences = [
        *fit.misfits(found, expected.promised),
        *fit.clashes(found, expected.promised, expected.newest),
    ]
    if differences:
        raise SchemaMismatch(
            f"the schema is not the one of revision {revision}; --force stamps it all the same:",
            differences=differences,
        )
