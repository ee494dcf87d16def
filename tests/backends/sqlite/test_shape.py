from __future__ import annotations

import sqlite3
from contextlib import closing

from support.each import with_each

from lastlight_state.backends.facts import Catalogue
from lastlight_state.backends.sqlite.catalogue import normal, shape_of as shape

ALIKE = {
    "white space and letters": ("create INDEX i  on\n t(a , b)", "CREATE INDEX i ON t (a, b)"),
    "comments": ("CREATE INDEX i -- of theirs\n ON t /* at last */ (a)", "CREATE INDEX i ON t (a)"),
    "quotes of names": ('CREATE INDEX `i` ON [t] ("a")', "CREATE INDEX i ON t (a)"),
    "the usual direction": ("CREATE INDEX i ON t (a ASC, b DESC)", "CREATE INDEX i ON t (a, b DESC)"),
}  # fmt: skip
UNLIKE = {
    "a direction": ("CREATE INDEX i ON t (a)", "CREATE INDEX i ON t (a DESC)"),
    "letters of a text": ("SELECT 'A'", "SELECT 'a'"),
    "the word asc as a text": ("SELECT 'asc'", "SELECT ''"),
    "a comment's sign in a text": ("SELECT '--a'", "SELECT '--b'"),
    "a name that is quoted because it must be": ('SELECT "a b"', "SELECT a b"),
    "an operator": ("SELECT a <> b", "SELECT a >= b"),
}


@with_each("kind", ALIKE)
def test_statements_that_mean_the_same_read_the_same(kind: str) -> None:
    one, other = ALIKE[kind]
    assert normal(one) == normal(other)


@with_each("kind", UNLIKE)
def test_statements_that_mean_something_else_do_not(kind: str) -> None:
    one, other = UNLIKE[kind]
    assert normal(one) != normal(other)


def test_what_is_normal_can_be_executed() -> None:
    statement = (
        "CREATE UNIQUE INDEX \"my index\" ON t (a, coalesce(b, '') DESC) WHERE c <> 0.5 AND c >= 1 OR a || b = 'x'"
    )
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (a TEXT, b TEXT, c REAL)")
        connection.execute(normal(statement))
        assert shape(connection)["index", "t", "my index"] == normal(statement)


def shape_of(table: str) -> Catalogue:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE parent (id TEXT PRIMARY KEY)")
        connection.execute(f"CREATE TABLE t ({table})")
        return {entry: text for entry, text in shape(connection).items() if entry[1] == "t"}


@with_each(
    ("one", "other"),
    [
        ("id TEXT PRIMARY KEY", "`id` text NOT NULL PRIMARY KEY"),
        ("id TEXT, PRIMARY KEY (id)", "id TEXT NOT NULL, CONSTRAINT pk PRIMARY KEY (id)"),
        ("a INTEGER NOT NULL DEFAULT 1", "a integer DEFAULT (TRUE) not null"),
        ("a TEXT REFERENCES parent", "a TEXT, FOREIGN KEY (a) REFERENCES parent (id) ON DELETE NO ACTION"),
        ("a TEXT UNIQUE, b TEXT", "a TEXT, b TEXT, CONSTRAINT u UNIQUE (a)"),
    ],
)
def test_tables_that_are_alike_have_one_shape(one: str, other: str) -> None:
    """migrations MG-42: keys that may be NULL included."""
    assert shape_of(one) == shape_of(other)


@with_each(
    ("one", "other"),
    [
        ("a TEXT", "a TEXT NOT NULL"),
        ("a TEXT DEFAULT 'x'", "a TEXT DEFAULT 'X'"),
        ("a TEXT", "a TEXT CHECK (a <> '')"),
        ("a TEXT", "a TEXT COLLATE NOCASE"),
        ("a TEXT", "a TEXT UNIQUE"),
        ("a INT, b INT", "a INT, b INT AS (a + 1)"),
        ("a TEXT REFERENCES parent", "a TEXT REFERENCES parent ON DELETE CASCADE"),
        ("id INTEGER PRIMARY KEY", "id INTEGER PRIMARY KEY AUTOINCREMENT"),
    ],
)
def test_tables_that_differ_have_different_shapes(one: str, other: str) -> None:
    assert shape_of(one) != shape_of(other)


def test_words_in_comments_and_texts_are_none_of_the_table() -> None:
    """A comment that says CHECK checks nothing."""
    assert shape_of("a TEXT DEFAULT 'please check' -- UNIQUE, CHECK, COLLATE\n")["table", "t", ""] == ""
