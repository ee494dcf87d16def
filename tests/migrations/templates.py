"""Databases at each revision, migrated once and copied for the tests that begin there."""

from __future__ import annotations

import shutil
from pathlib import Path

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.migrations import migrate, scripts
from lastlight_state.testing.postgres import ThrowawayPostgres

HEAD = scripts.head()


class SqliteTemplates:
    """Migrated files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, revision: str | None, place: Path) -> str:
        """The URL of ``place``, where a file at the revision is now; None: nothing."""
        if revision is not None:
            file = self._folder / revision
            if not file.exists():
                _migrate(str(file), revision)
            shutil.copyfile(file, place)
        return f"sqlite:///{place}"


class PostgresTemplates:
    """Migrated databases. `drop` removes them."""

    def __init__(self, server: ThrowawayPostgres) -> None:
        self._server = server
        self._made: dict[str, str] = {}

    def copy(self, revision: str | None) -> str:
        """The URL of a new database at the revision; None: an empty one."""
        if revision is None:
            return self._server.create_database()
        if revision not in self._made:
            url = self._server.create_database()
            _migrate(url, revision)
            self._made[revision] = url
        return self._server.create_database(template=self._made[revision])

    def remove(self, url: str) -> None:
        self._server.drop_database(url)

    def drop(self) -> None:
        for url in self._made.values():
            self._server.drop_database(url)


def _migrate(url: str, revision: str) -> None:
    backend = open_backend(url, Options())
    migrate(backend, revision)
    backend.close()
