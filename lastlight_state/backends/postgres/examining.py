"""What Postgres knows to be incomplete (indexes whose making failed, unchecked constraints), and its vacuum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from lastlight_state.backends.postgres.errors import translate
from lastlight_state.backends.sql.quoting import quoted

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


def examined(driver: Any, schema: str | None) -> list[str]:
    """The invalid indexes and unvalidated constraints of the schema."""
    return [str(row[0]) for row in driver.execute(_INVALID, {"schema": schema}).fetchall()]


def vacuumed(backend: Any, checkout: Any, tables: Sequence[str], *, analyze: bool, full: bool) -> None:
    """Vacuum these tables and no others. It may take as long as it takes: no statement timeout is in force."""
    schema = f"{quoted(backend.schema)}." if backend.schema else ""
    options = f"ANALYZE {str(analyze).lower()}, FULL {str(full).lower()}"
    driver = checkout.driver
    try:
        driver.execute("SET statement_timeout = 0")
        try:
            driver.execute(f"VACUUM ({options}) {', '.join(schema + quoted(table) for table in tables)}")
        finally:
            driver.execute("RESET statement_timeout")
    except psycopg.Error as error:
        raise translate(error) from error
