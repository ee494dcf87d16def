"""A store and ``fork``: the child's copy is refused, the parent goes on, and the child may open a store of its own."""

import os
import sys
from pathlib import Path

import pytest
from support.preloaded import run_program

from lastlight_state import StateStore
from lastlight_state.backends.sqlite import file_connections
from lastlight_state.errors import MisuseError
from lastlight_state.testing import Database

COMMON = """
import os, sys, traceback
from lastlight_state import MisuseError, StateStore
from lastlight_state.workflows import Trigger

def create(store, name):
    store.workflows.runs.create(name, trigger=Trigger(type="cli", id="t"), phase="p")

def in_child(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child

def ended(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

store = StateStore.open(sys.argv[1])
create(store, "before")
store.workflows.runs.list()
"""

REFUSED = """
def use():
    for call in (store.workflows.runs.list, store.transaction().__enter__, lambda: create(store, "child")):
        try:
            call()
        except MisuseError as error:
            assert "fork" in str(error)
        else:
            raise AssertionError
    store.close()
    store.close()

ended(in_child(use))
create(store, "after")
store.close()
"""

OWN_STORE = """
told, say = os.pipe()
heard, answer = os.pipe()

def use():
    with StateStore.open(sys.argv[1]) as own:
        create(own, "child")
        own.workflows.runs.list()
        os.write(say, b".")
        os.read(heard, 1)
        create(own, "child after its parent's end")

child = in_child(use)
os.read(told, 1)
create(store, "after")
store.close()
os.write(answer, b".")
ended(child)
"""

IN_A_UNIT = """
def use():
    try:
        StateStore.open(sys.argv[1])
    except MisuseError as error:
        assert "spawn" in str(error)
    else:
        raise AssertionError

with store.transaction() as tx:
    create(tx, "in the transaction")
    ended(in_child(use))
with store.view():
    ended(in_child(use))
create(store, "after")
store.close()
"""

UNDER_LOAD = """
import signal, threading

stop = threading.Event()

def load(number):
    while not stop.is_set():
        create(store, f"load {number}")
        store.workflows.runs.list(limit=2)
        with store.transaction() as tx:
            create(tx, f"load {number}")

def use():
    signal.alarm(60)  # ends a child that hangs
    for call in (store.workflows.runs.list, store.transaction().__enter__, lambda: create(store, "child")):
        try:
            call()
        except MisuseError as error:
            assert "fork" in str(error)
        else:
            raise AssertionError
    try:
        with StateStore.open(sys.argv[1]) as own:
            create(own, "own")
    except MisuseError as error:
        assert "spawn" in str(error)

threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
children = [in_child(use) for _ in range(int(sys.argv[2]))]
stop.set()
for thread in threads:
    thread.join()
for child in children:
    ended(child)
create(store, "after")
store.close()
"""

LEAVING_A_BLOCK = """
def leave():
    raise SystemExit

child = None
try:
    with store.transaction() as tx:
        create(tx, "in the transaction")
        child = os.fork()
        if child == 0:
            leave()
except SystemExit:
    os._exit(0)
ended(child)
create(store, "after")
store.close()
"""


def run(script: str, url: str, *more: str) -> None:
    """Run a script without coverage: it writes SQLite files too, and a child of busy threads can hang in SQLite."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]  # of Python: a fork beside threads
    command = [sys.executable, *warnings, "-c", COMMON + script, url, *more]
    finished = run_program(command, env=environment, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")


def names(store: StateStore) -> set[str]:
    return {run.workflow_name for run in store.workflows.runs.list()}


@pytest.mark.slow
def test_the_childs_copy_of_a_store_is_refused_and_the_parents_goes_on(fresh_database: Database) -> None:
    """backends B-11: after ``fork`` the child's copy is `MisuseError`."""
    run(REFUSED, fresh_database.url)
    assert names(fresh_database.open()) == {"before", "after"}


@pytest.mark.slow
def test_a_child_may_open_its_own_store_and_loses_nothing_when_its_parent_closes(fresh_database: Database) -> None:
    """backends B-11: SQLite would take the parent's locks for the child's, and drop the log under it."""
    run(OWN_STORE, fresh_database.url)
    assert names(fresh_database.open()) == {"before", "child", "after", "child after its parent's end"}
    if fresh_database.name == "sqlite":
        assert fresh_database.raw().execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.slow
def test_a_child_of_a_parent_in_the_middle_of_a_unit_is_kept_from_the_file(
    state_store: StateStore, state_dir: Path
) -> None:
    """backends B-11: those connections of SQLite can neither be used nor closed in the child."""
    run(IN_A_UNIT, str(state_dir / "lastlight.db"))
    assert names(state_store) == {"before", "in the transaction", "after"}


@pytest.mark.parametrize("children", [25, pytest.param(240, marks=pytest.mark.soak)])
def test_children_forked_under_load_are_told_and_never_hang(fresh_database: Database, children: int) -> None:
    """backends B-11: whatever locks the parent's threads had at that moment."""
    run(UNDER_LOAD, fresh_database.url, str(children))
    assert "after" in names(fresh_database.open())


@pytest.mark.slow
def test_a_child_that_leaves_its_parents_block_does_not_end_it(fresh_database: Database) -> None:
    """backends B-11: its ROLLBACK would be the parent's."""
    run(LEAVING_A_BLOCK, fresh_database.url)
    assert names(fresh_database.open()) == {"before", "in the transaction", "after"}


def test_of_a_file_that_is_not_there_a_child_has_inherited_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-11: it may make one while its parent is in the middle of a unit on another."""
    monkeypatch.setattr(file_connections, "_inherited", {})
    held, missing = tmp_path / "held.db", tmp_path / "missing.db"
    held.touch()
    for path in (held, missing):
        file_connections.inherit(path, idle=[], in_use=[object()])
    file_connections.let_go(missing)
    with pytest.raises(MisuseError):
        file_connections.let_go(held)
