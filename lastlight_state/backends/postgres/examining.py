"""Checks of a Postgres database for invalid indexes and unvalidated constraints, and its vacuum."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy.dialects.postgresql.base import PGDialect

from lastlight_state import metrics
from lastlight_state.backends.facts import Measures, NamedLocks, TableSize
from lastlight_state.backends.host_connections import lock_number
from lastlight_state.backends.postgres.connections import BEGIN_WRITE
from lastlight_state.backends.postgres.driver import translate
from lastlight_state.backends.postgres.pool import AnsweredConnection, await_answers
from lastlight_state.backends.sql.expressions import literal, quote_name
from lastlight_state.backends.vector_indexes import PREFIX
from lastlight_state.errors import BackendUnavailable, InvalidValue, ReadOnlyTransaction, StateError

# Size and settings of a Postgres database. Works for a role that may only SELECT.

_TABLES = """
    SELECT c.relname, c.reltuples::bigint, coalesce(
        (SELECT sum(pg_total_relation_size(p.relid))::bigint FROM pg_partition_tree(c.oid) p),
        pg_total_relation_size(c.oid))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname = coalesce(%s, current_schema()) AND c.relname = ANY (%s)
"""
_SETTINGS = (
    "default_transaction_isolation",
    "default_transaction_read_only",
    "synchronous_commit",
    "TimeZone",
    "max_connections",
)
_USED = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


def read_measures(driver: Any, schema: str | None, tables: Sequence[str]) -> Measures:
    """Return the database's measures. ``size_bytes`` is the size of the whole database, including other schemas."""
    found = driver.execute(_TABLES, (schema, list(tables))).fetchall()
    settings = {name: _value(driver, f"SELECT current_setting('{name}')") for name in _SETTINGS}
    settings["max_connections"] = int(settings["max_connections"])
    return Measures(
        version=f"PostgreSQL {_value(driver, 'SHOW server_version')}",
        size_bytes=_value(driver, "SELECT pg_database_size(current_database())"),
        tables={name: TableSize(rows if rows >= 0 else None, size) for name, rows, size in found},
        settings={**settings, "connections_used": _value(driver, _USED)},
        clock=_value(driver, "SELECT clock_timestamp()"),
    )


def _value(driver: Any, sql: str) -> Any:
    return driver.execute(sql).fetchone()[0]


# Named locks: advisory locks of Postgres, held until the end of the transaction.

_LOCK = (
    "SELECT pg_advisory_xact_lock(hashtextextended("
    "'lastlight_state:' || coalesce(%s::text, current_schema()::text) || ':' || %s::text, 0))"
)


class PostgresLocks(NamedLocks):
    """The part of the backend that implements named locks."""

    schema: str | None
    locks_in_one_trip = psycopg.Pipeline.is_supported()

    def named_lock(self, checkout: Any, name: str) -> None:
        try:
            metrics.time_call("named", checkout.driver.execute, _LOCK, (self.schema, name))
        except psycopg.Error as error:
            raise translate(error) from error

    def execute_locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        return metrics.time_call("named", self._execute_locked, checkout, name, sql, parameters)

    def _execute_locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        driver = checkout.driver
        commits = driver.pgconn.transaction_status == TransactionStatus.IDLE
        with driver.pipeline():  # one snapshot per statement: the second sees the former holder's commit
            if commits:
                driver.execute(BEGIN_WRITE)
            driver.execute(_LOCK, (self.schema, name))
            cursor = checkout.execute(sql, parameters)
            if commits:
                driver.execute("COMMIT")
        return cursor


# A person's own query: Postgres itself refuses any statement that would write.
#
# It runs in a READ ONLY transaction as the query of a cursor. That can only be a SELECT, VALUES or WITH without
# changes. The protocol used takes one statement only. A savepoint undoes settings that the query may have changed.

