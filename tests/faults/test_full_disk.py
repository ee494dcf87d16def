"""backends B-83: no room for SQLite: a named error, no corruption, and service resumes when there is room again."""

import sys
from typing import Any

import pytest
from support.preloaded import run_program
from support.undone import undone

from lastlight_state import StateStore
from lastlight_state.errors import BackendUnavailable
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")
BIG = {"text": "x" * 100_000}

# The file may not grow: the system refuses to write, in the middle of a unit or at its COMMIT.
NO_ROOM = """
import resource, sys
from lastlight_state import BackendUnavailable, StateStore
from lastlight_state.backends.waiting import Retry
from lastlight_state.workflows import Trigger

def create(name):
    store.workflows.runs.create(name, trigger=Trigger(type="cli", id="t"), phase="p", context={"t": "x" * 100_000})

store = StateStore.open(sys.argv[1])
naps = []
store._scope.retry = Retry(store.metrics, sleep=naps.append)
create("before")
first = store.workflows.runs.list().items[0].id
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
try:
    for number in range(20):
        create(f"during {number}")
except BackendUnavailable as error:
    print(error, error.outcome, len(naps))
naps.clear()
try:
    while True:
        store.workflows.runs.set_trace(first, trace_id="x" * 200, span_id=None)
except BackendUnavailable as error:
    print(error, error.outcome, len(naps))
names = {run.workflow_name for run in store.workflows.runs.list()}
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
create("after")
assert {run.workflow_name for run in store.workflows.runs.list()} == names | {"after"}
print(number == len(names) - 1)
store.close()
"""


@pytest.fixture
def full(sqlite_database: Database) -> StateStore:
    """A store whose database may not grow by more than a few pages."""
    store = sqlite_database.open()
    room(store, 20)
    return store


def room(store: StateStore, pages: int) -> None:
    """Let the database have so many pages more than it has now."""
    with store.transaction() as tx:
        present = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {present + pages}")


def create(on: Any, name: str = "w", **given: Any) -> str:
    made: str = on.workflows.runs.create(name, trigger=TRIGGER, phase="p", **given).id
    return made


def names(store: StateStore) -> list[str]:
    return sorted(run.workflow_name for run in store.workflows.runs.list())


def test_a_full_disk_is_named_and_service_resumes(full: StateStore, sqlite_database: Database) -> None:
    """backends B-83."""
    create(full, "before")
    with pytest.raises(BackendUnavailable, match="the disk is full") as raised:
        create(full, "during", context=BIG)
    assert raised.value.outcome == "none"
    assert full.metrics.retries == 0
    assert names(full) == ["before"]
    create(full, "small")
    room(full, 1000)
    create(full, "after", context=BIG)
    assert names(full) == ["after", "before", "small"]
    assert sqlite_database.raw().execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_call_that_finds_no_room_undoes_itself_and_its_block_goes_on(full: StateStore) -> None:
    """backends B-41."""
    with full.transaction() as tx:
        create(tx, "first")
        with pytest.raises(BackendUnavailable, match="the disk is full"):
            create(tx, "second", context=BIG)
        create(tx, "third")
    undone(full, lambda tx: create(tx, "never"))
    assert names(full) == ["first", "third"]


@pytest.mark.slow
def test_a_write_that_the_system_refuses_is_repeated_and_then_named(sqlite_database: Database) -> None:
    """backends B-50: an I/O error is repeated as busy is, and harms nothing; one statement or several."""
    command = [sys.executable, "-W", "error", "-c", NO_ROOM, sqlite_database.url]
    finished = run_program(command, capture_output=True, text=True, check=False)
    assert finished.stderr == ""
    refused = "input or output failed (SQLITE_IOERR_WRITE) none 6"
    assert finished.stdout.splitlines() == [refused, refused, "True"]
    assert sqlite_database.raw().execute("PRAGMA integrity_check").fetchall() == [("ok",)]
