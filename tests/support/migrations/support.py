"""What the tests of the migrations share: a place for a database of either kind, not yet migrated."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from sqlalchemy import inspect
from sqlalchemy.engine import Connection

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.backends.facts import Catalogue
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.migrations import apply, scripts
from lastlight_state.testing.postgres import connect


class Closing(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closing)

#: Puts a run into a schema of revision 0001, with the history of one phase.
OLD_RUN = (
    "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, phase_history, started_at, updated_at"
    ") VALUES ('r', 'w', 't', 'p', '[{\"phase\": \"plan\", \"success\": true}]', '2026-02-03T12:00:00.000Z', "
    "'2026-02-03T12:00:00.000Z')"
)


class Place:
    """Where a database is, or will be. What was opened through it is closed with it.

    ``make`` gives the URL of a database at a revision, or of an empty place for None, another one at each call.
    ``give_back`` takes the URL when the place starts over.
    """

    def __init__(
        self, name: str, make: Callable[[str | None], str], give_back: Callable[[str], None] | None = None
    ) -> None:
        self.name = name
        self._make = make
        self._give_back = give_back
        self._url: str | None = None
        self._opened = ExitStack()

    @property
    def url(self) -> str:
        if self._url is None:
            self._url = self._make(None)
        return self._url

    @property
    def path(self) -> Path:
        """The file, on SQLite."""
        return Path(self.url.removeprefix("sqlite:///"))

    def at(self, revision: str = "head", **options: Any) -> Backend:
        """A backend on it, where there is a database at the revision now; it must not have been touched before."""
        assert self._url is None
        self._url = self._make(scripts.head() if revision == "head" else revision)
        return self.backend(**options)

    def backend(self, **options: Any) -> Backend:
        """A backend on it, which creates nothing by itself."""
        return self.opened(open_backend(self.url, Options(**options)))

    def opened(self, something: T) -> T:
        """Something to be closed with the place."""
        self._opened.push(lambda *_: something.close())
        return something

    def raw(self) -> Any:
        """A plain driver connection in autocommit; it sets no pragma and knows nothing of this library."""
        connection: Any = (
            sqlite3.connect(self.path, isolation_level=None) if self.name == "sqlite" else connect(self.url)
        )
        return self.opened(connection)

    def start_over(self) -> None:
        """Give the database back and be another place, where nothing is: `with_each` calls it before each value."""
        self.close()
        if self._give_back and self._url is not None:
            self._give_back(self._url)
        self._url = None

    def close(self) -> None:
        self._opened.close()


def tables(backend: Backend) -> set[str]:
    """The tables that the database has, the version table included."""
    with backend.migration(1) as connection:
        return set(inspect(connection).get_table_names())


def catalogue(backend: Backend) -> Catalogue:
    """What the database says about its schema, the version table left out."""
    with backend.migration(1) as connection:
        return without_version(backend.catalogue(connection))


def without_version(found: Catalogue) -> Catalogue:
    return {entry: text for entry, text in found.items() if VERSION_TABLE not in entry[1]}


def newest(backend: Backend) -> Catalogue:
    """What the database would say about the newest schema, made in a place of its own."""
    with backend.scratch() as connection:
        apply.apply_revisions(connection, scripts.head())
        return without_version(backend.catalogue(connection))


def with_connection(backend: Backend, work: Callable[[Connection], Any]) -> Any:
    """The result of ``work`` on a connection inside a transaction that commits."""
    with backend.migration(10) as connection:
        return work(connection)


def load(file: Path) -> ModuleType:
    """The module of a revision's file, as it is, imported under no name of the package."""
    spec = importlib.util.spec_from_file_location(f"revision_{file.stem}", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
