"""A column that a later revision adds, shown in every list there is."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.schema import CreateTable
from support.bytes_read import bytes_read
from support.filled_store import scene
from support.shown import lists

from lastlight_state import StateStore
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import of_companion
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

#: The first large column of each table whose rows hold one in this test, and the JSON or text that fills it.
LARGE = {
    "workflow_runs": "context",
    "executions": "output_text",
    "workflow_approvals": "summary",
    "human_requests": "prompt",
    "messaging_sessions": "metadata",
    "cron_schedules": "error_json",
    "cron_fires": "error_json",
    "run_events": "payload",
    "run_signals": "payload",
    "tool_calls": "input",
    "sandboxes": "config",
    "scores": "meta",
    "messages": "content",
}
MEGABYTE = '{"x":"' + "x" * 2**20 + '"}'


class Asked:
    """A page that a list was asked for."""

    def __init__(self, listing: Listing, chosen: Any, also: Any) -> None:
        self.listing, self.chosen, self.also = listing, chosen, also
        self.table: sa.Table = listing._order[0].table

    def statement(self, store: StateStore, *more: sa.ColumnElement[Any]) -> tuple[str, Any]:
        """The statement of the page, with these columns as well, and its parameters as the driver takes them."""
        listing = copy.copy(self.listing)
        listing._shown = (*listing._shown, *more)
        statement, values = listing._statement(self.chosen, None, 11)
        compiled = statement.on(store.backend)
        return compiled.sql, compiled.parameters({**values, **self.also})


@contextmanager
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    """The pages that lists are asked for in the block, one for each statement."""
    found: list[Asked] = []
    placed = Listing.rows_after

    def note(self: Listing, unit: Any, chosen: Any, key: Any, limit: int, *, also: Any = ()) -> Any:
        found.append(Asked(self, dict(chosen), dict(also)))
        return placed(self, unit, chosen, key, limit, also=dict(also))

    with monkeypatch.context() as patched:
        patched.setattr(Listing, "rows_after", note)
        yield found


def companion_of(table: sa.Table) -> sa.Table:
    keys = [sa.Column(column.name, column.type, nullable=False) for column in table.primary_key]
    return sa.Table(
        f"{table.name}_added",
        sa.MetaData(),
        *keys,
        sa.Column("added_note", columns.Text),
        sa.PrimaryKeyConstraint(*(key.name for key in keys)),
        sa.ForeignKeyConstraint([key.name for key in keys], list(table.primary_key)),
    )


def pages(database: Database, monkeypatch: pytest.MonkeyPatch) -> tuple[StateStore, list[Asked]]:
    store, _ = scene(database)
    for listed, _ in lists(store).values():
        listed()  # questions that are overdue are expired by it
    with noted(monkeypatch) as asked:
        for listed, _ in lists(store).values():
            listed()
    return store, [page for page in asked if page.table.name in METADATA.tables]


def add_notes(raw: Any, store: StateStore, tables: set[sa.Table]) -> dict[sa.Table, sa.Table]:
    """A companion of each table with a row for each of its rows."""
    made = {table: companion_of(table) for table in tables}
    for table, companion in made.items():
        keys = ", ".join(key.name for key in table.primary_key)
        raw.execute(str(CreateTable(companion).compile(dialect=store.backend.dialect)))
        raw.execute(f"INSERT INTO {companion.name} ({keys}, added_note) SELECT {keys}, 'added' FROM {table.name}")
    return made


@pytest.mark.slow
def test_every_list_shows_a_column_that_a_later_revision_adds(
    fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """house H-64: without a new index, from a companion of its table."""
    store, asked = pages(fresh_database, monkeypatch)
    raw = fresh_database.raw()
    made = add_notes(raw, store, {page.table for page in asked})
    shown = set()
    for page in asked:
        text, values = page.statement(store, of_companion(made[page.table].c.added_note))
        rows = raw.execute(text, values).fetchall()
        assert {row[-1] for row in rows} <= {"added"}, text
        assert len(rows) == len(raw.execute(*page.statement(store)).fetchall())
        shown |= {page.table.name} if rows else set()
    assert shown >= LARGE.keys()
    assert len(made) > 25


@pytest.mark.slow
def test_what_a_list_reads_for_an_added_column_does_not_grow_with_its_rows(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """house H-64: beside values of a megabyte, where the same column at the end of the rows walks them."""
    store, asked = pages(sqlite_database, monkeypatch)
    raw = sqlite_database.raw()
    made = add_notes(raw, store, {page.table for page in asked})
    for [trigger] in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {trigger}")
    for table, column in LARGE.items():
        raw.execute(f"ALTER TABLE {table} ADD COLUMN added_note TEXT")
        raw.execute(f"UPDATE {table} SET {column} = ?, added_note = 'added'", (MEGABYTE,))
    walked = set()
    for page in (page for page in asked if page.table.name in LARGE):
        companion = of_companion(made[page.table].c.added_note)
        plain, beside, inside = (
            bytes_read(sqlite_database, *page.statement(store, *more))
            for more in ((), (companion,), (in_the_row(page.table),))
        )
        assert beside - plain < 2**18, (page.listing._name, plain, beside)
        walked |= {page.table.name} if inside - plain > 2**20 else set()
    assert walked >= LARGE.keys() - {"run_events", "run_signals"}  # lists of these read the large values anyway


def in_the_row(table: sa.Table) -> sa.ColumnElement[Any]:
    """The same column, added to the table itself."""
    own = sa.table(table.name, *(sa.column(key.name) for key in table.primary_key), sa.column("added_note")).alias(
        "own"
    )
    here = (own.c[key.name] == key for key in table.primary_key)
    return sa.select(own.c.added_note).where(*here).scalar_subquery().label("added_note")
