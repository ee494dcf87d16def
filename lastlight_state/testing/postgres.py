"""A real Postgres for tests, from any source that this machine has. No test is skipped because there is none.

The sources are tried in this order: ``url`` (the server that ``LASTLIGHT_TEST_POSTGRES_URL`` names), ``docker``,
``local`` (installed binaries), ``wheel`` (binaries of the ``test`` extra). ``LASTLIGHT_TEST_POSTGRES=wheel`` forces one
source. Several are separated by commas. The absolute path of a folder with ``initdb`` and ``postgres`` is a source,
too. If none works, the error lists every reason.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from sqlalchemy.engine import make_url

from lastlight_state import testing
from lastlight_state.errors import BackendUnavailable, InvalidValue, MisuseError, StateError
from lastlight_state.lazy import load
from lastlight_state.testing import server_sources

if TYPE_CHECKING:
    import psycopg

# One Postgres for a whole test run: started before the first test, named in the header, shared by xdist workers.

WORKER_KEY = "lastlight_postgres_url"


class SharedPostgres:
    """Pytest hooks of a run's main process. If its server cannot start, the run ends at once, with every reason."""

    def __init__(self) -> None:
        self.server: testing.ThrowawayPostgres | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not session.config.option.collectonly:
            try:
                self.server = testing.ThrowawayPostgres.start()
            except StateError as error:
                raise pytest.UsageError(str(error)) from error

    def pytest_report_header(self) -> str | None:
        return f"postgres: {self.server.origin}" if self.server else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if self.server:
            node.workerinput[WORKER_KEY] = self.server.url

    def pytest_unconfigure(self) -> None:
        if self.server:
            self.server.stop()


def shared_server(config: pytest.Config) -> testing.ThrowawayPostgres | None:
    """Return the server of the whole test run, in its main process or a worker. None if each process starts its own."""
    worker_input: dict[str, Any] = getattr(config, "workerinput", {})
    if WORKER_KEY in worker_input:
        return testing.ThrowawayPostgres(worker_input[WORKER_KEY])
    hooks = config.pluginmanager.get_plugin(SharedPostgres.__name__)
    return hooks.server if isinstance(hooks, SharedPostgres) else None


CHOICE_VARIABLE = "LASTLIGHT_TEST_POSTGRES"
#: Seconds to wait for a connection: a machine that is busy with tests may be slow to accept clients.
CONNECT_SECONDS = 30
#: Most tries to copy or drop a database that still has a client. The server waits five seconds for the client at each
#: try, and a machine that is busy with tests may need more.
_ATTEMPTS = 6
#: Query: may databases be copied file by file? Version 14 has no choice of strategies.
_COPIES_FILES = "SELECT current_setting('fsync') = 'off' AND current_setting('server_version_num')::int >= 150000"

WAYS: dict[str, Callable[[], server_sources.RunningServer]] = {
    "url": server_sources.from_url,
    "docker": server_sources.from_docker,
    "local": server_sources.from_installed,
    "wheel": server_sources.from_wheel,
}


