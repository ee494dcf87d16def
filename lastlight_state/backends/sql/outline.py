"""Asks for the outline of a schema, its tables, columns and guards, within a SELECT that reads something else."""

from __future__ import annotations

from collections.abc import Iterable

from lastlight_state.backends.facts import Entry

#: Columns of virtual tables and of tables of others are not asked for: that would load modules and read their schemas.
_SQLITE = (
    "(SELECT group_concat(entry, char(10)) FROM ("
    "SELECT type || char(9) || tbl_name || char(9) || name AS entry FROM sqlite_master "
    "WHERE type = 'trigger' AND tbl_name IN ({tables}) "
    "UNION ALL SELECT 'column' || char(9) || m.name || char(9) || c.name "
    "FROM sqlite_master AS m JOIN pragma_table_xinfo(m.name) AS c WHERE m.type = 'table' AND m.name IN ({tables})))"
)
#: A trigger that is switched off is not there; one that also fires on a replica is.
_POSTGRES = (
    "(WITH ours AS MATERIALIZED (SELECT oid, relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') "
    "AND relname IN ({tables}) AND relnamespace = "
    "(SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = {version}.tableoid)) "
    "SELECT string_agg(entry, chr(10)) FROM ("
    "SELECT 'trigger' || chr(9) || o.relname || chr(9) || t.tgname AS entry "
    "FROM ours AS o JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = o.oid "
    "WHERE NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') "
    "UNION ALL SELECT 'column' || chr(9) || o.relname || chr(9) || a.attname "
    "FROM ours AS o JOIN pg_catalog.pg_attribute AS a ON a.attrelid = o.oid "
    "WHERE a.attnum > 0 AND NOT a.attisdropped) AS entries)"
)
_PRODUCTS = {"sqlite": _SQLITE, "postgresql": _POSTGRES}


def outline(product: str, tables: Iterable[str], version: str) -> str:
    """An expression for the outline of these tables, in the schema of ``version``, a table of the SELECT's FROM.

    NULL for products of which nothing is known, and where none of the tables is there.
    """
    listed = ", ".join(f"'{table}'" for table in sorted(tables))
    return _PRODUCTS[product].format(tables=listed, version=version) if listed and product in _PRODUCTS else "NULL"


def entries(text: str | None) -> frozenset[Entry]:
    """What an outline names: columns and guards."""
    parts = (line.split("\t") for line in (text or "").split("\n"))
    return frozenset((part[0], part[1], part[2]) for part in parts if len(part) == 3)
