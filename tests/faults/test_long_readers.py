"""backends B-84: a reader that keeps its moment for long."""

from pathlib import Path
from typing import Any

from lastlight_state import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")
CONTEXT = {"text": "x" * 50_000}


def create(store: StateStore, count: int) -> None:
    for _ in range(count):
        store.workflows.runs.create("w", trigger=TRIGGER, phase="p", context=CONTEXT)


def test_a_long_view_keeps_no_writer_waiting(database: Database) -> None:
    """backends B-84: of this store or another."""
    reader, writer = database.open(), database.open()
    create(writer, 1)
    with reader.view() as view:
        before = view.workflows.runs.list()
        create(writer, 30)
        assert view.workflows.runs.list() == before
    assert len(reader.workflows.runs.list(limit=100)) == 31
    assert writer.metrics.retries == 0


def test_the_log_that_grew_behind_a_long_view_is_bounded_again(sqlite_database: Database) -> None:
    """backends B-84: the WAL's growth is bounded afterwards by a checkpoint."""
    store, other = sqlite_database.open(), sqlite_database.open()
    wal = Path(sqlite_database.url + "-wal")
    with other.view() as view:
        view.workflows.runs.list()
        create(store, 150)
        grown = wal.stat().st_size
    create(store, 150)
    assert grown > 7_000_000
    assert wal.stat().st_size < grown + 1_000_000
    raw: Any = sqlite_database.raw()
    assert raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert wal.stat().st_size == 0
    assert len(store.workflows.runs.list(limit=500)) == 300
