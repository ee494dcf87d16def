"""Texts that later steps read, and the pointers that lead to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support import processes
from support.workflows.steps import Raw, started, together

from lastlight_state.errors import Conflict, CorruptData, InvalidValue, PayloadTooLarge
from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Execution, ExecutionOptions, Trigger


def begun(store: StateStore, run_id: str | None = None) -> Execution:
    return store.workflows.executions.start("deploy:fix", run_id=run_id or started(store).id)


def test_a_text_is_found_as_it_was_saved(store: StateStore) -> None:
    """workflows W-57."""
    executions, execution = store.workflows.executions, begun(store)
    assert executions.find_output(execution.id) is None
    for text in ("first", "", "second \u00e9 \U0001f4a1 %s :name '\""):
        executions.save_output(execution.id, text)
        assert executions.find_output(execution.id) == text
    executions.finish(execution.id, "succeeded")
    executions.save_output(execution.id, "after the end")
    assert executions.find_output(execution.id) == "after the end"
    assert executions.find_output("nobody") is None


def test_the_text_is_in_no_record(store: StateStore) -> None:
    """workflows W-57."""
    executions, execution = store.workflows.executions, begun(store)
    executions.save_output(execution.id, "a long story")
    records = [executions.get(execution.id), *executions.list()]
    assert not any("a long story" in record.model_dump_json() for record in records)
    assert not any(hasattr(record, "output_text") for record in records)


def test_a_text_has_its_limit_in_bytes(store: StateStore) -> None:
    """workflows W-3, W-4."""
    executions, execution = store.workflows.executions, begun(store)
    most = "\u00e9" * (512 * 1024)
    executions.save_output(execution.id, most)
    with pytest.raises(PayloadTooLarge) as caught:
        executions.save_output(execution.id, most + "x")
    assert (caught.value.limit, caught.value.actual) == (1024 * 1024, 1024 * 1024 + 1)
    for bad in ("a\0b", "\ud800"):
        with pytest.raises(InvalidValue):
            executions.save_output(execution.id, bad)
    assert executions.find_output(execution.id) == most


def test_a_loop_points_to_its_last_text(store: StateStore) -> None:
    """workflows W-80."""
    executions = store.workflows.executions
    run = started(store, scratch={"fix": {"tries": 1, "lastOutput": "inline"}, "other": [1]})
    for text in ("first", "second"):
        execution = begun(store, run.id)
        executions.save_output(execution.id, text, loop="fix")
        assert store.workflows.runs.get(run.id).scratch == {
            "fix": {"tries": 1, "lastOutput": "inline", "lastOutputExecutionId": execution.id},
            "other": [1],
        }
        assert executions.find_output(execution.id) == text


def test_the_first_text_of_a_loop_makes_its_member(store: StateStore) -> None:
    """workflows W-80."""
    run = started(store)
    execution = begun(store, run.id)
    store.workflows.executions.save_output(execution.id, "text", loop="fix")
    assert store.workflows.runs.get(run.id).scratch == {"fix": {"lastOutputExecutionId": execution.id}}


def test_loops_that_carry_at_once_keep_each_others_pointers(every_backend: StateStore) -> None:
    """workflows W-26, W-80."""
    run = started(every_backend)
    executions = [begun(every_backend, run.id) for _ in range(6)]

    def carry(n: int) -> None:
        every_backend.workflows.executions.save_output(executions[n].id, f"text {n}", loop=f"loop-{n}")

    assert together([lambda n=n: carry(n) for n in range(6)]) == [None] * 6  # type: ignore[misc]
    scratch = every_backend.workflows.runs.get(run.id).scratch
    assert scratch == {f"loop-{n}": {"lastOutputExecutionId": executions[n].id} for n in range(6)}


def test_a_refused_pointer_leaves_no_text_behind(store: StateStore) -> None:
    """workflows W-80: both or neither."""
    executions = store.workflows.executions
    full = started(store, scratch={"big": "x" * (64 * 1024 - 60)})
    execution = begun(store, full.id)
    with pytest.raises(PayloadTooLarge):
        executions.save_output(execution.id, "text", loop="fix")
    assert executions.find_output(execution.id) is None
    ended = started(store)
    late = begun(store, ended.id)
    store.workflows.runs.finish(ended.id, "succeeded")
    with pytest.raises(Conflict, match="succeeded"):
        executions.save_output(late.id, "text", loop="fix")
    assert executions.find_output(late.id) is None


def test_a_pointer_needs_a_run_and_a_member_that_is_an_object(store: StateStore) -> None:
    """workflows W-80."""
    executions = store.workflows.executions
    turn = executions.start("chat", trigger=Trigger("thread-1"))
    with pytest.raises(InvalidValue, match="loop"):
        executions.save_output(turn.id, "text", loop="fix")
    execution = begun(store, started(store, scratch={"fix": "done", "zero": 0}).id)
    for key in ("fix", "zero"):
        with pytest.raises(InvalidValue, match="loop"):
            executions.save_output(execution.id, "text", loop=key)
    with pytest.raises(InvalidValue, match="loop"):
        executions.save_output(execution.id, "text", loop=" ")
    assert executions.find_output(execution.id) is None


def test_a_scratch_that_is_no_object_is_not_guessed_at(store: StateStore, raw: Raw) -> None:
    """workflows W-80: as only another program could have written it."""
    run = started(store)
    execution = begun(store, run.id)
    raw("UPDATE workflow_runs SET scratch = '[1]'")
    with pytest.raises(CorruptData, match="scratch"):
        store.workflows.executions.save_output(execution.id, "text", loop="fix")
    assert store.workflows.executions.find_output(execution.id) is None


KILLED = """
import os, signal, sqlite3, sys
import psycopg, sqlalchemy
from support.loading import load
from lastlight_state import StateStore

