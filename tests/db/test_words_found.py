"""Rows with a word that no version knows, stored past the guards: listed, counted and named, never hidden."""

from __future__ import annotations

from typing import Any

from support.filled_store import scene
from support.guards import unguarded
from support.shown import lists, looks

from lastlight_state import StateStore
from lastlight_state.db.schema.declarations import vocabularies
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

#: The lists of a table that ask for no word, by each column that holds words.
SHOWN = {
    "branches.status": ["branches"],
    "checkpoint_values.encoding": ["whole checkpoints"],
    "cron_fires.status": ["fires"],
    "human_requests.status": ["requests of a run"],
    "messaging_messages.role": ["messages"],
    "run_nodes.state": ["nodes"],
    "sandboxes.status": ["sandboxes"],
    "session_transitions.source": ["conversation transitions"],
    "sessions.status": ["conversations", "updated conversations"],
    "tool_calls.status": ["tool calls"],
    "workflow_approvals.status": ["approvals", "approvals of a run"],
    "workflow_runs.status": ["runs", "runs active first", "children", "names"],
}
#: The column whose rows cannot be read without knowing the word: they are marked.
MARKED = "checkpoint_values.encoding"
#: Tables that `stats` does not count by these words.
UNCOUNTED = {"checkpoint_values", "messaging_messages", "run_nodes", "session_transitions"}


def odd(database: Database, *columns: str) -> None:
    """Put a word that no version knows into every row of these columns."""
    raw = unguarded(database)
    for column in columns:
        table, _, name = column.partition(".")
        raw.execute(f"UPDATE {table} SET {name} = 'odd'")


def shown(store: StateStore, column: str) -> dict[str, set[Any]]:
    """Return what the lists of the column show, by their names; a marked row counts as shown."""
    asked = {name: lists(store)[name] for name in SHOWN[column]}
    pages = {name: listed(limit=100) for name, (listed, _) in asked.items()}
    marked = {name: len(page.damaged) for name, page in pages.items()}
    return {name: {asked[name][1](item) for item in page} or {marked[name]} for name, page in pages.items()}


def test_every_column_of_words_has_its_lists() -> None:
    """house H-151: a new one says here by which it is shown."""
    assert set(SHOWN) == {str(column) for column, _ in vocabularies(METADATA.sorted_tables)}


def test_a_row_with_an_odd_word_is_listed(database: Database) -> None:
    """house H-151: or marked by its key, where what it holds cannot be read without knowing the word."""
    store, _ = scene(database)
    before = {column: shown(store, column) for column in SHOWN}
    assert all(items for listed in before.values() for items in listed.values())
    odd(database, *SHOWN)
    before[MARKED] = {name: {len(items)} for name, items in before[MARKED].items()}
    assert {column: shown(store, column) for column in SHOWN} == before


def test_a_row_with_an_odd_word_is_looked_at(database: Database) -> None:
    """house H-151: by its key, and what stands around it as well."""
    store, _ = scene(database)
    asked = looks(store, 1)
    before = {name: type(look()) for name, look in asked.items()}
    odd(database, *(column for column in SHOWN if column != MARKED))
    assert {name: type(look()) for name, look in asked.items()} == before
    odd(database, MARKED)
    del asked["checkpoint"], before["checkpoint"]
    assert {name: type(look()) for name, look in asked.items()} == before


def test_an_odd_word_is_named_by_doctor_and_counted(database: Database) -> None:
    """house H-151: with its column, and in the numbers of each status."""
    store, _ = scene(database)
    odd(database, *SHOWN)
    named = [one for one in store.maintenance.doctor.examine().findings if one.check == "DOC-13"]
    assert sorted((f"{one.subject}.{one.message}", one.samples) for one in named) == [
        (f"{column} holds words that this version does not know", ("odd",)) for column in sorted(SHOWN)
    ]
    statuses = store.maintenance.stats.collect().statuses
    counted = {table for column in SHOWN if (table := column.partition(".")[0]) not in UNCOUNTED}
    assert {table: [one.status for one in statuses.get(table, ())] for table in counted} == {
        table: ["odd"] for table in counted
    }
    assert not statuses.keys() & UNCOUNTED
