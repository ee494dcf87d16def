"""Files that somebody else made so that taking them over would read without end, or compute for every later write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.each import with_each
from support.migrations.originals import ROWS, SEED, dump, original
from support.migrations.support import Place

from lastlight_state import StateStore
from lastlight_state.backends.sqlite import originals
from lastlight_state.errors import BackendUnavailable, SchemaMismatch

ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"


def view(table: str) -> Callable[[Any], str]:
    """A view in the place of a table."""

    def made(connection: Any) -> str:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] or ["id"]
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(f"CREATE VIEW {table} AS {ENDLESS} SELECT {', '.join(f'n AS {c}' for c in columns)} FROM x")
        return f"{table} is a view, expected a table"

    return made


def trigger(connection: Any) -> str:
    """A trigger that reads without end."""
    body = f"SELECT count(*) FROM ({ENDLESS.replace('x(n)', 'y(n)').replace('FROM x', 'FROM y')} SELECT n FROM y)"
    connection.execute(f"CREATE TRIGGER evil BEFORE UPDATE ON workflow_runs BEGIN {body}; END")
    return "trigger evil on workflow_runs"


def expression(connection: Any) -> str:
    """An index that computes for every row."""
    connection.execute("CREATE INDEX evil ON executions (hex(zeroblob(length(id))))")
    return "index evil on executions"


def condition(connection: Any) -> str:
    """An index with a condition that computes."""
    connection.execute("CREATE INDEX evil ON executions (id) WHERE length(hex(zeroblob(9))) > 1")
    return "index evil on executions"


def virtual(connection: Any) -> str:
    """A virtual table in the place of a later table of ours."""
    connection.execute("CREATE VIRTUAL TABLE run_events USING fts4(id)")
    return "run_events is a virtual table, expected a table"


@with_each("lie", [view("messaging_sessions"), view("executions"), view("run_nodes"), virtual])
def test_what_stands_in_the_place_of_a_table_is_refused_by_name(sqlite_place: Place, lie: Callable[[Any], str]) -> None:
    """migrations MG-40, backends B-97: nothing is changed."""
    connection = original(sqlite_place, SEED, ROWS)
    named = lie(connection)
    before = connection.execute("SELECT sql FROM sqlite_master").fetchall()
    with pytest.raises(SchemaMismatch, match=named):
        StateStore.open(sqlite_place.url)
    assert connection.execute("SELECT sql FROM sqlite_master").fetchall() == before


@pytest.mark.logs("runs at every write")
@pytest.mark.parametrize("lie", [expression, condition])
def test_what_computes_for_our_tables_is_told(
    sqlite_place: Place, caplog: pytest.LogCaptureFixture, lie: Callable[[Any], str]
) -> None:
    """migrations MG-40, backends B-97: it stays as it is."""
    named = lie(original(sqlite_place, SEED, ROWS))
    StateStore.open(sqlite_place.url).close()
    assert f"{named} runs at every write" in caplog.text


def test_views_and_triggers_of_other_tables_stay(sqlite_place: Place) -> None:
    """migrations MG-40: they are the file's own."""
    connection = original(sqlite_place, SEED, ROWS)
    connection.executescript(
        "CREATE TABLE notes (id TEXT); CREATE VIEW seen AS SELECT id FROM notes;"
        "CREATE TRIGGER kept AFTER INSERT ON notes BEGIN DELETE FROM notes WHERE id IS NULL; END"
    )
    with StateStore.open(sqlite_place.url) as store:
        assert store.workflows.runs.list().items
    assert "CREATE TRIGGER kept" in dump(connection)


def test_a_file_that_takes_too_long_to_check_is_refused(sqlite_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-97: as one whose own constraints compute for each row."""
    monkeypatch.setattr(originals, "_LEAST_SECONDS", 0.5)
    connection = original(sqlite_place, SEED, ROWS)
    connection.execute("CREATE TABLE notes (a CHECK (length(hex(zeroblob(5000000 + a))) > 1))")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.executemany("INSERT INTO notes VALUES (?)", [(number,) for number in range(300)])
    with pytest.raises(BackendUnavailable, match="took longer to read"):
        StateStore.open(sqlite_place.url)


@pytest.mark.logs("runs at every write")
def test_a_trigger_without_end_ends_the_take_over(sqlite_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-97: nothing is changed."""
    monkeypatch.setattr(originals, "_LEAST_SECONDS", 2.0)
    connection = original(sqlite_place, SEED, ROWS)
    trigger(connection)
    with pytest.raises(BackendUnavailable, match="took longer to read"):
        StateStore.open(sqlite_place.url)
    assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'run_events'").fetchall()
