"""Runs the tests of Postgres in a distributed schema of Citus: a plugin of pytest, which ``make citus`` loads.

Each database of a test is a copy of one that has the extension and an empty distributed schema, to which its
``search_path`` points. ``LASTLIGHT_TEST_CITUS`` is a folder with ``initdb`` and ``postgres`` that know the extension,
or the URL of a server. The server is coordinator and worker in one. With ``LASTLIGHT_TEST_CITUS_WORKERS`` there are so
many workers beside it, and each copy is made on every server: otherwise it would lack the shards.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from sqlalchemy import make_url
from support.migrations.templates import PostgresTemplates, migrate_to

from lastlight_state.testing import ThrowawayPostgres, databases
from lastlight_state.testing.postgres import CHOICE_VARIABLE, connect
from lastlight_state.testing.server import Binaries, LocalServer
from lastlight_state.testing.server_sources import URL_VARIABLE

VARIABLE = "LASTLIGHT_TEST_CITUS"
#: How many workers a cluster has, beside its coordinator, or nothing: one server is both. Needs a folder of programs.
WORKERS = "LASTLIGHT_TEST_CITUS_WORKERS"
#: The URLs of those workers, for the processes of a run.
_URLS = "LASTLIGHT_TEST_CITUS_WORKER_URLS"
BASE, SCHEMA = "lastlight_citus", "tests"
SETTINGS = ("shared_preload_libraries=citus", "max_prepared_transactions=200", "citus.node_conninfo=sslmode=prefer")
#: What each database needs, which a copy does not take along.
OF_DATABASES = {
    "search_path": SCHEMA,
    "citus.enable_schema_based_sharding": "on",
    "citus.enable_unsafe_triggers": "on",
}
#: What a test leaves that took a guard away and could not bring it back: Citus gives those of shards other names.
_LOST = "NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'cron_fires_status_word_new')"


def pytest_configure(config: pytest.Config) -> None:
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.exit(f"SKIPPED: {VARIABLE} names neither a folder of programs with Citus nor a server", returncode=0)
    if not hasattr(config, "workerinput"):
        config.add_cleanup(_start(given))
    ThrowawayPostgres.create_database = _create_database  # type: ignore[method-assign, assignment]
    ThrowawayPostgres.drop_database = _drop_database  # type: ignore[method-assign, assignment]
    analyzed = databases._ANALYZED.replace("'public'", "current_schema()")
    databases._ANALYZED = f"{analyzed} OR {_LOST}"
    for name, method in (("take", _take), ("give_back", _give_back), ("drop", _drop)):
        setattr(PostgresTemplates, name, method)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if mark := item.get_closest_marker("plain_postgres"):
            item.add_marker(pytest.mark.skip(reason=f"not in a distributed schema: {mark.args[0]}"))


def _start(given: str) -> Callable[[], None]:
    """Let the run use this server, with a database to copy, and return what ends it."""
    programs = None if "://" in given else Binaries(Path(given))
    workers = int(os.environ.get(WORKERS) or 0) if programs else 0
    servers = [LocalServer(programs, settings=SETTINGS) for _ in range(workers + 1)] if programs else []
    url, *others = [server.url for server in servers] or [given]
    os.environ |= {URL_VARIABLE: url, CHOICE_VARIABLE: "url", _URLS: " ".join(others)}
    places = [_begin(each, alone=bool(servers)) for each in (url, *others)]
    with connect(_of_base(url)) as connection:
        connection.execute("SELECT citus_set_coordinator_host(%s, %s)", places[0])
        for place in places[1:]:
            connection.execute("SELECT citus_add_node(%s, %s)", place)
        if not others:
            connection.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', true)", places[0])
        connection.execute(f"CREATE SCHEMA {SCHEMA}")

    def stop() -> None:
        for server in servers:
            server.stop()

    return stop


def _begin(url: str, *, alone: bool) -> tuple[str, int]:
    """Make the database to copy on a server, and return the host and port by which Citus connects to it."""
    with connect(url) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {BASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {BASE} TEMPLATE template0")
        _set(connection, BASE)
        host, port = connection.execute(
            "SELECT split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port')::int"
        ).fetchone() or ("", 0)
    with connect(_of_base(url)) as connection:
        connection.execute("CREATE EXTENSION citus")
        if alone:  # Citus also connects to itself, else by TCP
            connection.execute(sql.SQL("ALTER SYSTEM SET citus.local_hostname = {}").format(sql.Literal(host)))
            connection.execute("SELECT pg_reload_conf()")
    return host, port


def _of_base(url: str) -> str:
    return make_url(url).set(database=BASE).render_as_string(hide_password=False)


def _set(connection: Any, name: str) -> None:
    for setting, value in OF_DATABASES.items():
        text = "ALTER DATABASE {} SET {} = {}"
        connection.execute(sql.SQL(text).format(sql.Identifier(name), sql.SQL(setting), sql.Literal(value)))


def _place(url: str) -> object:
    made = make_url(url)
    return made.host, made.port, made.query


def _create_database(server: ThrowawayPostgres, *, template: str | None = None) -> str:
    if _place(server.url) != _place(os.environ[URL_VARIABLE]):  # a server that a test has started
        return _CREATE(server, template=template)
    name = f"lastlight_test_{uuid.uuid4().hex[:12]}"
    source = (make_url(template).database if template else None) or BASE
    for url in _all(server):
        _copy(url, source, name)
    return make_url(server.url).set(database=name).render_as_string(hide_password=False)


def _copy(url: str, source: str, name: str) -> None:
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with connect(url) as connection:  # Citus keeps connections of its own to each database
        connection.execute(allow.format(sql.Identifier(source), sql.SQL("false")))
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (source,))
        server = ThrowawayPostgres(url)
        server._execute(f"CREATE DATABASE {{}} TEMPLATE {{}} {server._strategy}", name, source)
        _set(connection, name)
        if source != BASE:
            connection.execute(allow.format(sql.Identifier(source), sql.SQL("true")))


def _drop_database(server: ThrowawayPostgres, url: str) -> None:
    for each in _all(server):
        _DROP(ThrowawayPostgres(each), url)


def _all(server: ThrowawayPostgres) -> list[str]:
    return [server.url, *os.environ.get(_URLS, "").split()]


_CREATE = ThrowawayPostgres.create_database
_DROP = ThrowawayPostgres.drop_database


def _take(self: PostgresTemplates, revision: str | None) -> str:
    """Return the URL of a copy of a database at the revision, or of an empty one for None: Citus refuses scripts."""
    if revision is None:
        return self._server.create_database()
    if revision not in self._scripts:
        self._scripts[revision] = self._server.create_database()
        migrate_to(self._scripts[revision], revision)
    return self._server.create_database(template=self._scripts[revision])


def _give_back(self: PostgresTemplates, url: str) -> None:
    """Drop a database that a test is done with: emptied of all schemas, it would lack those of Citus."""
    self._server.drop_database(url)


def _drop(self: PostgresTemplates) -> None:
    for url in self._scripts.values():
        self._server.drop_database(url)
