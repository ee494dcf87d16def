"""SQL functions on single values that each product writes differently: rounding, times and parts of texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from lastlight_state.backends.facts import Entry
from lastlight_state.errors import NotSupported

# SQL assembled as text: quoted names, literals, and a condition that stops a script.
#
# An upgrade script runs without this program. So the script itself must stop if its query finds a row that forbids the
# upgrade.


def quote_name(name: str) -> str:
    """Return the name as a quoted identifier.

    SQLAlchemy's own quoting doubles ``%``, which is wrong in a statement without parameters.
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return the text as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


_TABLE = "lastlight_refusal"


def refusal(product: str, query: str, message: str) -> tuple[str, ...]:
    """Return statements that raise an error with ``message`` if ``query`` returns any row."""
    if product == "postgresql":
        raises = f"RAISE EXCEPTION USING ERRCODE = 'LL001', MESSAGE = {literal(message)}"
        return (f"DO $refusal$ BEGIN IF EXISTS ({query}) THEN {raises}; END IF; END $refusal$",)
    if product == "sqlite":  # SQLite can show our text only as the name of a failed constraint
        return (
            f"CREATE TEMP TABLE {_TABLE} (found INTEGER CONSTRAINT {quote_name(message)} CHECK (found IS NULL))",
            f"INSERT INTO temp.{_TABLE} SELECT 1 WHERE EXISTS ({query})",
            f"DROP TABLE temp.{_TABLE}",
        )
    raise NotSupported(f"a script for {product} cannot stop at a condition")


# Detection of statements that would begin or end a transaction.

_HINT = re.compile(r"\b(?:commit|rollback|end|abort|begin|start|prepare)\b", re.IGNORECASE)
#: Comments, texts and quoted names: a semicolon or keyword in them has no effect.
_OPAQUE = re.compile(
    r"""--[^\n]*|/\*.*?\*/|[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\w*)\$.*?\$\1\$""", re.DOTALL
)
_ENDING = re.compile(
    r"\W*(COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|PREPARE\s+TRANSACTION"
    r"|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))\b",
    re.IGNORECASE,
)
_BODY = re.compile(r"\bBEGIN\b", re.IGNORECASE)


def ending_word(sql: str) -> str | None:
    """Return the keyword by which SQL text would begin or end a transaction, such as COMMIT; None if there is none.

    Savepoints do neither. An END after a BEGIN in the text counts as the end of a trigger's or function's body.
    """
    if not _HINT.search(sql):
        return None
    in_body = False
    for statement in _OPAQUE.sub(" ", sql).split(";"):
        found = _ENDING.match(statement)
        if found and not (in_body and found[1].upper() == "END"):
            return " ".join(found[1].upper().split())
        in_body = in_body or bool(_BODY.search(statement))
    return None


# The original program's values, copied from its own columns to the columns that revision 0002 adds.
#
# The number of phases is the length of the history. That program kept a run's error in the run's context, where it also
# stays.

_ENDED = "status IN ('failed', 'cancelled') AND error IS NULL"

_SQLITE_PHASES = (
    "UPDATE workflow_runs SET phase_count = CASE WHEN typeof(phase_history) = 'text' AND json_valid(phase_history) "
    "THEN json_array_length(phase_history) ELSE 0 END WHERE phase_history <> '[]'"
)
_SQLITE_ERROR = (
    f"UPDATE workflow_runs SET error = json_extract(context, '$.error') WHERE {_ENDED} "
    "AND CASE WHEN typeof(context) = 'text' AND json_valid(context) "
    "THEN json_type(context, '$.error') = 'text' ELSE 0 END"
)
_POSTGRES_PHASES = (
    "UPDATE workflow_runs SET phase_count = CASE WHEN jsonb_typeof(phase_history) = 'array' "
    "THEN jsonb_array_length(phase_history) ELSE 0 END WHERE phase_history <> CAST('[]' AS jsonb)"
)
_POSTGRES_ERROR = (
    f"UPDATE workflow_runs SET error = context ->> 'error' WHERE {_ENDED} "
    "AND jsonb_typeof(context -> 'error') = 'string'"
)
_STATEMENTS = {
    "sqlite": (_SQLITE_PHASES, _SQLITE_ERROR),
    "postgresql": (_POSTGRES_PHASES, _POSTGRES_ERROR),
}


