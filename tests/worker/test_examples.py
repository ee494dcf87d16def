"""The programs of examples/ that drive agents, as processes that are killed in between."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.preloaded import Program
from worker.test_worker import ended, until

from lastlight_state import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger, WorkflowRun

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def store(database: Database) -> Iterator[StateStore]:
    """A store on each backend, with the time of the machine."""
    with StateStore.open(database.url) as opened:
        yield opened


@contextmanager
def example(name: str, database: Database) -> Iterator[subprocess.Popen[str]]:
    """An example in a process of its own, which is killed at the end."""
    with Program([sys.executable, str(EXAMPLES / name), database.url], text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def given(store: StateStore, workflow: str, payload: dict[str, Any]) -> WorkflowRun:
    """Return a run with an input, which any worker may take."""
    with store.transaction() as tx:
        options = RunOptions(offered=True)
        run = tx.workflows.runs.create(workflow, trigger=Trigger("issue-7"), phase="start", options=options)
        tx.outputs.inputs.ensure(run.id, payload)
    return run


def reply(store: StateStore, run: WorkflowRun, text: str) -> None:
    """Answer the question of a paused run."""
    [question] = store.workflows.approvals.list_pending(run_id=run.id)
    store.workflows.approvals.answer(question.id, "replied", by="ana", response=text)


@pytest.mark.slow
def test_the_socratic_loop_asks_until_it_is_clear_and_no_kill_repeats_a_turn(
    store: StateStore, database: Database
) -> None:
    """workflows W-195: seventeen turns of executions with session and usage, over killed workers."""
    run = given(store, "clarify", {"task": "build a bridge"})

    def is_paused() -> bool:
        return store.workflows.runs.get(run.id).status == "paused"

    for replies in ([f"reply {n}" for n in range(8)], [f"reply {n}" for n in range(8, 15)]):
        with example("socratic.py", database):
            for text in replies:
                until(is_paused)
                reply(store, run, text)
            until(is_paused)  # else the run is held, and a kill is a restart
    with example("socratic.py", database):
        reply(store, run, "that is all")
        done = ended(store, run)
    thinking = [one for one in store.workflows.executions.list(run_id=run.id) if one.skill.endswith("think")]
    told = [one for one in thinking if one.session_id and one.input_tokens]
    assert (done.status, done.restart_count) == ("succeeded", 0)
    assert len({one.session_id for one in told}) == 17
    assert len(told) == len([one for one in thinking if one.outcome == "succeeded"]) == 17
    assert done.scratch is not None
    assert len(str(done.scratch)) < 400


@pytest.mark.slow
def test_the_engine_resumes_after_a_kill_and_uses_its_cache(store: StateStore, database: Database) -> None:
    """workflows W-181: a person's choice and a signal wake runs that nobody holds."""
    runs = [given(store, "issue-to-pr", {"title": "mend"}) for _ in range(2)]
    for number, run in enumerate(runs):

        def is_paused_for(signal: str | None, run_id: str = run.id) -> bool:
            found = store.workflows.runs.get(run_id)
            return (found.status, found.waiting_for) == ("paused", signal)

        with example("engine.py", database):
            until(partial(is_paused_for, None))
        [question] = store.workflows.human_requests.list_pending(run_id=run.id)
        store.workflows.human_requests.answer(question.id, "squash", by="ana")
        with example("engine.py", database) as process:
            until(partial(is_paused_for, "merged"))
            store.journal.signals.send(run.id, "merged", {"sha": number})
            done = ended(store, run)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        assert done.status == "succeeded"
        assert done.scratch == {"analyse": {"risk": 4}, "ship": "shipped by squash", "close": {"sha": number}}
    assert len(store.outputs.cache.list().items) == 1
