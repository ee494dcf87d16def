"""Connections to Postgres: creates the library's own connections, and prepares a caller's connection for a unit."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from math import ceil
from typing import Any, Self, cast

import psycopg
from psycopg.abc import Loader
from psycopg.pq import Format
from psycopg.types.json import set_json_loads
from sqlalchemy import ColumnElement, DateTime, Text, cast as sql_cast, create_engine, event, func
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, SQLAlchemyError, TimeoutError as PoolTimeout
from sqlalchemy.pool import NullPool

from lastlight_state import codec, metrics
from lastlight_state.backends import urls
from lastlight_state.backends.base import Backend, Checkout, Mode, Options
from lastlight_state.backends.host_connections import hear
from lastlight_state.backends.postgres.driver import pooler_forgotten, set_to_read_met, standby_met, translate
from lastlight_state.backends.postgres.pool import AnsweredConnection, await_answers, is_alive, socket_of
from lastlight_state.backends.waiting import all_in_use, shorter_wait
from lastlight_state.errors import (
    InvalidValue,
    MisuseError,
    NotSupported,
    ReadOnlyTransaction,
    StateError,
)

# A caller's asynchronous connection of psycopg, used like the synchronous one.
#
# SQLAlchemy runs synchronous code in a greenlet of the event loop. A connection of its asynchronous engines awaits a
# coroutine from there by ``run_async``.

Run = Callable[[Callable[[Any], Awaitable[Any]]], Any]


_PLACE = (
    "SELECT format('%s of the server that started at %s', current_database(),"
    " extract(epoch FROM pg_postmaster_start_time()))"
)


def join_caller(connection: Connection, checkout: Checkout) -> None:
    """Put the checkout on a caller's connection, with our settings. Raises `MisuseError` for one in AUTOCOMMIT."""
    attach_caller(connection, checkout)
    if checkout.driver.autocommit and not checkout.backend.alive(checkout):
        raise MisuseError("connection= commits each statement by itself: its isolation level must not be AUTOCOMMIT")
    borrow(checkout, connection)


def places(checkout: Checkout, backend: Backend, engine: Engine | None) -> tuple[str, str]:
    """Return two identities: of the database to which a caller's checkout is connected, and of the backend's database.

    A connection of ``engine`` counts as the backend's own. A server is identified by its start time, which every role
    may read.
    """
    theirs = str(checkout.driver.execute(_PLACE).fetchone()[0])
    if engine is not None and checkout.owner is not None and checkout.owner._pool is engine.pool:
        return theirs, theirs
    with Checkout(Mode.READ, backend) as own:
        return theirs, str(own.driver.execute(_PLACE).fetchone()[0])


def attach_caller(connection: Connection, checkout: Checkout) -> None:
    """Put the checkout on a caller's connection, unchanged. Its statements are logged like the backend's own."""
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.is_async:
        driver = AwaitedConnection(driver)
    checkout.joined, checkout.is_awaited = True, connection.dialect.is_async
    checkout.attach(driver, connection.connection)


class AwaitedConnection:
    """The driver's connection that lies below a connection of SQLAlchemy's asynchronous engine."""

    def __init__(self, adapted: Any) -> None:
        self._run: Run = adapted.run_async
        self._raw = adapted.driver_connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def execute(self, sql: Any, params: Any = None) -> _Cursor:
        return _Cursor(self._run, self._run(lambda raw: raw.execute(sql, params)))

    def cursor(self) -> _Cursor:
        return _Cursor(self._run, self._raw.cursor())


class _Cursor:
    def __init__(self, run: Run, cursor: Any) -> None:
        self._run = run
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def fetchall(self) -> Any:
        return self._run(lambda _: self._cursor.fetchall())

    def fetchone(self) -> Any:
        return self._run(lambda _: self._cursor.fetchone())

    def copy(self, sql: Any) -> _Copy:
        return _Copy(self._run, self._cursor.copy(sql))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(lambda _: self._cursor.close())


