"""Runs the tests of Postgres in a distributed schema of Citus: a plugin of pytest, which ``make citus`` loads.

Each database of a test is a copy of one that has the extension and an empty distributed schema, to which its
``search_path`` points. The server is coordinator and worker in one, because only then a copy takes the shards along.
``LASTLIGHT_TEST_CITUS`` is a folder with ``initdb`` and ``postgres`` that know the extension, or the URL of a server.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from sqlalchemy import make_url

from lastlight_state.testing import ThrowawayPostgres, databases
from lastlight_state.testing.postgres import CHOICE_VARIABLE, connect
from lastlight_state.testing.server import Binaries, LocalServer
from lastlight_state.testing.server_sources import URL_VARIABLE

VARIABLE = "LASTLIGHT_TEST_CITUS"
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
    analyzed = databases._ANALYZED.replace("'public'", "current_schema()")
    databases._ANALYZED = f"{analyzed} OR {_LOST}"


def _start(given: str) -> Callable[[], None]:
    """Let the run use this server, with a database to copy, and return what ends it."""
    server = None if "://" in given else LocalServer(Binaries(Path(given)), settings=SETTINGS)
    url = server.url if server else given
    os.environ |= {URL_VARIABLE: url, CHOICE_VARIABLE: "url"}
    with connect(url) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {BASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {BASE} TEMPLATE template0")
        _set(connection, BASE)
        host, port = connection.execute(
            "SELECT split_part(current_setting('unix_socket_directories'), ',', 1), current_setting('port')::int"
        ).fetchone() or ("", 0)
    with connect(make_url(url).set(database=BASE).render_as_string(hide_password=False)) as connection:
        connection.execute("CREATE EXTENSION citus")
        if server:  # Citus also connects to itself, else by TCP
            connection.execute(sql.SQL("ALTER SYSTEM SET citus.local_hostname = {}").format(sql.Literal(host)))
            connection.execute("SELECT pg_reload_conf()")
        connection.execute("SELECT citus_set_coordinator_host(%s, %s)", (host, port))
        connection.execute("SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', true)", (host, port))
        connection.execute(f"CREATE SCHEMA {SCHEMA}")
    return server.stop if server else lambda: None


def _set(connection: Any, name: str) -> None:
    for setting, value in OF_DATABASES.items():
        text = "ALTER DATABASE {} SET {} = {}"
        connection.execute(sql.SQL(text).format(sql.Identifier(name), sql.SQL(setting), sql.Literal(value)))


def _create_database(server: ThrowawayPostgres, *, template: str | None = None) -> str:
    source = (make_url(template).database if template else None) or BASE
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
    with connect(server.url) as connection:  # Citus keeps a connection of its own to each database
        connection.execute(allow.format(sql.Identifier(source), sql.SQL("false")))
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (source,))
        url = _CREATE(server, template=make_url(server.url).set(database=source).render_as_string(hide_password=False))
        _set(connection, make_url(url).database or "")
        if source != BASE:
            connection.execute(allow.format(sql.Identifier(source), sql.SQL("true")))
    return url


_CREATE = ThrowawayPostgres.create_database
