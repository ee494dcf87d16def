"""Size and settings of a Postgres database. Works for a role that may only SELECT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lastlight_state.backends.facts import Measures, TableSize

_TABLES = """
    SELECT c.relname, c.reltuples::bigint, coalesce(
        (SELECT sum(pg_total_relation_size(p.relid))::bigint FROM pg_partition_tree(c.oid) p),
        pg_total_relation_size(c.oid))
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname = coalesce(%s, current_schema()) AND c.relname = ANY (%s)
"""
_SETTINGS = ("default_transaction_isolation", "synchronous_commit", "TimeZone", "max_connections")
_USED = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


def measured(driver: Any, schema: str | None, tables: Sequence[str]) -> Measures:
    """The measures; ``size_bytes`` is that of the whole database, other schemas included."""
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
