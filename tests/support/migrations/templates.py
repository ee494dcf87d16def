"""Databases at each revision, migrated once and copied for the tests that begin there."""

from __future__ import annotations

import shutil
from pathlib import Path

from psycopg import sql

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.migrations import migrate, script
from lastlight_state.testing.postgres import ThrowawayPostgres, connect


class SqliteTemplates:
    """Migrated files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def copy(self, revision: str | None, place: Path) -> str:
        """The URL of ``place``, where a file at the revision is now; None: nothing."""
        if revision is not None:
            file = self._folder / revision
            if not file.exists():
                migrate_to(str(file), revision)
            shutil.copyfile(file, place)
        return f"sqlite:///{place}"


class PostgresTemplates:
    """Databases that tests use one after the other: making one, and dropping it, costs more than most of the tests."""

    def __init__(self, server: ThrowawayPostgres) -> None:
        self._server = server
        self._idle: list[str] = []
        self._scripts: dict[str, str] = {}

    def take(self, revision: str | None) -> str:
        """The URL of a database at the revision; None: an empty one."""
        url = self._idle.pop() if self._idle else self._server.create_database()
        if revision is not None:
            if revision not in self._scripts:
                self._scripts[revision] = _script(url, revision)
            with connect(url) as connection:
                connection.execute(self._scripts[revision])
        return url

    def give_back(self, url: str) -> None:
        """Take a database that a test is done with, whatever is in it."""
        with connect(url) as connection:
            connection.execute(_HANG_UP)
            for (schema,) in connection.execute(_SCHEMAS).fetchall():
                connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
            connection.execute("CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")
        self._idle.append(url)

    def drop(self) -> None:
        for url in self._idle:
            self._server.drop_database(url)


_HANG_UP = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"


def _script(url: str, revision: str) -> str:
    """The upgrade as `test_script` proves it: executed as one text, it takes a quarter of the time."""
    backend = open_backend(url, Options())
    text = script(backend, revision)
    backend.close()
    assert text
    return text


def migrate_to(url: str, revision: str) -> None:
    """Migrate the database to the revision."""
    backend = open_backend(url, Options())
    migrate(backend, revision)
    backend.close()
