"""What Postgres knows to be incomplete: indexes whose making failed, and constraints that were never checked."""

from __future__ import annotations

from typing import Any

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