def column_updates(product: str) -> tuple[str, ...]:
    """Return the UPDATEs that fill the library's new columns from the original program's columns.

    Run them once the columns exist.
    """
    return _STATEMENTS.get(product, ())


# A query for the outline of a schema: the parts of its tables, by name. It is a SELECT that reads the catalog alone. If
# tables are distributed, a statement that also read one of them would query the catalog of the server that holds it.
#
# An outline has a line for each object, with its kind, table and name. The kinds are the catalogue's, with two
# additions: a unique index is ``unique``, and an object without any effect has ``off`` after its kind.

OFF = " off"
#: The separator between names in one line, for objects of the same kind and table.
AND = "\x1f"
#: The kind of a line for a database extension.
EXTENSION = "extension"
#: The kind of a line for all references of a table together, for a SQLite table that lost none.
REFERENCES = "references"

#: One pass over the CREATE statements that SQLite keeps; a table's row yields its columns, key and constraints. It
#: skips the columns of virtual tables and of others' tables, because that would load modules and read their schemas.
#: SQLite begins the text of an index in one way, however it was written. A table's references are queried only if its
#: CREATE statement mentions another number of them than expected.
_SQLITE = (
    "(SELECT group_concat(CASE type WHEN 'table' THEN "
    "(SELECT 'column' || char(9) || m.name || char(9) || group_concat(name, char(31)) "
    "|| CASE max(pk) WHEN 0 THEN '' ELSE char(10) || 'key' || char(9) || m.name || char(9) END "
    "FROM pragma_table_xinfo(m.name)) "
    "|| CASE WHEN name IN ({unique}) THEN coalesce((SELECT group_concat(char(10) || 'constraint' || char(9) || m.name "
    "|| char(9) || 'unique (' || (SELECT group_concat(name, ', ') FROM (SELECT name FROM pragma_index_info(i.name) "
    "ORDER BY name)) || ')', '') FROM pragma_index_list(m.name) AS i WHERE origin = 'u'), '') ELSE '' END "
    "|| CASE WHEN length(sql) - length(replace(lower(sql), 'references', '')) = CASE name {references} ELSE 0 END "
    "THEN char(10) || 'references' || char(9) || name || char(9) "
    "ELSE coalesce((SELECT group_concat(char(10) || 'constraint' || char(9) || m.name || char(9) || 'foreign key (' "
    """|| columns || ')', '') FROM (SELECT group_concat("from", ', ') AS columns """
    "FROM pragma_foreign_key_list(m.name) GROUP BY id)), '') END "
    "WHEN 'view' THEN 'view' || char(9) || name || char(9) "
    "ELSE CASE WHEN sql LIKE 'CREATE UNIQUE INDEX %' THEN 'unique' ELSE type END "
    "|| char(9) || tbl_name || char(9) || name END, char(10)) "
    "FROM sqlite_master AS m WHERE tbl_name IN ({tables}) OR type = 'view')"
)
#: A trigger that also fires on a replica counts as present.
_POSTGRES = (
    "(WITH ours AS MATERIALIZED (SELECT oid, relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') "
    "AND relname IN ({tables}) AND relnamespace = {namespace}) "
    "SELECT string_agg(concat_ws(chr(9), kind, owner, name), chr(10)) FROM ("
    "SELECT CASE WHEN t.tgenabled IN ('O', 'A') THEN 'trigger' ELSE 'trigger off' END AS kind, o.relname AS owner, "
    "t.tgname::text AS name FROM ours AS o JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = o.oid "
    "WHERE NOT t.tgisinternal "
    "UNION ALL SELECT 'column', o.relname, a.attname "
    "FROM ours AS o JOIN pg_catalog.pg_attribute AS a ON a.attrelid = o.oid "
    "WHERE a.attnum > 0 AND NOT a.attisdropped "
    "UNION ALL SELECT CASE WHEN NOT i.indisvalid THEN 'index off' WHEN i.indisunique THEN 'unique' ELSE 'index' END, "
    "o.relname, c.relname FROM ours AS o JOIN pg_catalog.pg_index AS i ON i.indrelid = o.oid "
    "JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid "
    "UNION ALL SELECT CASE WHEN n.contype = 'p' THEN 'key' WHEN n.convalidated THEN 'constraint' "
    "ELSE 'constraint off' END, o.relname, CASE n.contype WHEN 'p' THEN '' ELSE "
    "CASE n.contype WHEN 'u' THEN 'unique (' ELSE 'foreign key (' END || (SELECT string_agg(a.attname, ', ' "
    "ORDER BY a.attname) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = o.oid AND a.attnum = ANY (n.conkey)) "
    "|| ')' END FROM ours AS o JOIN pg_catalog.pg_constraint AS n ON n.conrelid = o.oid "
    "WHERE n.contype IN ('p', 'u', 'f') "
    "UNION ALL SELECT 'function', proname, '' FROM pg_catalog.pg_proc "
    "WHERE pronamespace = {namespace} AND proname IN ({others}) "
    "UNION ALL SELECT 'view', relname, '' FROM pg_catalog.pg_class "
    "WHERE relkind = 'v' AND relnamespace = {namespace} AND relname IN ({others}) "
    "UNION ALL SELECT 'extension', extname, extversion FROM pg_catalog.pg_extension) AS entries)"
)
_NAMESPACE = "(SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = to_regclass({version}))"
_PRODUCTS = {"sqlite": _SQLITE, "postgresql": _POSTGRES}