class _Copy:
    def __init__(self, run: Run, block: Any) -> None:
        self._run = run
        self._block = block
        self._copy: Any = None

    def write(self, rows: str) -> None:
        self._run(lambda _: self._copy.write(rows))

    def __enter__(self) -> Self:
        self._copy = self._run(lambda _: self._block.__aenter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._run(lambda _: self._block.__aexit__(*raised))


OLDEST = 140_000
_READS = "default_transaction_read_only"
#: The version strings of Postgres itself, and of builds that add to them: ``18.1``, ``17beta2``, ``15.18 (Debian
#: 15…)``.
_POSTGRES = re.compile(r"\d+(\.\d+)*(devel|beta\d+|rc\d+)?( \(.*\))?")
#: Servers that speak the protocol, with the feature that each lacks for this library.
_UNSUITED = {
    "CockroachDB": "lacks the triggers that guard rows (UPDATE OF, TRUNCATE)",
    "YugabyteDB": "reads what was committed only where yb_enable_read_committed_isolation is set, and was not tried",
}
#: The type's OID, the same on every server.
_JSONB = 3802
_FORMATS = (Format.TEXT, Format.BINARY)
#: Makes commits wait for the disk and for synchronous standbys, if the role's setting does not.
_FULL = (
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')"
)


def maker(url: URL, options: Options) -> Engine:
    """Return an engine that creates autocommit connections, which `Pool` keeps. Raises `InvalidValue`."""
    urls.refuse_special_files(url)
    full = options.durability == "full" and not options.read_only
    arguments: dict[str, Any] = {"application_name": url.query.get("application_name", "lastlight-state")}
    if options.pooler == "transaction":
        for name in ("statement_timeout", "lock_timeout"):
            if getattr(options, name) is not None:
                raise InvalidValue(name, "a transaction pooler keeps no settings of a session: set it for the role")
        if full:
            raise InvalidValue(
                "durability",
                "a transaction pooler keeps no settings of a session: set synchronous_commit for the role",
            )
        arguments["prepare_threshold"] = None
    else:
        arguments["options"] = " ".join(_server_settings(url, options))
    if "connect_timeout" not in url.query:  # otherwise the driver waits for more than two minutes
        arguments["connect_timeout"] = max(1, ceil(options.pool_timeout))
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
            json_deserializer=codec.decode_jsonb,
            use_native_hstore=False,
            connect_args={**arguments, **options.extra},
        )
    except ArgumentError:  # its text would name parts of the URL
        raise InvalidValue("url", "its hosts and ports cannot be read, or are not equally many") from None

    @event.listens_for(engine, "do_connect")
    def make_connection(_: Any, __: Any, arguments: Any, named: Any) -> Any:
        made = AnsweredConnection.connect(*arguments, **named)
        await_answers(made, options.statement_timeout)
        if full:
            try:
                made.autocommit = True
                made.execute(_FULL)
            except BaseException:
                made.close()
                raise
        return made

    return engine


def checked_out(engine: Engine) -> Any:
    """Return a live connection of a caller's engine. Raises `BackendUnavailable` if the engine provides none."""
    while True:
        try:
            owner = (
                engine.raw_connection() if metrics.waits is None else metrics.time_call("pool", engine.raw_connection)
            )
        except PoolTimeout as error:
            raise all_in_use() from error
        except psycopg.Error as error:
            raise translate(error) from error
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            raise translate(cause) from cause
        driver = owner.dbapi_connection
        if is_alive(driver, socket_of(driver)):
            return owner
        owner.invalidate()


def refusal_of(driver: Any, *, writes: bool) -> StateError | None:
    """Return the error if the server, by its last reported status, now refuses reads or writes; else None.

    The server reports each change without being queried. A primary that was set to read only still serves reads.
    """
    said = driver.pgconn.parameter_status
    if said(b"in_hot_standby") == b"on":
        return standby_met()
    return set_to_read_met() if writes and said(_READS.encode()) == b"on" else None