_CURSOR = "lastlight_question"
#: Explains the cursor, which is what `ask` runs, and runs nothing. EXPLAIN by itself would accept other statements.
#: Sent with ``binary``, a protocol that takes one statement only.
_PLAN = f"EXPLAIN DECLARE {_CURSOR} CURSOR FOR "
#: Session locks outlive a rollback, and the connection is used again. The library's own locks all belong to
#: transactions.
_TAKE_BACK = "ROLLBACK TO SAVEPOINT lastlight_question; SELECT pg_advisory_unlock_all()"
_ENTER = (
    "; SELECT set_config('search_path', concat_ws(', ', {first}, nullif(current_setting('search_path'), '')), true)"
)
#: For a tenant: names that its schema lacks are not looked up in other schemas.
_ENTER_ALONE = "; SELECT set_config('search_path', {first} || ', pg_temp', true)"
#: Finds texts, quoted names, dollar-quoted texts, comments and casts, whose colons name nothing; then a name; then %.
_TOKENS = re.compile(
    r"""
    (?P<kept> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
            | --[^\n]* | /\*.*?\*/ | :: )
    | :(?P<name>[A-Za-z_]\w*)
    | (?P<percent>%)
    """,
    re.VERBOSE | re.DOTALL,
)
#: The SQLSTATEs of a write, of a change of the transaction's rights, and of a write in a WITH.
_UNBOUND = "08P01"
_READ_ONLY = frozenset({"25006", "25001", "0A000"})


def ask(
    driver: psycopg.Connection[Any],
    sql: str,
    params: Mapping[str, Any],
    limit: int,
    timeout: float,
    *,
    plan: bool,
    schema: str | None = None,
    alone: bool = False,
) -> tuple[list[str], list[Any]]:
    """Run the statement, or its ``plan``. Return the column names and at most ``limit`` rows.

    Names without a schema are looked up in ``schema`` first; with ``alone``, only there.
    """
    text = _TOKENS.sub(_translate_token, sql)
    usual = driver.answer_seconds if isinstance(driver, AnsweredConnection) else None
    try:
        driver.execute("SAVEPOINT lastlight_question")
        try:
            enter = _ENTER_ALONE if alone else _ENTER
            enters = "" if schema is None else enter.format(first=literal(quote_name(schema)))
            driver.execute(f"SET LOCAL statement_timeout = {max(1, int(timeout * 1000))}{enters}")
            await_answers(driver, timeout)
            with driver.cursor(binary=True) if plan else driver.cursor(_CURSOR) as cursor:
                cursor.execute(_PLAN + text if plan else text, dict(params))
                return [column.name for column in cursor.description or ()], cursor.fetchmany(limit)
        finally:
            if not driver.closed:
                driver.execute(_TAKE_BACK)
            if isinstance(driver, AnsweredConnection):
                driver.answer_seconds = usual
    except psycopg.Error as error:
        raise _refusal(error) from error
    except UnicodeEncodeError:
        raise InvalidValue("params", "must not contain a lone surrogate") from None
    except ValueError as error:  # raised by the JSON parser: the server stores larger numbers than it reads
        raise InvalidValue("value", str(error)) from None


def _translate_token(match: re.Match[str]) -> str:
    if match["name"]:
        return f"%({match['name']})s"
    return match[0].replace("%", "%%")


def _refusal(error: psycopg.Error) -> StateError:
    state = error.sqlstate or ""
    if state in _READ_ONLY:
        return ReadOnlyTransaction("a query may only read")
    if isinstance(error, psycopg.ProgrammingError) and not state:  # a parameter without a value
        return InvalidValue("params", str(error))
    if state == _UNBOUND or (state.startswith(("42", "22")) and state != "42501"):
        return InvalidValue("sql", str(error).splitlines()[0])
    return translate(error)


# SQL for administrators: an upgrade of a Postgres schema as a script, and the rights of a role.

RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

_preparer = PGDialect(paramstyle="named").identifier_preparer  # type: ignore[no-untyped-call]


