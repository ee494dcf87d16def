"""Postgres through psycopg 3: a pool of autocommit connections, with explicit BEGIN and COMMIT.

Connections are in autocommit mode, so a unit of one statement is one round trip, and returning a connection needs no
reset. Before a pooled connection is used, a check of its socket finds out if it has died. This costs a system call
instead of a round trip. If it dies later, the unit gets `BackendUnavailable`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import ColumnElement, Integer, Text, func
from sqlalchemy.dialects.postgresql import array
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import StaticPool

from lastlight_state.backends import urls, waiting
from lastlight_state.backends.base import Backend, Checkout, Mode, Options
from lastlight_state.backends.facts import Catalogue, Measures, Original
from lastlight_state.backends.host_connections import hear_own, lock_number
from lastlight_state.backends.joining import refuse_elsewhere
from lastlight_state.backends.postgres import examining
from lastlight_state.backends.postgres.bulk import Moving, copy_rows
from lastlight_state.backends.postgres.catalogue import PostgresOriginal, catalogue_of, shape_of
from lastlight_state.backends.postgres.citus import CitusPart
from lastlight_state.backends.postgres.connections import (
    BEGIN_WRITE,
    as_text,
    begins_with,
    borrow,
    checked_out,
    give_back,
    join_caller,
    maker,
    misfit,
    places,
    refusal_of,
    short_waits,
    wait_as_usual,
)
from lastlight_state.backends.postgres.driver import UNDEFINED, Dialect, fetch_rows, fetched_sets, translate
from lastlight_state.backends.postgres.examining import (
    PostgresLocks,
    find_invalid_objects,
    grants,
    migration_script,
    read_measures,
    vacuum_tables,
)
from lastlight_state.backends.postgres.pool import Pool, await_answers, cancel
from lastlight_state.backends.postgres.schemas import PostgresSchemas
from lastlight_state.backends.postgres.table_paths import TablePaths
from lastlight_state.backends.postgres.vector_indexes import PostgresVectorIndexes
from lastlight_state.backends.sql.expressions import quote_name
from lastlight_state.errors import (
    BackendBusy,
    BackendUnavailable,
    ReadOnlyTransaction,
    StateError,
)
from lastlight_state.unwinding import block

#: A statement that waits for a table's lock makes all later ones queue behind it, so it gives up soon.
DDL_WAIT_SECONDS = 5.0

#: The pause between two tries to take the lock of a migration.
_POLL_SECONDS = 0.05


class PostgresBackend(CitusPart, PostgresSchemas, PostgresVectorIndexes, Moving, TablePaths, PostgresLocks, Backend):
    """One database on a server, in one schema."""

    name = "postgresql"
    dialect = Dialect()  # type: ignore[no-untyped-call]
    driver_errors = (psycopg.Error,)
    migrates_on_open = False
    writes_definitions = True
    migration_lock = "an advisory lock of database and schema, and each altered table exclusively, for one transaction"
    writers = None
    writes_in_ctes = True
    one_writer = False
    large_values_in_rows = False
    bytes_in_binary = True
    failure_aborts_transaction = True
    vacuum = vacuum_tables

    def __init__(self, url: URL, options: Options, *, engine: Engine | None = None) -> None:
        self.options = options
        self.lock_seconds = options.lock_timeout or 0.0
        self.location = urls.masked_url(url.set(drivername="postgresql"))
        self._engine = engine if engine is not None else maker(url, options)
        self._pool = Pool(self._engine, options) if engine is None else None
        self._server_checked = False

    @property
    def engine(self) -> Engine:
        if self._pool is not None:
            self.tells = partial(hear_own, self._engine)
        return self._engine

    def acquire(self, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        if self.options.read_only and mode.writes:
            raise ReadOnlyTransaction("the store is open for reading only")
        checkout = checkout or Checkout(mode, self)
        self._lend(checkout)
        if mode.begins or waiting.of_thread.deadline is not None:
            try:
                beginning = begins_with(checkout, self.lock_seconds, ours=self._pool is not None)
                if beginning is not None:
                    checkout.driver.execute(beginning)
            except BaseException as error:
                checkout.broken = True
                self.release(checkout)
                if isinstance(error, psycopg.Error):
                    raise translate(error) from error
                raise
        return checkout

    def alive(self, checkout: Checkout) -> bool:
        driver = checkout.driver
        return driver is not None and bool(driver.pgconn.transaction_status == TransactionStatus.INTRANS)

    def commit(self, checkout: Checkout) -> None:
        try:
            checkout.driver.execute("COMMIT")
        except psycopg.Error as error:
            failure = translate(error)
            if isinstance(failure, BackendUnavailable):
                failure.outcome = "unknown"
            raise failure from error

    def rollback(self, checkout: Checkout) -> None:
        if checkout.driver is None:
            return
        status = checkout.driver.pgconn.transaction_status
        if status in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN):  # interrupted in the middle of a statement
            checkout.broken = True
        elif status != TransactionStatus.IDLE:
            try:
                checkout.driver.execute("ROLLBACK")
            except psycopg.Error:
                checkout.broken = True

    def release(self, checkout: Checkout) -> None:
        driver = checkout.driver
        if driver is not None and driver.pgconn.transaction_status != TransactionStatus.IDLE:
            checkout.broken = True
        elif checkout.hurries and not checkout.broken:
            wait_as_usual(checkout)
        if self._pool is not None:
            self._pool.give_back(checkout)
            return
        owner, checkout.owner = checkout.owner, None
        if owner is not None:
            if checkout.broken:
                cancel(checkout.driver)
                owner.invalidate()
            else:
                give_back(checkout)
                owner.close()

    def recover(self, checkout: Checkout) -> None:
        checkout.broken = True
        if self._pool is not None:
            self._pool.recover(checkout)
        else:
            self.release(checkout)

    def translate(self, error: Exception) -> StateError:
        return translate(error)

    def unit_error(self, checkout: Checkout, error: Exception) -> StateError:
        met = getattr(error, "sqlstate", None) == "25006" and checkout.mode.writes
        if met and (refusal := refusal_of(checkout.driver, writes=True)):
            checkout.broken = True
            return refusal
        return translate(error)

    def insert_rows(
        self, checkout: Checkout, table: str, sql: str, names: Sequence[str], blocks: Iterator[Sequence[Sequence[Any]]]
    ) -> None:
        into = quote_name(self.schema) + "." + quote_name(table) if self.schema else quote_name(table)
        copy_rows(checkout.driver, into, names, blocks)

    fetch_rows = staticmethod(fetch_rows)

    def connection(self, checkout: Checkout) -> Connection:
        connection = self._sqlalchemy_connection(checkout)
        return connection.execution_options(schema_translate_map={None: self.schema}) if self.schema else connection

    def join(self, connection: Connection, checkout: Checkout) -> None:
        self.refuse_foreign(connection)
        join_caller(connection, checkout)
        refuse_elsewhere(self, connection, checkout)
        self.put_in_place(checkout)

    def places(self, checkout: Checkout) -> tuple[str, str]:
        return places(checkout, self, None if self._pool else self._engine)

    def leave(self, checkout: Checkout) -> None:
        give_back(checkout)

    def pack_columns(self, columns: Sequence[ColumnElement[Any]]) -> ColumnElement[Any]:
        return array([as_text(column) for column in columns], type_=Text)

    def packed_size(self, packed: ColumnElement[Any]) -> ColumnElement[int]:
        return func.pg_column_size(packed, type_=Integer)

    def ask(
        self, checkout: Checkout, sql: str, params: Mapping[str, Any], *, limit: int, timeout: float, plan: bool = False
    ) -> tuple[list[str], list[Any]]:
        return examining.ask(
            checkout.driver, sql, params, limit, timeout, plan=plan, schema=self.schema, alone=self.borrows
        )

    def limit_ddl_waits(self, checkout: Checkout) -> None:
        try:
            checkout.driver.execute(short_waits(DDL_WAIT_SECONDS))
            await_answers(checkout.driver, None)
        except psycopg.Error as error:
            raise translate(error) from error

    @block
    def migration(self, lock_timeout: float, *, rebuilds: bool = False) -> Iterator[Connection]:
        deadline = time.monotonic() + lock_timeout
        while True:
            with Checkout(Mode.WRITE, self) as checkout:
                try:
                    schema = self.schema or self._current_schema(checkout)
                    if self._locks_migration(checkout, schema):
                        self._enter_schema(checkout, schema)
                        checkout.driver.execute(short_waits(min(lock_timeout, DDL_WAIT_SECONDS)))
                        # Alembic may take long
                        checkout.driver.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                        await_answers(checkout.driver, None)
                        connection = self._sqlalchemy_connection(checkout)
                        connection.begin()
                        yield connection
                        self.commit(checkout)
                        return
                    self.rollback(checkout)  # other callers use the connection during the pause
                except psycopg.Error as error:
                    raise translate(error) from error
            if time.monotonic() >= deadline:
                raise BackendBusy(f"another migration held the lock for longer than {lock_timeout:g} s", final=True)
            time.sleep(_POLL_SECONDS)

    @block
    def scratch(self) -> Iterator[Connection]:
        with Checkout(Mode.READ, self) as checkout:  # reading stores may try revisions too: nothing is kept
            try:
                checkout.driver.execute(BEGIN_WRITE)
                self._enter_schema(checkout, f"lastlight_scratch_{uuid4().hex}")
                connection = self._sqlalchemy_connection(checkout)
                connection.begin()
                yield connection
            except psycopg.Error as error:
                raise translate(error) from error
            finally:
                self.rollback(checkout)

    def as_script(self, body: str, lock_timeout: float) -> str:
        schema, exists, _ = self._place()
        return migration_script(body, schema, exists=exists, lock_timeout=lock_timeout, ddl_wait=DDL_WAIT_SECONDS)

    def grants(self, role: str, rights: Mapping[str, Sequence[str]]) -> Iterator[str]:
        schema, _, database = self._place()
        return grants(role, database, schema, rights)

    def peek(self, *selects: str) -> list[tuple[Any, ...]] | None:
        with Checkout(Mode.READ, self) as checkout:
            try:
                rows = fetched_sets(checkout.driver.execute("; ".join(selects), prepare=False))
            except psycopg.Error as error:
                if error.sqlstate in UNDEFINED:
                    return None
                raise translate(error) from error
        return rows

    def enter(self, checkout: Checkout) -> None:
        if self.schema is not None:
            checkout.driver.execute(f"SET LOCAL search_path TO {quote_name(self.schema)}, pg_temp")

    def original(self, connection: Connection) -> Original:
        return PostgresOriginal(connection.connection.dbapi_connection)

    def catalogue(self, connection: Connection) -> Catalogue:
        return catalogue_of(connection.connection.dbapi_connection)

    def shape(self, connection: Connection) -> Catalogue:
        return shape_of(connection.connection.dbapi_connection)

    def damages(self, checkout: Checkout, *, deep: bool) -> list[str]:
        try:
            return find_invalid_objects(checkout.driver, self.schema)
        except psycopg.Error as error:
            raise translate(error) from error

    def measures(self, checkout: Checkout, tables: Sequence[str]) -> Measures:
        try:
            return self.distributed_measures(checkout, read_measures(checkout.driver, self.schema, tables), tables)
        except psycopg.Error as error:
            raise translate(error) from error

    def detach_child(self) -> None:
        if self._pool is not None:
            self._pool.detach_child()

    def close(self) -> None:
        if self._pool is not None and not self.borrows:
            self._pool.close()

    def _lend(self, checkout: Checkout) -> None:
        if self._pool is not None:
            self._pool.take(checkout)
        else:
            owner = checked_out(self._engine)
            checkout.attach(owner.dbapi_connection, owner=owner)
            borrow(checkout, self._engine)
            checkout.driver.autocommit = True
        self.put_in_place(checkout)
        if not self._server_checked:
            self._check_server(checkout)
        if not self.options.read_only and (refusal := refusal_of(checkout.driver, writes=checkout.mode.writes)):
            checkout.broken = True
            self.release(checkout)
            raise refusal

    def _check_server(self, checkout: Checkout) -> None:
        refusal = misfit(checkout.driver.info, self.options, ours=self._pool is not None)
        if refusal is not None:
            self.release(checkout)
            raise refusal
        if self._pool is None and self.schema is None:  # now, because later a caller may hold its only connection
            self.learn_path(checkout.driver)
        self._server_checked = True

    def _sqlalchemy_connection(self, checkout: Checkout) -> Connection:
        """Return a SQLAlchemy connection over the checkout's driver connection."""
        if self._pool is None:
            return Connection(self._engine, connection=checkout.owner)
        lent = StaticPool(lambda: checkout.driver, reset_on_return=None).connect()
        return Connection(self._engine, connection=lent)

    def _locks_migration(self, checkout: Checkout, schema: str) -> bool:
        """Try to take the advisory lock, which the transaction then holds. Return False if another session has it."""
        number = lock_number(schema, "migration")
        return bool(checkout.driver.execute("SELECT pg_try_advisory_xact_lock(%s)", (number,)).fetchone()[0])