def misfit(info: Any, options: Options, *, ours: bool) -> StateError | None:
    """Return the error if what a server reported at connect makes it unusable with these options; else None.

    ``ours`` is true for a connection that was made with the library's session settings.
    """
    name = product(info)
    lacks = next((lacks for word, lacks in _UNSUITED.items() if word in name), None)
    if lacks is None and not name.startswith("PostgreSQL "):
        lacks = "nobody has tried"
    if lacks is not None and not options.any_server:
        return NotSupported(f"the server is {name}, which {lacks}; any_server=True uses it all the same")
    if info.server_version < OLDEST:
        return NotSupported(f"the server is {name}, older than PostgreSQL 14")
    if not options.read_only and info.parameter_status("in_hot_standby") == "on":
        return ReadOnlyTransaction(
            "the server only reads, because it is a standby: open with read_only=True, or connect to the primary"
        )
    zones = ("UTC", None, os.environ.get("PGTZ"))  # libpq sends PGTZ as well, and it takes precedence
    if ours and options.pooler is None and info.parameter_status("TimeZone") not in zones:
        return pooler_forgotten("the server did not keep the time zone that was set at connect")
    return None


def product(info: Any) -> str:
    """Return the server's product and version, as it reported them at connect.

    AlloyDB, Aurora and other products built on Postgres report the same as Postgres.
    """
    said = str(info.parameter_status("server_version"))
    cockroach = info.parameter_status("crdb_version")
    if cockroach:
        return str(cockroach.partition(" (")[0])
    if "-YB-" in said:
        return f"YugabyteDB {said.partition('-YB-')[2].partition(' ')[0]}"
    return f"PostgreSQL {said}" if _POSTGRES.fullmatch(said) else said


def borrow(checkout: Checkout, source: Engine | Connection) -> None:
    """Make a caller's connection decode JSON as the library does, whatever the caller's engine has set.

    The event listeners of ``source`` are called for the executed statements.
    """
    driver = checkout.driver
    checkout.before = driver.autocommit, [driver.adapters.get_loader(_JSONB, one) for one in _FORMATS]
    for loader in _json_loaders():
        driver.adapters.register_loader(_JSONB, loader)
    hear(checkout, source)


def give_back(checkout: Checkout) -> None:
    """Restore the settings of a caller's connection."""
    driver = checkout.driver
    autocommit, loaders = checkout.before
    for loader in loaders:
        driver.adapters.register_loader(_JSONB, loader)
    if driver.autocommit != autocommit:
        driver.autocommit = autocommit


@cache
def _json_loaders() -> list[type[Loader]]:
    adapters = psycopg.adapt.AdaptersMap(psycopg.adapters)
    set_json_loads(codec.decode_jsonb, adapters)
    return [cast("type[Loader]", adapters.get_loader(_JSONB, one)) for one in _FORMATS]


def _server_settings(url: URL, options: Options) -> Iterator[str]:
    yield str(url.query.get("options", ""))
    yield "-c timezone=UTC"
    if options.statement_timeout is not None:
        yield f"-c statement_timeout={int(options.statement_timeout * 1000)}"
    if options.lock_timeout is not None:
        yield f"-c lock_timeout={int(options.lock_timeout * 1000)}"


def as_text(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the column as text that does not depend on the session's settings. Times are written as in JSON."""
    kind = getattr(column.type, "impl_instance", column.type)
    return sql_cast(func.to_json(column) if isinstance(kind, DateTime) else column, Text)


BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def begins_with(checkout: Checkout, seconds: float, *, ours: bool) -> str | None:
    """Return the first statements of a unit: its BEGIN, if it has one, and a lock timeout until the deadline.

    ``seconds`` is the timeout without a deadline. On a caller's session, settings are changed only within a
    transaction.
    """
    mode, left = checkout.mode, shorter_wait(seconds)
    wait = None if left is None else f"lock_timeout = {max(1, int(left * 1000))}"
    if mode.begins:
        statement = BEGIN_WRITE if mode.writes else _BEGIN_SNAPSHOT
        return statement if wait is None else f"{statement}; SET LOCAL {wait}"
    if wait is None or not ours:
        return None
    checkout.hurries = True
    return f"SET {wait}"


def wait_as_usual(checkout: Checkout) -> None:
    """Restore the usual lock timeout of one of our sessions. If that fails, the connection is marked broken."""
    checkout.hurries = False
    try:
        checkout.driver.execute("RESET lock_timeout")
    except psycopg.Error:
        checkout.broken = True


def short_waits(seconds: float) -> str:
    """Return the statement that limits each wait for a lock in this transaction to these seconds."""
    return f"SET LOCAL lock_timeout = {int(seconds * 1000)}; SET LOCAL statement_timeout = 0"
