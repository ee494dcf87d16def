"""The catalogue of a SQLite database, built from the CREATE statements that SQLite stores."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lastlight_state.backends.facts import Catalogue, Entry, squeeze_sql

# The shape of a SQLite schema: columns, keys and indexes, independent of how the statements were spelt.
#
# SQLite keeps the text of every CREATE statement, with its comments, quotes and case. Another program's files may spell
# the same schema differently, so their tables are compared by the facts that SQLite itself reports.

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^']|'')*')|"(?P<quoted>(?:[^"]|"")*)"|`(?P<ticked>[^`]*)`"""
    r"|\[(?P<bracketed>[^\]]*)\]|(?P<word>\d+\.\d+|\w+)|(?P<sign><>|[<>!=]=|\|\||->>?|[^\s\w])",
    re.DOTALL,
)
#: Words of a CREATE TABLE that change what the table accepts, but which SQLite's functions do not report.
_WORDS = frozenset("autoincrement check collate conflict generated strict without".split())

_TABLES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite#_%' ESCAPE '#'"
_COLUMN_FACTS = 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid'
_KEY = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
_INDEXES = "SELECT name, origin FROM pragma_index_list(?)"
_INDEX_COLUMNS = "SELECT name FROM pragma_index_info(?) ORDER BY name"
_SQL = "SELECT sql FROM sqlite_master WHERE name = ?"
_REFERENCES = (
    'SELECT group_concat("from", \', \'), "table", group_concat("to", \', \'), on_update, on_delete '
    "FROM pragma_foreign_key_list(?) GROUP BY id"
)
_TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
_VIEWS = "SELECT name, sql FROM sqlite_master WHERE type = 'view'"


def shape_of(driver: Any) -> Catalogue:
    """Return the columns, keys, constraints, indexes, triggers and views of the main database.

    The description of an index is its CREATE statement.
    """
    found = {("view", str(name), ""): normal(sql) for name, sql in driver.execute(_VIEWS).fetchall()}
    for table, sql in driver.execute(_TABLES).fetchall():
        found["table", table, ""] = " ".join(sorted(_WORDS.intersection(_tokens(sql))))
        found["key", table, ""] = ", ".join(_names(driver, _KEY, table))
        found.update(_columns(driver, table))
        found.update(_indexes(driver, table))
        found.update(_references(driver, table))
        for name, body in driver.execute(_TRIGGERS, (table,)).fetchall():
            found["trigger", table, name] = normal(body)
    return found


def normal(sql: str) -> str:
    """Normalise a statement: no comments, lower-case names and keywords, single blanks as white space."""
    return " ".join(_tokens(sql))


def _tokens(sql: str) -> Iterator[str]:
    for found in _TOKEN.finditer(sql):
        kind = found.lastgroup
        if kind == "comment":
            continue
        text = found[kind] if kind else ""
        if kind in ("quoted", "ticked", "bracketed") and not re.fullmatch(r"\w+", text):
            yield f'"{text}"'
        elif kind == "text" or text.lower() != "asc":
            yield text if kind == "text" else text.lower()


def _columns(driver: Any, table: str) -> Iterator[tuple[Entry, str]]:
    for name, kind, needed, default, key, hidden in driver.execute(_COLUMN_FACTS, (table,)).fetchall():
        parts = [str(kind).upper()]
        if needed or key:  # a nullable key is a quirk of SQLite that the original program shares
            parts.append("NOT NULL")
        if default is not None:
            parts.append(f"DEFAULT {_default(default)}")
        if hidden:
            parts.append("GENERATED")
        yield ("column", table, name), " ".join(parts)


def _default(text: str) -> str:
    plain = normal(text)
    return {"true": "1", "false": "0"}.get(plain, plain)


def _indexes(driver: Any, table: str) -> Iterator[tuple[Entry, str]]:
    for name, origin in driver.execute(_INDEXES, (table,)).fetchall():
        if origin == "u":
            over = ", ".join(_names(driver, _INDEX_COLUMNS, name))
            yield ("constraint", table, f"unique ({over})"), f"UNIQUE ({over})"
        elif origin == "c":
            yield ("index", table, name), normal(driver.execute(_SQL, (name,)).fetchone()[0])


def _references(driver: Any, table: str) -> Iterator[tuple[Entry, str]]:
    for columns, parent, keys, on_update, on_delete in driver.execute(_REFERENCES, (table,)).fetchall():
        named = keys or ", ".join(_names(driver, _KEY, parent))
        rule = f"REFERENCES {parent} ({named}) ON UPDATE {on_update} ON DELETE {on_delete}"
        yield ("constraint", table, f"foreign key ({columns})"), rule


def _names(driver: Any, query: str, of: str) -> list[str]:
    return [str(name) for (name,) in driver.execute(query, (of,)).fetchall()]


_OBJECTS = (
    "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite#_%' ESCAPE '#'"
)
_COLUMNS = "SELECT name FROM pragma_table_xinfo(?) ORDER BY cid"
_CONSTRAINTS = ("CONSTRAINT ", "PRIMARY KEY", "UNIQUE", "CHECK", "FOREIGN KEY")


def catalogue_of(driver: Any) -> Catalogue:
    """Return every object of the main database, except SQLite's own."""
    found: dict[Entry, str] = {}
    for kind, name, table, sql in driver.execute(_OBJECTS).fetchall():
        if kind == "table":
            found.update(_of_table(name, sql))
            columns = [row[0] for row in driver.execute(_COLUMNS, (name,)).fetchall()]
            found["order", name, ""] = ", ".join(columns)
        else:
            found[kind, table, name] = squeeze_sql(sql)
    return found


def _of_table(table: str, sql: str) -> Iterator[tuple[Entry, str]]:
    """Yield one entry for each column and constraint of a table.

    Entries are compared instead of the CREATE text, because ADD COLUMN appends a column after the constraints.
    """
    text = squeeze_sql(sql)
    start, end = text.index("("), text.rindex(")")
    yield ("table", table, ""), text[end + 1 :].strip()
    for part in _parts(text[start + 1 : end]):
        if part.upper().startswith(_CONSTRAINTS):
            yield ("constraint", table, part), part
        else:
            yield ("column", table, part.split(" ")[0].strip('"`[]')), part


def _parts(body: str) -> Iterator[str]:
    """Split a text at commas that are outside brackets and quotes."""
    depth, quote, piece = 0, "", ""
    for character in body:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        if character == "," and depth == 0 and not quote:
            yield piece.strip()
            piece = ""
        else:
            piece += character
    yield piece.strip()