def migration_script(body: str, schema: str, *, exists: bool, lock_timeout: float, ddl_wait: float) -> str:
    """Return the statements as a script that enters the schema and holds the migration lock, all in one transaction."""
    place = [] if exists else [f"CREATE SCHEMA {quote_name(schema)}"]
    before = [
        "BEGIN",
        f"SET LOCAL lock_timeout = {int(lock_timeout * 1000)}",
        f"SELECT pg_advisory_xact_lock({lock_number(schema, 'migration')})",
        f"SET LOCAL lock_timeout = {int(min(lock_timeout, ddl_wait) * 1000)}",
        *place,
        f"SET LOCAL search_path TO {quote_name(schema)}, pg_temp",
    ]
    return "".join(f"{statement};\n\n" for statement in before) + f"{body}\n\nCOMMIT;\n"


def grants(role: str, database: str, schema: str, rights: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the GRANT statements that give the role these rights on each table, and CONNECT and USAGE to reach them."""
    to, home = _preparer.quote(role), _preparer.quote(schema)
    yield f"GRANT CONNECT ON DATABASE {_preparer.quote(database)} TO {to}"
    yield f"GRANT USAGE ON SCHEMA {home} TO {to}"
    for right in RIGHTS:
        tables = [f"{home}.{_preparer.quote(table)}" for table, given in rights.items() if right in given]
        if tables:
            yield f"GRANT {right} ON\n    " + ",\n    ".join(tables) + f"\n    TO {to}"


_INVALID = """
    SELECT 'index ' || c.relname || ' is not valid: drop and make it again'
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT i.indisvalid AND n.nspname = coalesce(%(schema)s, current_schema())
        AND NOT starts_with(c.relname::text, %(vectors)s)
    UNION ALL
    SELECT 'constraint ' || k.conname || ' was not validated'
    FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace
    WHERE NOT k.convalidated AND n.nspname = coalesce(%(schema)s, current_schema())
    ORDER BY 1 LIMIT 50
"""
_NOT_OURS = """
    SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = coalesce(%(schema)s, current_schema()) AND c.relname = ANY(%(tables)s)
    AND NOT pg_has_role(c.relowner, 'USAGE') LIMIT 1
"""


def find_invalid_objects(driver: Any, schema: str | None) -> list[str]:
    """Return the invalid indexes and unvalidated constraints of the schema, but for indexes of embeddings."""
    return [str(row[0]) for row in driver.execute(_INVALID, {"schema": schema, "vectors": PREFIX}).fetchall()]


def vacuum_tables(backend: Any, checkout: Any, tables: Sequence[str], *, analyze: bool, full: bool) -> None:
    """Vacuum these tables and no others. No statement timeout applies while this runs.

    Raises `BackendUnavailable` ``permission`` for tables that the role may not vacuum, after vacuuming the others.
    """
    schema = f"{quote_name(backend.schema)}." if backend.schema else ""
    options = f"ANALYZE {str(analyze).lower()}, FULL {str(full).lower()}"
    driver = checkout.driver
    try:
        driver.execute("SET statement_timeout = 0")
        await_answers(driver, None)
        with _warnings(driver) as warnings:
            driver.execute(f"VACUUM ({options}) {', '.join(schema + quote_name(table) for table in tables)}")
    except psycopg.Error as error:
        raise translate(error) from error
    # The server only warns of a skipped table, in its own language; it also warns of other things.
    if warnings and driver.execute(_NOT_OURS, {"schema": backend.schema, "tables": list(tables)}).fetchone():
        raise BackendUnavailable(f"the role lacks a right that this call needs: {warnings[0]}", reason="permission")


@contextmanager
def _warnings(driver: Any) -> Iterator[list[str]]:
    """Collect the server's warnings during the block. No statement timeout applies inside the block.

    The usual timeout is restored afterwards.
    """
    found: list[str] = []

    def heard(notice: Any) -> None:
        if notice.severity_nonlocalized == "WARNING":
            found.append(notice.message_primary)

    driver.add_notice_handler(heard)
    try:
        yield found
    finally:
        driver.remove_notice_handler(heard)
        driver.execute("RESET statement_timeout")
