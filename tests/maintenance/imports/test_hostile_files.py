"""Files of other programs that somebody made to be read without end, or to be read through something else."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.endless import endless

from lastlight_state import StateStore
from lastlight_state.backends.sqlite import untrusted
from lastlight_state.errors import BackendUnavailable, Conflict
from lastlight_state.maintenance.imports import foreign
from lastlight_state.testing import Database

ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"
RUNS = "run_id, workflow_name, status, created_at_ms"


@pytest.fixture
def store(database: Database) -> Iterator[StateStore]:
    with database.open() as store:
        yield store


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with one run of the second original program."""
    with closing(sqlite3.connect(tmp_path / "source.db")) as connection, connection:
        connection.execute(f"CREATE TABLE _smithers_runs ({RUNS})")
        connection.execute("INSERT INTO _smithers_runs VALUES ('r', 'w', 'finished', 1)")
    return tmp_path / "source.db"


def test_a_view_in_the_place_of_a_table_is_no_table(every_backend: StateStore, source: Path) -> None:
    """backends B-97."""
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("DROP TABLE _smithers_runs")
        columns = ", ".join(f"n AS {name}" for name in RUNS.split(", "))
        connection.execute(f"CREATE VIEW _smithers_runs AS {ENDLESS} SELECT {columns} FROM x")
    with pytest.raises(Conflict, match="has not the table _smithers_runs") as refused:
        every_backend.maintenance.imports.run(source, kind="smithers-db")
    assert refused.value.code == "unknown_source"


def test_a_table_without_end_is_a_damaged_source(every_backend: StateStore, source: Path) -> None:
    """backends B-97: by the steps until its first row, here of an order, or by the number of its rows."""
    endless(source, "_smithers_runs")
    with pytest.raises(Conflict) as refused:
        every_backend.maintenance.imports.run(source, kind="smithers-db")
    assert refused.value.code == "damaged_source"
    with (
        foreign.open_file(source) as opened,
        pytest.raises(Conflict, match=r"more rows than bytes|longer to read"),
    ):
        for _ in opened.rows("_smithers_runs"):
            pass


def test_a_slow_reader_of_rows_is_not_cut_short(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-97: what counts is the time until the next row, not what is done with one."""
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.executemany("INSERT INTO _smithers_runs VALUES (?, 'w', 'finished', 1)", [(n,) for n in range(50)])
    moment = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    monkeypatch.setattr(untrusted, "_STEPS", 1)
    with foreign.open_file(source) as opened:
        for _ in opened.rows("_smithers_runs"):
            moment[0] += untrusted.MOST_SECONDS + 1


def test_a_file_inside_a_folder_is_opened_through_no_link(source: Path) -> None:
    """backends B-97: nor a FIFO in its place waited for; a link that was named itself is followed."""
    linked, fifo = source.with_name("linked.db"), source.with_name("fifo.db")
    linked.symlink_to(source)
    os.mkfifo(fifo)
    with pytest.raises(BackendUnavailable, match="cannot be opened"), foreign.open_file(linked, follow=False):
        pass
    with foreign.open_file(linked) as opened:
        assert opened.tables() == ["_smithers_runs"]
    asked = threading.Thread(target=foreign.is_sqlite, args=(fifo,), daemon=True)
    asked.start()
    asked.join(10)
    assert not asked.is_alive()
