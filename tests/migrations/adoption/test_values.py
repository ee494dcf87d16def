"""Values that other programs spelled another way, when their database is taken over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from support.each import with_each
from support.migrations.originals import ROWS, SEED, dump, original
from support.migrations.support import Place, tables
from support.stored_times import SPELLINGS, STORED, UNREADABLE

from lastlight_state import StateStore
from lastlight_state.db.schema.columns import form_of
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import check, migrate
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.migrations.state import SEED_TABLES


def columns_of(form: str) -> list[tuple[str, str]]:
    """The columns of the original program whose values have this form."""
    found = ((name, column) for name in SEED_TABLES for column in METADATA.tables[name].columns)
    return [(name, column.name) for name, column in found if form_of(column) == form]


def in_every_row(place: Place, values: dict[tuple[str, str], str]) -> tuple[Any, int]:
    """A database of the original program with these values, in each row of the columns that it has; how many."""
    raw = original(place, SEED, ROWS)
    there = 0
    for (table, column), value in values.items():
        known = {name for _, name, *_ in raw.execute(f"PRAGMA table_info({table})")}
        if column in known:
            there += 1
            raw.execute(f"UPDATE {table} SET {column} = ?", (value,))
    return raw, there


@pytest.mark.slow
@with_each("spelling", SPELLINGS)
def test_times_that_are_spelled_otherwise_are_written_as_ours(
    sqlite_place: Place, spelling: str, caplog: pytest.LogCaptureFixture
) -> None:
    """migrations MG-48: every column of every table; the plan says it, and the log of the upgrade."""
    raw, there = in_every_row(sqlite_place, dict.fromkeys(columns_of("time"), spelling))
    plan = check(sqlite_place.backend())
    assert plan.adoption
    assert len(plan.adoption.rewrites) == there
    assert plan.adoption.remarks == ()
    with caplog.at_level(logging.WARNING, "lastlight_state.migrations"):
        assert migrate(sqlite_place.backend()).adopted
    told = [record.getMessage() for record in caplog.records]
    assert len([line for line in told if f"found '{spelling}'" in line]) == there
    written = "writes started_at as times are here, like 2026-02-03T12:34:56.789Z"
    assert f"workflow_runs: rewrote 2 values: {written}; found '{spelling}'" in told
    for table, column in columns_of("time"):
        stored = raw.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL").fetchall()
        assert stored in ([(STORED,)], []), column
    assert migrate(sqlite_place.backend()).revisions == ()


@pytest.mark.slow
@with_each("unreadable", UNREADABLE)
def test_times_that_cannot_be_read_refuse_the_database_by_name(sqlite_place: Place, unreadable: str) -> None:
    """migrations MG-48: and nothing is changed."""
    raw, there = in_every_row(sqlite_place, dict.fromkeys(columns_of("time"), unreadable))
    before = dump(raw)
    plan = check(sqlite_place.backend())
    assert plan.adoption is None
    with pytest.raises(SchemaMismatch) as refused:
        migrate(sqlite_place.backend())
    assert refused.value.differences == plan.differences
    assert len({line.partition(" is ")[0] for line in plan.differences}) == there
    assert any(
        line.startswith(f"workflow_runs.started_at is {unreadable!r} of '4f6c9a1e-") for line in plan.differences
    )
    assert dump(raw) == before
    assert "run_transitions" not in tables(sqlite_place.backend())


@pytest.mark.slow
def test_flags_that_are_words_are_written_as_numbers(sqlite_place: Place) -> None:
    """migrations MG-48."""
    raw = original(sqlite_place, SEED, ROWS)
    raw.execute("UPDATE executions SET success = 'true' WHERE success = 1")
    raw.execute("UPDATE workflow_overrides SET enabled = 'False'")
    assert migrate(sqlite_place.backend()).adopted
    assert raw.execute("SELECT success FROM executions WHERE success IS NOT NULL").fetchall() == [(1,)]
    assert raw.execute("SELECT enabled FROM workflow_overrides").fetchall() == [(0,)]


@with_each("value", [2, -1, 0.5, "yes"])
def test_flags_that_are_neither_true_nor_false_refuse_the_database(sqlite_place: Place, value: Any) -> None:
    """migrations MG-48."""
    raw = original(sqlite_place, SEED, ROWS)
    raw.execute("UPDATE executions SET success = ? WHERE success = 1", (value,))
    with pytest.raises(SchemaMismatch, match=r"executions\.success is '.*, which is no flag that can be read"):
        migrate(sqlite_place.backend())


def test_lists_of_what_was_taken_over_are_in_the_order_of_time(sqlite_place: Place) -> None:
    """migrations MG-48: texts have another order than the times that they spell."""
    raw = original(sqlite_place, SEED)
    moments = ("2026-07-27 23:00:00", "2026-07-27T22:59:59.999Z", "2026-07-28T00:30:00+02:00", "2026-07-27T23:30:00")
    for at, moment in enumerate(moments):
        insert = "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at)"
        raw.execute(f"{insert} VALUES (?, 'w', 't', 'p', ?, ?)", (f"r{at}", moment, moment))
    with StateStore.open(sqlite_place.url) as store:
        assert [run.id for run in walked(store.workflows.runs.list)] == ["r3", "r0", "r1", "r2"]


def walked(listing: Callable[..., Any]) -> list[Any]:
    """The items of the pages of a list, one item on each page."""
    found: list[Any] = []
    token = None
    while len(found) < 100:
        page = listing(limit=1, page_token=token)
        found += page.items
        token = page.next_page_token
        if token is None:
            break
    return found
