"""Words that a column's vocabulary does not have, written by plain SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import sqlalchemy as sa
from support.refusal import refused
from support.stored_words import unguarded_words
from support.workflows.steps import Raw

from lastlight_state.db.schema.columns import Bytes, Flag, Integer, Json, Timestamp
from lastlight_state.db.schema.declarations import vocabularies
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

VOCABULARIES = list(vocabularies(METADATA.sorted_tables))
#: A value of a column that must have one, by the type of the column.
VALUES = {id(Integer): 1, id(Flag): True, id(Json): "{}", id(Bytes): b"x"}
#: Tables whose rows no update may change at all.
FIXED = ("session_transitions", "messaging_messages")


@pytest.fixture(params=VOCABULARIES, ids=lambda found: str(found[0]))
def column(request: pytest.FixtureRequest) -> sa.Column[Any]:
    """Each column that holds words of a vocabulary."""
    found: tuple[sa.Column[Any], Collection[str]] = request.param
    return found[0]


def needed(database: Database, table: sa.Table) -> Iterator[tuple[str, Any]]:
    """The columns without which no row is stored, with a value of each."""
    for one in table.columns:
        if not one.nullable and one.server_default is None:
            yield one.name, database.clock.now() if one.type is Timestamp else VALUES.get(id(one.type), "x")


def insert(database: Database, raw: Raw, column: sa.Column[Any], word: str) -> None:
    """Store a row with this word, by plain SQL. It refers to nothing that is there."""
    row = {**dict(needed(database, column.table)), column.name: word}
    marks = ", ".join("?" for _ in row)
    raw(f"INSERT INTO {column.table.name} ({', '.join(row)}) VALUES ({marks})", *row.values())


@contextmanager
def unchecked(raw: Raw) -> Iterator[None]:
    """A block in which this connection stores any word, in rows that refer to nothing that is there."""
    on_postgres = raw.name == "postgresql"
    raw("SET session_replication_role = replica" if on_postgres else "PRAGMA foreign_keys = OFF")
    with nullcontext() if on_postgres else unguarded_words(raw.name, raw):
        yield
    raw("SET session_replication_role = origin" if on_postgres else "PRAGMA foreign_keys = OFF")


def test_a_word_that_no_version_knows_is_not_inserted(database: Database, column: sa.Column[Any]) -> None:
    """house H-21: plain SQL, on both databases."""
    with refused():
        insert(database, Raw(database), column, "bogus")


def test_a_word_is_not_changed_to_one_that_no_version_knows(database: Database, column: sa.Column[Any]) -> None:
    """house H-21: and a row with an odd word, stored before the guard, changes in every other way."""
    if column.table.name in FIXED:
        return
    raw = Raw(database)
    with unchecked(raw):
        insert(database, raw, column, "odd")
    table, name = column.table.name, column.name
    with refused():
        raw(f"UPDATE {table} SET {name} = 'bogus'")
    if table != "cron_fires":  # of which an odd word is a finished one
        raw(f"UPDATE {table} SET {name} = {name}")
    assert raw(f"SELECT {name} FROM {table}") == [("odd",)]
