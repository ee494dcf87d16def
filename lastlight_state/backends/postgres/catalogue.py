"""The catalogue of the current schema of a Postgres database, from its system tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from lastlight_state.backends.facts import Catalogue, Entry, Form, Malformed, squeeze_sql
from lastlight_state.backends.sql.expressions import quote_name

# Postgres databases with the original program's tables. The server enforces types, keys and checks, so rows are sound.

_UNIQUES = """
    SELECT n.conname FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
    WHERE n.contype = 'u' AND c.relname = %s AND c.relnamespace =
        (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"""


class PostgresOriginal:
    """A `lastlight_state.backends.facts.Original` on a driver connection that is inside a transaction."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @contextmanager
    def time_limit(self) -> Iterator[None]:
        yield  # the server's ``statement_timeout`` applies

    def displacing_objects(self, tables: Collection[str]) -> list[str]:
        return []  # other objects in a server's database are its owner's business

    def unknown_triggers(self, tables: Collection[str], known: Collection[Entry]) -> list[str]:
        return []

    def damages(self) -> list[str]:
        return []

    def orphans(self) -> list[str]:
        return []

    def malformed_values(self, table: str, key: Sequence[str], column: str, form: Form) -> Malformed:
        return Malformed(0, ())

    def repair(self, table: str, column: str, form: Form) -> None:
        pass

    def loosen(self, table: str) -> int:
        for (name,) in self._driver.execute(_UNIQUES, (table,)).fetchall():
            self._driver.execute(f"ALTER TABLE {quote_name(table)} DROP CONSTRAINT {quote_name(name)}")
        return int(self._driver.execute(f"SELECT count(*) FROM {quote_name(table)}").fetchone()[0])


_HERE = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"

#: Ordinary and partitioned tables. Partitions, and what they inherit, count as parts of their table.
_TABLE = f"c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = {_HERE}"
#: A partitioned table has no storage parameters of its own, so those of its first partition are taken.
_OPTIONS = """
    coalesce(c.reloptions, (SELECT p.reloptions FROM pg_inherits h JOIN pg_class p ON p.oid = h.inhrelid
        WHERE h.inhparent = c.oid AND c.relkind = 'p' ORDER BY p.oid LIMIT 1))::text"""

_QUERIES = {
    "column": f"""
        SELECT c.relname, a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
            (SELECT 'COLLATE ' || l.collname FROM pg_collation l
                WHERE l.oid = a.attcollation AND l.collname <> 'default'),
            CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid),
            'identity ' || nullif(a.attidentity::text, ''), 'generated ' || nullif(a.attgenerated::text, ''))
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND {_TABLE}
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attnum > 0 AND NOT a.attisdropped""",
    "order": f"""
        SELECT c.relname, '', string_agg(a.attname, ', ' ORDER BY a.attnum)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND {_TABLE}
        WHERE a.attnum > 0 AND NOT a.attisdropped GROUP BY 1""",
    "table": f"""
        SELECT c.relname, '', concat_ws(' ', coalesce(obj_description(c.oid, 'pg_class'), ''), {_OPTIONS})
        FROM pg_class c WHERE {_TABLE}""",
    "constraint": f"""
        SELECT c.relname, n.conname,
            pg_get_constraintdef(n.oid) || CASE WHEN n.convalidated THEN '' ELSE ' NOT VALID' END
        FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
        WHERE n.connamespace = {_HERE} AND n.conparentid = 0 AND NOT c.relispartition AND n.contype <> 'n'""",
    "index": f"""
        SELECT t.relname, c.relname,
            replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')
                || CASE WHEN i.indisvalid THEN '' ELSE ' INVALID' END
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
        WHERE c.relnamespace = {_HERE} AND NOT t.relispartition""",
    "trigger": f"""
        SELECT c.relname, t.tgname,
            pg_get_triggerdef(t.oid) || CASE WHEN t.tgenabled IN ('O', 'A') THEN '' ELSE ' DISABLED' END
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE NOT t.tgisinternal AND NOT c.relispartition AND c.relnamespace = {_HERE}""",
    "function": f"""
        SELECT p.proname, pg_get_function_identity_arguments(p.oid),
            concat_ws(' ', pg_get_function_result(p.oid), l.lanname, array_to_string(p.proconfig, ' '), p.prosrc)
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = {_HERE}""",
    "view": "SELECT viewname, '', definition FROM pg_views WHERE schemaname = current_schema()",
    "enum": f"""
        SELECT t.typname, '', string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
        FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = {_HERE} GROUP BY 1""",
}


#: Constraints are named by their columns, without their indexes. Functions are without their settings, which depend on
#: who created them.
_SHAPES = {
    **{kind: _QUERIES[kind] for kind in ("column", "trigger", "view", "enum")},
    "function": f"""
        SELECT p.proname, pg_get_function_identity_arguments(p.oid),
            concat_ws(' ', pg_get_function_result(p.oid), l.lanname, p.prosrc)
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = {_HERE}""",
    "table": f"SELECT c.relname, '', '' FROM pg_class c WHERE {_TABLE}",
    "key": f"""
        SELECT c.relname, '', substring(pg_get_constraintdef(n.oid) FROM '\\((.*)\\)')
        FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
        WHERE n.connamespace = {_HERE} AND n.contype = 'p' AND NOT c.relispartition""",
    "constraint": f"""
        SELECT c.relname, CASE n.contype WHEN 'u' THEN 'unique' WHEN 'f' THEN 'foreign key' ELSE n.conname END ||
            coalesce((SELECT ' (' || string_agg(a.attname, ', ' ORDER BY a.attname) || ')' FROM pg_attribute a
                WHERE a.attrelid = n.conrelid AND a.attnum = ANY (n.conkey) AND n.contype IN ('u', 'f')), ''),
            pg_get_constraintdef(n.oid) || CASE WHEN n.convalidated THEN '' ELSE ' NOT VALID' END
        FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
        WHERE n.connamespace = {_HERE} AND n.conparentid = 0 AND NOT c.relispartition
            AND n.contype NOT IN ('n', 'p')""",
    "index": f"""{_QUERIES["index"]}
        AND NOT EXISTS (
            SELECT 1 FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.contype IN ('p', 'u', 'x'))""",
}


def catalogue_of(driver: Any) -> Catalogue:
    """Return a description of every object in the current schema.

    The schema's own name is left out of the definitions.
    """
    return _read(driver, _QUERIES)


def shape_of(driver: Any) -> Catalogue:
    """Describe the tables of the current schema, without comments, storage settings and names of constraints."""
    return _read(driver, _SHAPES)


def _read(driver: Any, queries: Mapping[str, str]) -> Catalogue:
    schema, quoted = driver.execute("SELECT current_schema(), quote_ident(current_schema())").fetchone()
    found: dict[Entry, str] = {}
    for kind, query in queries.items():
        for table, name, definition in driver.execute(query).fetchall():
            text = (
                squeeze_sql(definition).replace(f"{quoted}.", "").replace(f"search_path={quoted}", "search_path=schema")
            )
            found[kind, table, name] = text.replace(f"search_path={schema}", "search_path=schema")
    return found
