"""A table of SQLite that somebody made anew without one of its keys or constraints."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.migrations.support import Place

from lastlight_state import StateStore
from lastlight_state.backends.facts import Entry
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import drift, mending, migrate, read_state, script, verify

pytestmark = pytest.mark.recorded


def constraints() -> list[Entry]:
    """Every key and constraint of the newest revision."""
    return sorted(entry for entry in drift.promised_entries("sqlite") if entry[0] in ("key", "constraint"))


def without(statement: str, entry: Entry) -> str:
    """The statement of a table, less one key or constraint."""
    kind, _, name = entry
    if kind == "key":
        sought = r",\s*CONSTRAINT \w+ PRIMARY KEY \([^)]*\)| PRIMARY KEY AUTOINCREMENT"
    else:
        word, _, columns = name.partition(" (")
        named = '"?' + columns.removesuffix(")").replace(", ", '"?, ?"?') + '"?'
        if word == "unique":  # in the order of the statement, where the entry sorts its columns
            named = rf"(?={named}\)|(?:[\w\"]+, )*{named.split(',')[0]})[^)]*"
        sought = rf",\s*CONSTRAINT \w+ {word.upper()} ?\({named}\)( REFERENCES \w+ \([^)]*\)( ON DELETE CASCADE)?)?"
    changed, found = re.subn(sought, "", statement)
    assert found == 1, (entry, statement)
    return changed


def make_anew(raw: Any, entry: Entry) -> None:
    """Make a table anew as a person does, with its rows, indexes and triggers, and without one of its constraints."""
    _, table, _ = entry
    about = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type {} AND sql IS NOT NULL"
    [(statement,)] = raw.execute(about.format("= 'table'"), (table,))
    others = [sql for (sql,) in raw.execute(about.format("<> 'table'"), (table,))]
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("PRAGMA legacy_alter_table = ON")
    raw.execute(without(statement, entry).replace(f"CREATE TABLE {table}", "CREATE TABLE made_anew", 1))
    raw.execute(f"INSERT INTO made_anew SELECT * FROM {table}")
    raw.execute(f"DROP TABLE {table}")
    raw.execute(f"ALTER TABLE made_anew RENAME TO {table}")
    for sql in others:
        raw.execute(sql)


def said_of(entry: Entry) -> str:
    """What is said of a lost one."""
    return f"{drift.words_for(entry)} is missing"


@with_each("entry", constraints(), ids=drift.words_for)
def test_opening_and_migrating_refuse_a_table_that_was_made_anew_without_it(sqlite_place: Place, entry: Entry) -> None:
    """migrations MG-59, MG-73, SQLite, whose statements cannot add it: each of them, by itself."""
    backend = sqlite_place.at()
    make_anew(sqlite_place.raw(), entry)
    state = read_state(backend)
    assert state.lacking == (said_of(entry),)
    with pytest.raises(SchemaMismatch, match="SQLite adds no key or constraint to a table") as caught:
        verify(backend)
    assert (caught.value.code, caught.value.differences) == ("damaged", state.lacking)
    with pytest.raises(SchemaMismatch, match="restore a backup") as caught:
        mending.refuse_lost(state.absent)  # which migrating asks
    assert caught.value.differences == state.lacking


def test_nothing_is_put_back_beside_a_lost_constraint(sqlite_place: Place) -> None:
    """migrations MG-73, SQLite: opening, the command and its script refuse, and ``check`` names both."""
    backend = sqlite_place.at()
    entry = ("constraint", "run_loops", "foreign key (run_id)")
    make_anew(sqlite_place.raw(), entry)
    sqlite_place.raw().execute("DROP INDEX uq_scores_current")
    expected = [said_of(entry), "index scores.uq_scores_current is missing"]
    for act in (lambda: StateStore.open(sqlite_place.url), lambda: migrate(backend), lambda: script(backend)):
        with pytest.raises(SchemaMismatch, match="SQLite adds no key or constraint") as caught:
            act()
        assert set(caught.value.differences) <= set(expected)
    said = lastlight_state("check", "--url", sqlite_place.url)
    assert (said.code, [line for line in expected if line not in said.out]) == (1, [])
    assert "SQLite adds no key or constraint to a table" in said.err
    assert sorted(read_state(backend).lacking) == expected


def test_a_table_that_was_made_anew_in_other_words_is_whole(sqlite_place: Place) -> None:
    """migrations MG-59, SQLite: what is lost is asked of SQLite, and not of how the statement is spelt."""
    backend = sqlite_place.at()
    raw = sqlite_place.raw()
    [(statement,)] = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'run_loops'")
    spelt = statement.replace("REFERENCES", "References /* references */").replace("TEXT", "text")
    raw.execute("PRAGMA writable_schema = ON")
    raw.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'run_loops'", (spelt,))
    raw.execute("PRAGMA writable_schema = RESET")
    assert read_state(backend).absent == ()
    StateStore.open(sqlite_place.url, migrate=False).close()
