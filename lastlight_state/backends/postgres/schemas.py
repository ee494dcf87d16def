"""The schemas of a Postgres database: entering a schema, and backends of several schemas over the same connections.

Statements are compiled once for all schemas that share connections, with a placeholder for the schema. Each unit
replaces it by the name of its schema. So a further schema needs no memory for statements, and a session needs no search
path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

import psycopg

from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.postgres.citus import Citus
from lastlight_state.backends.postgres.driver import translate
from lastlight_state.backends.postgres.pool import await_answers
from lastlight_state.backends.postgres.vector_indexes import drop_statements
from lastlight_state.backends.schemas import Schemas
from lastlight_state.backends.sql.expressions import literal, quote_name
from lastlight_state.errors import Conflict, InvalidValue, NotSupported, StateError

#: The placeholder for the schema in the statements of backends that borrow connections. SQLAlchemy quotes it; no column
#: name of a user has spaces.
STAND_IN = "$ schema of the store $"
_QUOTED = quote_name(STAND_IN)

_WITH = """
    SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relname = %s AND c.relkind IN ('r', 'p')
        AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
    ORDER BY n.nspname
"""
_SIZES = """
    SELECT n.nspname, sum({size})::bigint FROM pg_namespace AS n JOIN pg_class AS c ON c.relnamespace = n.oid
    {also} WHERE n.nspname = ANY (%s) AND c.relkind IN ('r', 'p') GROUP BY n.nspname
"""
_SIZE = {"size": "pg_total_relation_size(c.oid)", "also": ""}
_DISTRIBUTED_SIZE = {
    "size": "CASE WHEN p.logicalrelid IS NULL THEN pg_total_relation_size(c.oid)"
    " ELSE citus_total_relation_size(c.oid) END",
    "also": "LEFT JOIN pg_dist_partition AS p ON p.logicalrelid = c.oid",
}
_HOLDS = """
    SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid)
        OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = n.oid)
        OR EXISTS (SELECT FROM pg_type WHERE typnamespace = n.oid)
    FROM pg_namespace AS n WHERE n.nspname = %s
