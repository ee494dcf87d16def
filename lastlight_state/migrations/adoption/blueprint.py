"""The schema at a revision, found by applying the revisions up to it to an empty database."""

from __future__ import annotations

from lastlight_state.backends.base import Backend
from lastlight_state.backends.facts import Catalogue
from lastlight_state.db.base import VERSION_TABLE
from lastlight_state.migrations import apply


def blueprints(backend: Backend, *revisions: str) -> list[Catalogue]:
    """The shape of the schema at each of these revisions, which are given oldest first."""
    found = []
    with backend.scratch() as connection:
        for revision in revisions:
            apply.apply_revisions(connection, revision)
            found.append(without_version(backend.shape(connection)))
    return found


def without_version(catalogue: Catalogue) -> Catalogue:
    """The catalogue without the version table, which no revision makes."""
    return {entry: text for entry, text in catalogue.items() if entry[1] != VERSION_TABLE}
