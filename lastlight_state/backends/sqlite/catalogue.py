"""The catalogue of a SQLite database, read from the CREATE statements that it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lastlight_state.backends.facts import Catalogue, Entry, squeezed

_OBJECTS = (
    "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite#_%' ESCAPE '#'"
)
_COLUMNS = "SELECT name FROM pragma_table_xinfo(?) ORDER BY cid"
_CONSTRAINTS = ("CONSTRAINT ", "PRIMARY KEY", "UNIQUE", "CHECK", "FOREIGN KEY")


def catalogue_of(driver: Any) -> Catalogue:
    """Every object of the main database except SQLite's own."""
    found: dict[Entry, str] = {}
    for kind, name, table, sql in driver.execute(_OBJECTS).fetchall():
        if kind == "table":
            found.update(_of_table(name, sql))
            columns = [row[0] for row in driver.execute(_COLUMNS, (name,)).fetchall()]
            found["order", name, ""] = ", ".join(columns)
        else:
            found[kind, table, name] = squeezed(sql)
    return found


def _of_table(table: str, sql: str) -> Iterator[tuple[Entry, str]]:
    """One entry per column and constraint, because ADD COLUMN appends to the text behind the constraints."""
    text = squeezed(sql)
    start, end = text.index("("), text.rindex(")")
    yield ("table", table, ""), text[end + 1 :].strip()
    for part in _parts(text[start + 1 : end]):
        if part.upper().startswith(_CONSTRAINTS):
            yield ("constraint", table, part), part
        else:
            yield ("column", table, part.split(" ")[0].strip('"`[]')), part


def _parts(body: str) -> Iterator[str]:
    """The pieces between commas outside of brackets and quotes."""
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
