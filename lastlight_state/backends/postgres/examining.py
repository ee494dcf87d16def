"""What Postgres knows to be incomplete (indexes whose making failed, unchecked constraints), and its vacuum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from lastlight_state.backends.postgres.errors import translate
from lastlight_state.backends.postgres.pool import await_answers
from lastlight_state.backends.sql.quoting import quoted
from lastlight_state.errors import BackendUnavailable

_INVALID = """
    SELECT 'index ' || c.relname || ' is not valid: drop and make it again'
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT i.indisvalid AND n.nspname = coalesce(%(schema)s, current_schema())
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


def examined(driver: Any, schema: str | None) -> list[str]:
    """The invalid indexes and unvalidated constraints of the schema."""
    return [str(row[0]) for row in driver.execute(_INVALID, {"schema": schema}).fetchall()]


def vacuumed(backend: Any, checkout: Any, tables: Sequence[str], *, analyze: bool, full: bool) -> None:
    """Vacuum these tables and no others. It may take as long as it takes: no statement timeout is in force.

    Raises `BackendUnavailable` ``permission`` for tables that the role may not vacuum, after the others.
    """
    schema = f"{quoted(backend.schema)}." if backend.schema else ""
    options = f"ANALYZE {str(analyze).lower()}, FULL {str(full).lower()}"
    driver = checkout.driver
    try:
        driver.execute("SET statement_timeout = 0")
        await_answers(driver, None)
        with _warnings(driver) as warnings:
            driver.execute(f"VACUUM ({options}) {', '.join(schema + quoted(table) for table in tables)}")
    except psycopg.Error as error:
        raise translate(error) from error
    # Of a table that it skips the server only warns, in its own language; it warns of other things, too.
    if warnings and driver.execute(_NOT_OURS, {"schema": backend.schema, "tables": list(tables)}).fetchone():
        raise BackendUnavailable(f"the role lacks a right that this call needs: {warnings[0]}", reason="permission")


@contextmanager
def _warnings(driver: Any) -> Iterator[list[str]]:
    """What the server warns of meanwhile. The statement timeout is the usual one afterwards."""
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
