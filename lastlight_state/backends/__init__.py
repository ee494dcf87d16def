"""Choose the database backend by the URL's scheme.

Third parties register a backend as entry point ``lastlight_state.backends``. An entry point is named after its scheme
and refers to a callable ``(url, options, engine=None) -> Backend``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path

from sqlalchemy.engine import URL, Engine

from lastlight_state.backends import urls
from lastlight_state.backends.base import Backend, Options
from lastlight_state.errors import InvalidValue, MisuseError, NotSupported
from lastlight_state.lazy import load, run_imports
from lastlight_state.settings import DATABASE_FILE, Settings, stated_for_all

GROUP = "lastlight_state.backends"

#: The asynchronous drivers whose connections a store can join.
ASYNC_DRIVERS = {"sqlite": "aiosqlite", "postgresql": "psycopg"}

Opener = Callable[..., Backend]


def open_backend(url: str | Path, options: Options) -> Backend:
    """Return the backend for a URL or path. It is not yet connected.

    Raises `InvalidValue` with the known schemes if the scheme is unknown.
    """
    parsed = urls.parse(url)
    return _opener(urls.scheme(parsed))(parsed, options)


def backend_of_engine(engine: Engine, options: Options) -> Backend:
    """Return a backend that uses a caller's engine. The caller keeps ownership and must close the engine.

    Raises `NotSupported` or `InvalidValue`.
    """
    dialect = getattr(engine, "dialect", None)
    expected = urls.DRIVERS.get(getattr(dialect, "name", ""))
    if expected is not None and dialect is not None and (dialect.driver != expected or dialect.is_async):
        ways = urls.ways_beside(dialect.name, ASYNC_DRIVERS[dialect.name])
        raise NotSupported(
            f"engine= must use the driver {expected!r}, not {dialect.driver!r} or what is asynchronous: give one of"
            f" create_engine(), to AsyncStateStore too, or a URL; {ways}"
        )
    opener = _opener(dialect.name) if dialect is not None else None
    if opener is None or not isinstance(engine, Engine):
        raise InvalidValue("engine", f"expected an Engine of create_engine(), got {type(engine).__name__}")
    return opener(engine.url, options, engine=engine)


def connect(settings: Settings, engine: Engine | None = None, *, glance: bool = False) -> Backend:
    """Return the backend that the settings name. It is not yet connected, and its schema is not yet checked.

    ``glance`` with ``read_only`` is for a single read that leaves no files behind. Afterwards, `Backend.is_disturbed`
    is true if the read must be repeated.
    """
    options = _options(settings, glance=glance)
    if engine is not None:
        return backend_of_engine(engine, options)
    return open_backend(settings.url or settings.state_dir / DATABASE_FILE, options)


def replica_url(settings: Settings, primary: Backend) -> URL | None:
    """Return the URL of the replica, or None if no replica is set.

    Raises `InvalidValue` if this database cannot have a replica.
    """
    given = settings.replica
    if given is None or (primary.name == "sqlite" and stated_for_all("REPLICA", given)):
        return None
    url = urls.parse(given)
    if primary.name != "postgresql" or urls.driver(url) != "psycopg":
        raise InvalidValue("replica", "must be the URL of a Postgres server that follows the store's own")
    return url


def connect_replica(
    settings: Settings, primary: Backend, engine: Engine | None, after_commits: list[Callable[[], object]]
) -> Backend:
    """Return a backend for reads only: on the replica if there is one, else on the primary. It is not yet connected.

    The backend may add callbacks to ``after_commits``, which must be called after each commit of the store of
    ``primary``.
    """
    url = replica_url(settings, primary)
    if url is None and primary.borrows:
        return primary.beside(str(primary.schema), read_only=True)
    if url is None:
        if engine is None and primary.location == "sqlite:///:memory:":
            raise MisuseError("a database in memory is its store's alone: nothing else can read it")
        return connect(settings.model_copy(update={"read_only": True}), engine)
    module = load("lastlight_state.backends.postgres.replica")
    backend = module.ReplicaBackend(url, _options(settings), primary, settings.max_staleness)
    after_commits.append(backend.required.wrote)
    found: Backend = backend
    return found


def _options(settings: Settings, *, glance: bool = False) -> Options:
    return Options(
        schema=settings.schema_name,
        read_only=settings.read_only,
        glance=glance,
        durability=settings.durability,
        journal_mode=settings.journal_mode,
        wal_autocheckpoint=settings.wal_autocheckpoint,
        sqlite_driver=settings.sqlite_driver,
        pool_size=settings.pool_size,
        pooler=settings.pooler,
        any_server=settings.any_server,
        statement_timeout=settings.statement_timeout,
        lock_timeout=settings.lock_timeout,
        busy_timeout=settings.busy_timeout,
        queue_timeout=settings.queue_timeout,
        pool_timeout=settings.pool_timeout,
        slow_statement=settings.slow_statement,
        named_by=settings.named_by(),
    )


def _open_sqlite(url: URL, options: Options, *, engine: Engine | None = None) -> Backend:
    if engine is None:
        _refuse_more_than_a_path(url)
    database = url.database or ":memory:"
    if options.schema is not None and stated_for_all("SCHEMA", options.schema):  # schemas exist on Postgres only
        options = replace(options, schema=None)
    if options.schema is not None:
        raise InvalidValue("schema", "SQLite has no schemas")
    backend: Backend = load("lastlight_state.backends.sqlite").SqliteBackend(database, options, engine=engine)
    return backend


def _refuse_more_than_a_path(url: URL) -> None:
    if url.host or url.username or url.password or url.port:
        raise InvalidValue("url", "a SQLite URL has three slashes before its path, four before an absolute one")
    if url.query:
        raise InvalidValue("url", f"a SQLite URL takes no options here: {', '.join(sorted(url.query))}")
    if urls.driver(url) != "pysqlite":
        ways = urls.ways_beside("sqlite", ASYNC_DRIVERS["sqlite"])
        raise InvalidValue("url", f"driver {urls.driver(url)!r}: only pysqlite is supported; {ways}")


def _open_postgres(url: URL, options: Options, *, engine: Engine | None = None) -> Backend:
    if urls.driver(url) != "psycopg":
        ways = urls.ways_beside("postgresql", ASYNC_DRIVERS["postgresql"])
        raise InvalidValue("url", f"driver {urls.driver(url)!r}: only psycopg is supported; {ways}")
    try:
        module = load("lastlight_state.backends.postgres")
    except ModuleNotFoundError as error:
        raise MisuseError.missing_extra("postgres", what="Postgres") from error
    backend: Backend = module.PostgresBackend(url, options, engine=engine)
    return backend


_BUILT_IN: dict[str, Opener] = {"sqlite": _open_sqlite, "postgresql": _open_postgres}


def _opener(scheme: str) -> Opener:
    if scheme in _BUILT_IN:
        load(f"sqlalchemy.dialects.{scheme}")  # SQLAlchemy would import it later, in any thread
        return _BUILT_IN[scheme]
    return run_imports(partial(_registered_opener, scheme))


def _registered_opener(scheme: str) -> Opener:
    registered = {point.name: point for point in entry_points(group=GROUP)}
    if scheme not in registered:
        known = sorted([*_BUILT_IN, "postgres", *registered])
        raise InvalidValue("url", f"unknown scheme {scheme!r}", permitted=known)
    opener: Opener = registered[scheme].load()
    return opener