def outline(
    product: str, tables: Iterable[str], others: Iterable[str], constraints: Iterable[Entry], version: str
) -> str:
    """Return an SQL expression that lists the objects of these tables, read from the schema of the table ``version``.

    ``others`` are functions and views that belong to the tables. ``constraints`` are the unique constraints and the
    references that the tables should have. The value is NULL on other products, and if none of the tables exists.
    """
    listed = _literal_list(tables)
    if not listed or product not in _PRODUCTS:
        return "NULL"
    unique = {table for _, table, name in constraints if name.startswith("unique")}
    references = Counter(table for _, table, name in constraints if not name.startswith("unique"))
    lengths = (f"WHEN {literal(table)} THEN {count * len(REFERENCES)}" for table, count in sorted(references.items()))
    return _PRODUCTS[product].format(
        tables=listed,
        others=_literal_list(others) or "NULL",
        unique=_literal_list(unique) or "NULL",
        references=" ".join(lengths) or "WHEN NULL THEN 0",
        namespace=_NAMESPACE.format(version=literal(version)),
    )


def _literal_list(names: Iterable[str]) -> str:
    return ", ".join(map(literal, sorted(names)))


@lru_cache(maxsize=4)
def entries(text: str | None) -> frozenset[Entry]:
    """Return the objects listed in an `outline`.

    The result is cached, because stores with equal schemas parse the same text.
    """
    parts = (line.split("\t") for line in (text or "").split("\n"))
    return frozenset((part[0], part[1], name) for part in parts if len(part) == 3 for name in part[2].split(AND))