url, backend, execution_id = sys.argv[1:]
load("db", "backends", "workflows")

class Dying:
    def execute(self, sql, *given, **options):
        if str(sql).startswith(deadly):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *given, **options)

class DyingConnection(Dying, sqlite3.Connection): pass
class DyingCursor(Dying, psycopg.Cursor): pass

if backend == "sqlite":
    engine = sqlalchemy.create_engine("sqlite:///" + url, connect_args={"factory": DyingConnection})
else:
    engine = sqlalchemy.create_engine(url, connect_args={"cursor_factory": DyingCursor})

for deadly in ("UPDATE executions SET output_text", "COMMIT", "nothing"):
    child = os.fork()
    if child == 0:
        StateStore.open(url, engine=engine).workflows.executions.save_output(execution_id, "text", loop="fix")
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_process_killed_between_pointer_and_text_leaves_neither(fresh_database: Database) -> None:
    """workflows W-80, for the pointer that save_output writes."""
    store = fresh_database.open()
    run = started(store)
    execution = store.workflows.executions.start("deploy:fix", run_id=run.id, options=ExecutionOptions(id="e-1"))
    arguments = [sys.executable, "-c", KILLED, fresh_database.url, fresh_database.name, execution.id]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with processes.started(arguments, env=environment, stdin=subprocess.PIPE) as writers:
        assert writers.stdin is not None
        assert writers.stdout is not None
        for _ in ("between", "before COMMIT"):
            assert writers.stdout.readline() == f"{-signal.SIGKILL}\n"
            assert store.workflows.runs.get(run.id).scratch is None
            assert store.workflows.executions.find_output(execution.id) is None
            writers.stdin.write("go on\n")
            writers.stdin.flush()
        assert writers.stdout.readline() == "0\n"
    assert store.workflows.runs.get(run.id).scratch == {"fix": {"lastOutputExecutionId": "e-1"}}
    assert store.workflows.executions.find_output(execution.id) == "text"
