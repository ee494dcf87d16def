"""Migrated databases for tests.

They are created once, then copied or emptied, so that each test takes a few milliseconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lastlight_state.backends import connect
from lastlight_state.backends.base import Backend
from lastlight_state.backends.sqlite.checkpoints import plain_connection
from lastlight_state.conversations.words import INVOCATION_KINDS, LAST_TYPE, SOURCE_KINDS
from lastlight_state.migrations import migrate
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.postgres import ThrowawayPostgres, connect as connect_postgres

#: Most tests that use one shared Postgres database before it is replaced.
MOST_USES = 300
KEPT = frozenset({"lastlight_meta", "maintenance_permits"})


class Database:
    """One migrated database for one test. Closing it closes the stores and connections that it opened."""

    def __init__(self, url: str, name: str, clock: FrozenClock, state_dir: Path) -> None:
        self.url = url
        self.name = name
        self.clock = clock
        self.state_dir = state_dir
        self._opened: list[Any] = []

    def open(self, **options: Any) -> StateStore:
        """Open a store on this database with the frozen clock. ``options`` are those of `StateStore.open`."""
        given = {"clock": self.clock, "state_dir": self.state_dir, **options}
        store = StateStore.open(self.url, **given)
        self._opened.append(store)
        return store

    def raw(self) -> Any:
        """Open a plain driver connection in autocommit mode, with ``execute(sql, params)``."""
        connection = plain_connection(self.url) if self.name == "sqlite" else connect_postgres(self.url)
        self._opened.append(connection)
        return connection

    def close(self) -> None:
        """Close all stores and connections that this object opened."""
        while self._opened:
            self._opened.pop().close()


class SqliteTemplate:
    """A migrated SQLite file that is copied for each test."""

    name = "sqlite"

    def __init__(self, folder: Path, migrations: Callable[[str], object] | None = None) -> None:
        """Create the file with this library's tables. Then call ``migrations``, if given, with the file's URL."""
        self._file = folder / "template.db"
        _migrate(f"sqlite:///{self._file}", migrations)

    @contextmanager
    def fresh(self, folder: Path, clock: FrozenClock) -> Iterator[Database]:
        """Yield a database that no other test uses."""
        file = folder / "lastlight.db"
        shutil.copyfile(self._file, file)
        file.chmod(0o600)
        database = Database(str(file), self.name, clock, folder)
        try:
            yield database
        finally:
            database.close()

    shared = fresh


class PostgresTemplate:
    """A migrated Postgres database. It is copied for tests that need their own, and emptied between all other tests."""

    name = "postgresql"

    def __init__(self, server: ThrowawayPostgres, migrations: Callable[[str], object] | None = None) -> None:
        """Create the database with this library's tables. Then call ``migrations``, if given, with its URL."""
        self._server = server
        self._template = server.create_database()
        self._has_others = migrations is not None
        _migrate(self._template, migrations)
        self._shared: str | None = None
        self._cleaner: Any = None
        self._uses = 0

    @contextmanager
    def fresh(self, folder: Path, clock: FrozenClock) -> Iterator[Database]:
        """Yield a database that no other test uses. This takes 40 to 170 ms."""
        with self._server.database(template=self._template) as url:
            database = Database(url, self.name, clock, folder)
            try:
                yield database
            finally:
                database.close()

    @contextmanager
    def shared(self, folder: Path, clock: FrozenClock) -> Iterator[Database]:
        """Yield the empty database that tests share (2 ms). If a service has tables in it, yield a new database."""
        if self._has_others:
            with self.fresh(folder, clock) as own:
                yield own
            return
        if self._shared is None:
            self._shared = self._server.create_database(template=self._template)
            self._cleaner = connect_postgres(self._shared)
        database = Database(self._shared, self.name, clock, folder)
        try:
            yield database
        finally:
            database.close()
            self._clean()

    def _clean(self) -> None:
        """Empty the shared database, or replace it.

        It is replaced after ANALYZE, because the statistics would change the next test's plans, and after many tests,
        because no vacuum frees deleted rows.
        """
        self._uses += 1
        if self._uses > MOST_USES or self._cleaner.execute(_ANALYZED).fetchone()[0]:
            self._drop_shared()
        else:
            empty_tables(self._cleaner)

    def _drop_shared(self) -> None:
        shared, self._shared, self._uses = self._shared, None, 0
        if shared is not None:
            self._cleaner.close()
            self._server.drop_database(shared)

    def drop(self) -> None:
        """Drop the databases that this object created."""
        self._drop_shared()
        self._server.drop_database(self._template)


def empty_tables(connection: Any) -> None:
    """Delete all rows of all tables in one round trip. Guard triggers allow this only under the permit ``reset``."""
    try:
        connection.execute(_EMPTY)
    except BaseException:
        connection.execute("ROLLBACK")
        raise


_ANALYZED = (
    "SELECT EXISTS (SELECT FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND reltuples >= 0)"
)
#: Drops the output tables that tests have defined.
_DROP_OUTPUTS = (
    "DO $drop$ DECLARE made text; BEGIN FOR made IN SELECT table_name FROM output_tables LOOP "
    "EXECUTE format('DROP TABLE IF EXISTS %I', made); END LOOP; END $drop$"
)


def _among(words: Collection[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


#: By table: the rows to delete from tables that a migration has filled, all but its own.
_ADDED = {
    "message_types": f"type_id > {LAST_TYPE}",
    "invocation_kinds": f"word NOT IN ({_among(INVOCATION_KINDS)})",
    "source_kinds": f"word NOT IN ({_among(SOURCE_KINDS)})",
}


def _delete_statement(table: str) -> str:
    return f'DELETE FROM "{table}" WHERE {_ADDED.get(table, "true")}'


_EMPTY = "; ".join(
    [
        "BEGIN",
        _DROP_OUTPUTS,
        "INSERT INTO maintenance_permits (receipt_id) VALUES ('reset')",
        *(_delete_statement(table.name) for table in reversed(METADATA.sorted_tables) if table.name not in KEPT),
        "DELETE FROM maintenance_permits",
        "COMMIT",
    ]
)


def _migrate(url: str, others: Callable[[str], object] | None) -> None:
    backend: Backend = connect(Settings(url=url))
    try:
        migrate(backend)
    finally:
        backend.close()
    if others is not None:
        others(url)
