"""What a SQLite database says that it is made of."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from lastlight_state.backends.sqlite.catalogue import catalogue_of

TABLE = """
CREATE TABLE prices (
    id INTEGER PRIMARY KEY,
    kind TEXT DEFAULT 'a, (b' CHECK (kind IN ('a', 'b')),
    price NUMERIC(10, 2),
    "text" TEXT,
    CONSTRAINT priced CHECK (price > 0 AND kind <> ')'),
    UNIQUE (kind, price)
)
"""


def test_each_column_and_constraint_is_one_entry_whatever_stands_in_its_brackets_and_quotes() -> None:
    """migrations MG-14."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(TABLE)
        found = catalogue_of(connection)
    assert found == {
        ("table", "prices", ""): "",
        ("column", "prices", "id"): "id INTEGER PRIMARY KEY",
        ("column", "prices", "kind"): "kind TEXT DEFAULT 'a, (b' CHECK (kind IN ('a', 'b'))",
        ("column", "prices", "price"): "price NUMERIC(10, 2)",
        ("column", "prices", "text"): '"text" TEXT',
        ("constraint", "prices", "CONSTRAINT priced CHECK (price > 0 AND kind <> ')')"): (
            "CONSTRAINT priced CHECK (price > 0 AND kind <> ')')"
        ),
        ("constraint", "prices", "UNIQUE (kind, price)"): "UNIQUE (kind, price)",
        ("order", "prices", ""): "id, kind, price, text",
    }