class nearest(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """The integer nearest to a float below 2**53. A half is rounded to the even number, as by Python's ``round``.

    Postgres rounds so by itself. SQLite's ``round`` rounds a half away from zero, so the expression handles halves
    separately.
    """

    type = sa.BigInteger()
    inherit_cache = True


@compiles(nearest, "sqlite")
def _nearest_on_sqlite(element: nearest, compiler: SQLCompiler, **options: Any) -> str:
    number = compiler.process(*element.clauses, **options)
    whole = f"CAST({number} AS INTEGER)"
    rest = f"(abs({number}) - abs({whole}))"
    away = f"(CASE WHEN {number} < 0 THEN -1 ELSE 1 END)"
    return f"(CASE WHEN {rest} > 0.5 OR ({rest} = 0.5 AND {whole} % 2 <> 0) THEN {whole} + {away} ELSE {whole} END)"


@compiles(nearest, "postgresql")
def _nearest_on_postgres(element: nearest, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(round({compiler.process(*element.clauses, **options)}) AS BIGINT)"


class millis_between(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """The whole milliseconds from the first time to the second.

    Negative if the second is earlier, NULL if one is NULL.
    """

    type = sa.BigInteger()
    inherit_cache = True


@compiles(millis_between, "sqlite")
def _millis_on_sqlite(element: millis_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(round((julianday({end}) - julianday({start})) * 86400000) AS INTEGER)"


@compiles(millis_between, "postgresql")
def _millis_on_postgres(element: millis_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(round(EXTRACT(epoch FROM ({end} - {start})) * 1000) AS BIGINT)"


class time_from_iso(FunctionElement[datetime]):  # noqa: N801 - reads as the SQL function that it stands for
    """The time in a text written by `clock.iso_text`; NULL for NULL.

    A cast would depend on the connection's settings. A database that distributes tables over servers forbids such a
    cast in some statements.
    """

    inherit_cache = True


@compiles(time_from_iso, "sqlite")
def _iso_on_sqlite(element: time_from_iso, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(*element.clauses, **options)


@compiles(time_from_iso, "postgresql")
def _iso_on_postgres(element: time_from_iso, compiler: SQLCompiler, **options: Any) -> str:
    text = compiler.process(*element.clauses, **options)
    whole = [f"CAST(substr({text}, {start}, {length}) AS INTEGER)" for start, length in _ISO_PARTS]
    seconds = f"CAST(substr({text}, 18, 6) AS DOUBLE PRECISION)"
    return f"timezone('UTC', make_timestamp({', '.join(whole)}, {seconds}))"


#: The positions of year, month, day, hour and minute in the text of a time, and their lengths.
_ISO_PARTS = ((1, 4), (6, 2), (9, 2), (12, 2), (15, 2))


class utc_bucket(FunctionElement[str]):  # noqa: N801 - reads as the SQL function that it stands for
    """The first characters of a time's ISO-8601 text in UTC: ``utc_bucket(time, 10)`` its day, 13 its hour."""

    type = sa.Text()
    inherit_cache = True


@compiles(utc_bucket, "sqlite")
def _text_on_sqlite(element: utc_bucket, compiler: SQLCompiler, **options: Any) -> str:
    moment, length = (compiler.process(clause, **options) for clause in element.clauses)
    return f"substr({moment}, 1, {length})"


@compiles(utc_bucket, "postgresql")
def _text_on_postgres(element: utc_bucket, compiler: SQLCompiler, **options: Any) -> str:
    moment, length = (compiler.process(clause, **options) for clause in element.clauses)
    return f"substr(to_char({moment} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24'), 1, {length})"


class before(FunctionElement[str]):  # noqa: N801 - reads as the SQL function that it stands for
    """The part of a text before the first ``mark``; NULL if the text does not contain the mark."""

    type = sa.Text()
    inherit_cache = True


@compiles(before, "sqlite")
def _before_on_sqlite(element: before, compiler: SQLCompiler, **options: Any) -> str:
    text, mark = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CASE WHEN instr({text}, {mark}) > 0 THEN substr({text}, 1, instr({text}, {mark}) - 1) END"


@compiles(before, "postgresql")
def _before_on_postgres(element: before, compiler: SQLCompiler, **options: Any) -> str:
    text, mark = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CASE WHEN strpos({text}, {mark}) > 0 THEN split_part({text}, {mark}, 1) END"


class bytes_of(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """The number of bytes of a value's text, as the product writes the text."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(bytes_of, "sqlite")
def _bytes_on_sqlite(element: bytes_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"length(CAST({compiler.process(*element.clauses, **options)} AS BLOB))"


@compiles(bytes_of, "postgresql")
def _bytes_on_postgres(element: bytes_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length(CAST({compiler.process(*element.clauses, **options)} AS TEXT))"