"""
#: The errors that a transaction pooler causes for prepared statements, whatever the statement is.
_FORGOTTEN = (psycopg.errors.InvalidSqlStatementName, psycopg.errors.DuplicatePreparedStatement)
#: The number of other statements that a connection keeps prepared.
_PREPARED = 100
#: The SQLSTATEs for an object that others still refer to, and for an object of another kind with one of our names.
_NOT_OURS = ("2BP01", "42809")


class PostgresSchemas(Schemas):
    """The part of the backend that handles the schemas of its database."""

    name: str
    options: Options
    schema: str | None
    citus: Citus | None

    @property
    def schema_in_texts(self) -> str | None:
        return STAND_IN if self.borrows else self.options.schema

    def beside(self, schema: str, *, read_only: bool = False) -> Self:
        other = copy(self)
        other.__dict__.pop("key", None)
        other.options = replace(self.options, schema=schema, read_only=read_only or self.options.read_only)
        other.borrows = True
        return other

    def fill_in_schema(self, sql: str) -> str:
        """Replace the placeholder in a compiled statement by this backend's schema."""
        return sql.replace(_QUOTED, quote_name(self.schema)) if self.borrows and self.schema else sql

    def put_in_place(self, checkout: Checkout) -> None:
        """Make a checkout execute compiled statements in this backend's schema."""
        if self.borrows and self.schema:
            checkout.execute = _bind_schema(checkout.execute, quote_name(self.schema))

    def meet_server(self) -> None:
        self.meet(dict(self._query_rows("SELECT extname, extversion FROM pg_extension", ())))  # type: ignore[attr-defined]

    def schemas_with(self, table: str) -> Sequence[str]:
        return [str(name) for (name,) in self._query_rows(_WITH, (table,))]

    def sizes_of(self, schemas: Collection[str]) -> Mapping[str, int]:
        sizes = _SIZES.format(**(_SIZE if self.citus is None else _DISTRIBUTED_SIZE))
        found = self._query_rows(
            sizes, (list(schemas),), keeps=False
        )  # the server caches what it has read of each table
        return {str(name): int(size) for name, size in found if size is not None}  # None: all its tables were removed

    def rows_of(
        self, statements: Sequence[str], values: Mapping[str, Any]
    ) -> tuple[list[Any], Mapping[str, StateError]]:
        prepares = None if self.options.pooler is not None else True
        found: list[Any] = []
        failed: dict[str, StateError] = {}
        with Checkout(Mode.READ, self) as checkout:  # type: ignore[arg-type]
            driver = checkout.driver
            try:
                if prepares:
                    driver.prepared_max = max(driver.prepared_max or 0, _PREPARED + 2 * len(statements))
                    driver.execute("SET plan_cache_mode = force_generic_plan")
                for statement in statements:
                    try:
                        found += driver.execute(statement, values, prepare=prepares).fetchall()
                    except psycopg.Error as error:
                        if driver.closed or error.sqlstate is None or isinstance(error, _FORGOTTEN):
                            raise
                        failed[statement] = translate(error)
                if prepares:
                    driver.execute("RESET plan_cache_mode")
            except BaseException as error:
                checkout.broken = True
                if isinstance(error, psycopg.Error):
                    raise translate(error) from error
                raise
        return found, failed

    def is_empty(self) -> bool:
        return not any(holds for (holds,) in self._query_rows(_HOLDS, (self.schema,)))

    def drop_schema(self, connection: Any, kinds: Mapping[str, Collection[str]]) -> None:
        driver, home = connection.connection.dbapi_connection, quote_name(self.schema or "")
        try:
            for kind in ("view", "table", "function"):
                takes = "()" if kind == "function" else ""
                names = ", ".join(f"{home}.{quote_name(name)}{takes}" for name in sorted(kinds.get(kind, ())))
                if names:
                    driver.execute(f"DROP {kind.upper()} IF EXISTS {names} RESTRICT")
            for statement in drop_statements(driver, self.schema or ""):
                driver.execute(statement)
            driver.execute(f"DROP SCHEMA {home} RESTRICT")
        except psycopg.Error as error:
            if error.sqlstate not in _NOT_OURS:
                raise translate(error) from error
            found = (error.diag.message_detail or str(error)).splitlines()
            told = f"the schema {self.schema!r} holds, or is needed by, what is not this library's: {'; '.join(found)}"
            raise Conflict(told, code="not_ours", problems=tuple(found)) from error

    def move_schema(self, host: str, port: int) -> None:
        if self.citus is None:
            copies = self.command("copy", "--to", "URL")  # type: ignore[attr-defined]
            raise NotSupported(f"only Citus moves a schema to another server; to copy it there, run: {copies}")
        with Checkout(Mode.READ, self) as checkout:  # type: ignore[arg-type]
            try:
                checkout.driver.execute("SET statement_timeout = 0")
                await_answers(checkout.driver, None)
                moved = "SELECT citus_schema_move(%s::regnamespace, %s::text, %s::integer)"
                checkout.driver.execute(moved, (quote_name(self.schema or ""), host, port))
            except psycopg.Error as error:
                raise translate(error) from error
            finally:
                checkout.broken = True  # its session settings are no longer ours

    def _place(self) -> tuple[str, bool, str]:
        """Return the schema's name, whether the schema exists, and the database's name."""
        named = literal(self.schema) if self.schema else "current_schema()"
        [(schema, exists, database)] = self.peek(  # type: ignore[attr-defined]
            f"SELECT {named}, to_regnamespace(quote_ident({named})) IS NOT NULL, current_database()"
        ) or [(None, False, "")]
        return self._existing_schema(schema), exists, database

    def _existing_schema(self, schema: str | None) -> str:
        if schema is None:
            raise InvalidValue("schema", "the connection's search_path names no schema that exists")
        return schema

    def _current_schema(self, checkout: Checkout) -> str:
        return self._existing_schema(checkout.driver.execute("SELECT current_schema()").fetchone()[0])

    def _enter_schema(self, checkout: Checkout, schema: str) -> None:
        """Put the schema first in the search path. Create the schema if it does not exist.

        Functions keep this search path. Temporary tables come last in it, so that none of them hides a table of the
        library.
        """
        name = quote_name(schema)
        if checkout.driver.execute("SELECT to_regnamespace(%s)", (name,)).fetchone()[0] is None:
            checkout.driver.execute(f"CREATE SCHEMA {name}")
        checkout.driver.execute(f"SET LOCAL search_path TO {name}, pg_temp")

    def _query_rows(self, sql: str, values: Sequence[Any], *, keeps: bool = True) -> list[Any]:
        """Return the rows of a statement.

        With ``keeps=False``, close the connection afterwards, so that the server frees its caches.
        """
        with Checkout(Mode.READ, self) as checkout:  # type: ignore[arg-type]
            checkout.broken = not keeps
            try:
                found: list[Any] = checkout.driver.execute(sql, values).fetchall()
            except psycopg.Error as error:
                raise translate(error) from error
        return found


def _bind_schema(execute: Callable[..., Any], name: str) -> Callable[..., Any]:
    def execute_in_schema(sql: str, *values: Any, **options: Any) -> Any:
        return execute(sql.replace(_QUOTED, name), *values, **options)

    return execute_in_schema