class ThrowawayPostgres:
    """A Postgres server in which tests may create databases.

    ``url`` is its administrative database as ``postgresql+psycopg://...``, for SQLAlchemy. Without ``+psycopg`` it
    works for psycopg and libpq. ``origin`` describes, without a password, which server it is and how it was found. An
    object that is created from a URL only uses that server. `start` provides a server, and `stop` stops a server that
    was started.
    """

    def __init__(self, url: str, *, origin: str = "given", stop: Callable[[], None] = lambda: None) -> None:
        self.url = url
        self.origin = origin
        self._stop = stop

    @classmethod
    def start(cls) -> Self:
        """Start or find a server by the first source that works, and return it.

        Raises `BackendUnavailable` with the reason of each source, `InvalidValue` if the environment forces an unknown
        one, and `MisuseError` without the ``postgres`` extra.
        """
        _driver()
        reasons: list[str] = []
        for way in _ways():
            begin = time.perf_counter()
            try:
                served, version = _serve(way)
            except Exception as error:  # noqa: BLE001 whatever it is, it is the reason, and the next way is tried
                reasons.append(f"{way}: {_reason(error)}")
                continue
            seconds = time.perf_counter() - begin
            origin = f"{version} ({way}: {served.where}, {seconds:.1f} s)"
            return cls(served.url, origin=origin + _reasons_text(reasons), stop=served.stop)
        listed = "".join(f"\n  {reason}" for reason in reasons)
        raise BackendUnavailable(f"no PostgreSQL for the tests:{listed}", reasons=tuple(reasons))

    def stop(self) -> None:
        """Stop the server if `start` started it. May be called twice."""
        self._stop()

    def create_database(self, *, template: str | None = None) -> str:
        """Create a database, empty or as a copy of ``template``, and return its URL.

        ``template`` is the URL of a database of this server without open connections. Either takes 20 to 170 ms.
        """
        name = f"lastlight_test_{uuid.uuid4().hex[:12]}"
        statement = f"CREATE DATABASE {{}} TEMPLATE {{}} {self._strategy}"
        self._execute(statement, name, _database(template) if template else "template0")
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        """Drop a database that `create_database` created, and close every connection to it."""
        self._execute("DROP DATABASE {} WITH (FORCE)", _database(url))

    @contextmanager
    def database(self, *, template: str | None = None) -> Iterator[str]:
        """Yield the URL of a new database, which is dropped at the end of the block."""
        url = self.create_database(template=template)
        try:
            yield url
        finally:
            self.drop_database(url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @cached_property
    def _strategy(self) -> str:
        """Return the clause that makes copies fastest: copying files, if checkpoints need not reach the disk."""
        with connect(self.url) as connection:
            (copies_files,) = connection.execute(_COPIES_FILES).fetchone() or (False,)
        return "STRATEGY FILE_COPY" if copies_files else ""

    def _execute(self, statement: str, *names: str, attempts: int = _ATTEMPTS) -> None:
        driver = _driver()
        try:
            with connect(self.url) as connection:
                connection.execute(driver.sql.SQL(statement).format(*map(driver.sql.Identifier, names)))
        except driver.errors.ObjectInUse:
            if attempts == 1:
                raise
            self._execute(statement, *names, attempts=attempts - 1)


def connect(url: str) -> psycopg.Connection[Any]:
    """Open an autocommit connection of psycopg. The URL may have ``+psycopg`` or not."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection: psycopg.Connection[Any] = _driver().connect(plain, autocommit=True, connect_timeout=CONNECT_SECONDS)
    return connection


def _driver() -> Any:
    try:
        return load("psycopg")
    except ModuleNotFoundError as error:
        raise MisuseError.missing_extra("postgres", what="a Postgres for tests") from error


def _ways() -> list[str]:
    chosen = os.environ.get(CHOICE_VARIABLE)
    names = [name.strip() for name in chosen.split(",")] if chosen else list(WAYS)
    for name in names:
        if name not in WAYS and not name.startswith("/"):
            permitted = [*WAYS, "the absolute path of a folder with initdb and postgres"]
            raise InvalidValue(CHOICE_VARIABLE, f"{name!r} is not a way to a server", permitted=permitted)
    return names


def _serve(way: str) -> tuple[server_sources.RunningServer, str]:
    served = WAYS[way]() if way in WAYS else server_sources.from_folder(Path(way))
    try:
        with connect(served.url) as connection:
            (version,) = connection.execute("SELECT current_setting('server_version')").fetchone() or ("",)
    except BaseException:
        served.stop()
        raise
    return served, f"PostgreSQL {version}"


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, StateError) else f"{type(error).__name__}: {error}"


def _reasons_text(reasons: list[str]) -> str:
    short = "; ".join(reason.splitlines()[0][:100] for reason in reasons if " is not set" not in reason)
    return f" [tried {short}]" if short else ""


def _database(url: str) -> str:
    return make_url(url).database or ""
