"""A worker drives runs of its workflows, as threads or as tasks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from lastlight_state import StateStore
from lastlight_state.errors import BackendUnavailable, ClaimLost, InvalidValue, MisuseError
from lastlight_state.testing import Database
from lastlight_state.worker import Job, Retry, RunFailed, Worker, common
from lastlight_state.worker.calls import Left
from lastlight_state.workflows import RunOptions, Trigger, WorkflowRun

TRIGGER = Trigger("issue-7", type="webhook")
SECONDS = 30
SHORT = timedelta(milliseconds=300)


@pytest.fixture
def store(database: Database) -> Iterator[StateStore]:
    """A store on each backend, with the time of the machine."""
    with StateStore.open(database.url) as opened:
        yield opened


def new(store: StateStore, workflow: str = "review", *, queued: bool = False, **given: Any) -> WorkflowRun:
    """A run for a worker."""
    options = RunOptions(status="queued") if queued else RunOptions(offered=True)
    return store.workflows.runs.create(workflow, trigger=TRIGGER, phase="p", options=options, **given)


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def working(worker: Worker) -> Any:
    """The worker at work, on a thread."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def ended(store: StateStore, run: WorkflowRun) -> WorkflowRun:
    """The run, once it has ended."""
    until(lambda: store.workflows.runs.get(run.id).finished_at)
    return store.workflows.runs.get(run.id)


@pytest.mark.parametrize("queued", [True, False])
def test_a_worker_drives_offered_and_queued_runs_to_their_end(store: StateStore, queued: bool) -> None:
    """workflows W-180."""
    worker = Worker(store)

    @worker.workflow("review")
    def review(job: Job) -> None:
        doubled = job.phase("double", lambda: job.run.context["n"] * 2)
        job.phase("add", lambda: doubled + 1)
        job.emit("told", {"n": doubled})

    with working(worker):
        run = ended(store, new(store, queued=queued, context={"n": 20}))
    assert (run.status, run.scratch) == ("succeeded", {"double": 40, "add": 41})
    assert [entry.phase for entry in run.phase_history] == ["double", "add"]
    assert [execution.outcome for execution in store.workflows.executions.list(run_id=run.id)] == ["succeeded"] * 2
    assert "told" in [event.type for event in store.journal.events.list(run.id)]


def test_a_question_pauses_the_run_and_the_answer_brings_it_back(store: StateStore) -> None:
    """workflows W-181: phases that are done are not done again, and nobody holds the run meanwhile."""
    worker, calls = Worker(store), []

    @worker.workflow("review")
    def review(job: Job) -> None:
        job.phase("plan", lambda: calls.append("plan"))
        answer = job.ask("ship", "Ship it?", on_reject="resume")
        job.phase("ship", lambda: answer.status)

    with working(worker):
        run = new(store)
        until(lambda: store.workflows.runs.get(run.id).status == "paused")
        assert store.workflows.claims.find(run.id) is None
        [question] = store.workflows.approvals.list_pending(run_id=run.id)
        store.workflows.approvals.answer(question.id, "rejected", by="ana")
        done = ended(store, run)
    assert (calls, done.scratch, done.restart_count) == (["plan"], {"plan": None, "ship": "rejected"}, 0)


def test_a_function_may_fail_its_run_for_good(store: StateStore) -> None:
    """workflows W-182."""
    worker = Worker(store)

    @worker.workflow("review")
    def review(job: Job) -> None:
        raise RunFailed("no such pull request", detail={"pull": 7})

    with working(worker):
        run = ended(store, new(store))
    assert (run.status, run.error, run.error_detail) == ("failed", "no such pull request", {"pull": 7})


def test_a_function_that_raises_is_tried_again_as_its_workflow_says(
    store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    """workflows W-182: each try is a failed execution, and the run fails with the last error, at no restart."""
    worker = Worker(store)

    @worker.workflow("review", retry=Retry(attempts=2, pause=timedelta(0)))
    def review(job: Job) -> None:
        job.phase("plan", lambda: 1 / 0)

    with working(worker):
        done = ended(store, new(store))
    found = list(store.workflows.executions.list(run_id=done.id))
    assert (done.status, done.restart_count, len(found)) == ("failed", 0, 2)
    assert done.error == "ZeroDivisionError: division by zero"
    assert "1 / 0" in done.error_detail["traceback"]
    assert {execution.outcome for execution in found} == {"failed"}
    assert {store.workflows.executions.get(one.id).error for one in found} == {done.error}
    assert f"try 2 of run {done.id} failed: {done.error}; no further try" in caplog.text
    reasons = [transition.detail for transition in store.workflows.lookups.list_transitions(done.id)]
    assert f"try 1 of 2 failed: {done.error}" in reasons


def test_a_run_that_is_to_be_cancelled_is_left_at_its_next_phase(store: StateStore) -> None:
    """workflows W-183."""
    worker, began = Worker(store, lease=SHORT), threading.Event()

    @worker.workflow("review")
    def review(job: Job) -> None:
        began.set()
        while True:
            time.sleep(0.01)
            job.check()

    with working(worker):
        run = new(store)
        assert began.wait(SECONDS)
        store.workflows.runs.request_cancel(run.id, by="ana", reason="enough")
        assert ended(store, run).status == "cancelled"


def test_a_worker_that_stops_gives_its_runs_back_at_no_restart(store: StateStore) -> None:
    """workflows W-184: at the end of their phase, or after the grace in the middle of it; late writes are refused."""
    worker, refused = Worker(store, slots=2, grace=SHORT), []
    at_work, go_on = threading.Barrier(3), threading.Event()

    @worker.workflow("review")
    def review(job: Job) -> None:
        at_work.wait(SECONDS)
        if job.run.context == "stuck":
            go_on.wait(SECONDS)
            try:
                job.workflows.runs.merge_scratch(job.run.id, {"late": True})
            except ClaimLost as error:
                refused.append(error)
                raise
        while True:
            time.sleep(0.01)
            job.check()

    runs = [new(store, context=kind) for kind in ("stuck", "checks")]
    with working(worker):
        at_work.wait(SECONDS)
    for run in runs:
        claim = store.workflows.claims.take(run.id, owner="next")
        assert claim.restart_count == 0
    go_on.set()
    until(lambda: refused)
    assert store.workflows.runs.get(runs[0].id).scratch is None


def test_a_function_that_goes_on_after_the_worker_has_stopped_leaves_at_its_next_check(store: StateStore) -> None:
    """workflows W-184: also where `run` has returned, and is called again."""
    worker, began, go_on, left = Worker(store, grace=timedelta(0)), threading.Event(), threading.Event(), []

    @worker.workflow("review")
    def review(job: Job) -> None:
        began.set()
        go_on.wait(SECONDS)
        try:
            job.check()
        finally:
            left.append(sys.exc_info()[0])

    with working(worker):
        run = new(store)
        assert began.wait(SECONDS)
    assert store.workflows.claims.find(run.id) is None
    go_on.set()
    until(lambda: left)
    assert left == [Left]


def test_a_worker_that_an_error_ends_gives_its_runs_back(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """workflows W-184: any error but of the database, which may come back."""
    worker, began, go_on = Worker(store, slots=2, grace=timedelta(0)), threading.Event(), threading.Event()

    @worker.workflow("review")
    def review(_: Job) -> None:
        began.set()
        go_on.wait(SECONDS)

    def broken(**_: Any) -> Any:
        if began.is_set():
            raise MisuseError("broken")
        return ()

    monkeypatch.setattr(store.workflows.queue, "admit_next", broken)
    monkeypatch.setattr(common, "SWEEP_SECONDS", 0.01)
    run = new(store)
    with pytest.raises(MisuseError, match="broken"):
        worker.run()
    assert store.workflows.claims.find(run.id) is None
    go_on.set()


def test_slots_and_caps_bound_how_many_runs_go_on(store: StateStore) -> None:
    """workflows W-185."""
    worker, now, most, lock = Worker(store, slots=4), {"a": 0, "b": 0}, {"a": 0, "b": 0}, threading.Lock()

    def drive(job: Job) -> None:
        name = job.run.workflow_name
        with lock:
            now[name] += 1
            most[name] = max(most[name], now[name])
        time.sleep(0.05)
        with lock:
            now[name] -= 1

    worker.workflow("a", cap=1)(drive)
    worker.workflow("b")(drive)
    runs = [new(store, name, queued=True) for name in ("a", "b") for _ in range(6)]
    with working(worker):
        for run in runs:
            assert ended(store, run).status == "succeeded"
    assert most["a"] == 1
    assert 1 < most["b"] <= 4


def test_a_worker_says_how_it_is(store: StateStore) -> None:
    """workflows W-186."""
    worker, go_on = Worker(store), threading.Event()
    worker.workflow("review")(lambda _: go_on.wait(SECONDS))
    assert not worker.health().is_healthy
    with working(worker):
        run = new(store)
        until(lambda: worker.health().run_ids == (run.id,))
        assert worker.health().is_healthy
        go_on.set()
        ended(store, run)


def test_a_worker_goes_on_after_the_database_could_not_be_reached(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """workflows W-186: and says so."""
    monkeypatch.setattr(common, "PAUSE_SECONDS", 0.01)
    worker, failures = Worker(store), iter([BackendUnavailable("it is away")])
    worker.workflow("review")(lambda _: None)
    give_up = store.workflows.claims.give_up

    def failing_once(**given: Any) -> Any:
        for failure in failures:
            raise failure
        return give_up(**given)

    monkeypatch.setattr(store.workflows.claims, "give_up", failing_once)
    with working(worker):
        assert ended(store, new(store)).status == "succeeded"
    assert "the database cannot be used at the moment: it is away" in caplog.text


def test_what_a_worker_cannot_do_is_refused(store: StateStore) -> None:
    """workflows W-180."""
    worker = Worker(store)
    with pytest.raises(MisuseError, match="no workflow"):
        worker.run()
    worker.workflow("review")(lambda _: None)
    with pytest.raises(MisuseError, match="'review' has a function already"):
        worker.workflow("review")
    with pytest.raises(InvalidValue, match="slots"):
        Worker(store, slots=0)


def test_a_signal_in_the_middle_of_a_stop_stops_as_well(store: StateStore) -> None:
    """workflows W-184: a handler runs between two lines of what it interrupts, and calls the same function."""
    worker = Worker(store)

    def interrupted(*_: Any) -> Any:
        sys.settrace(None)
        worker.stop()
        sys.settrace(interrupted)
        return interrupted

    def stop() -> None:
        sys.settrace(interrupted)
        worker.stop()
        sys.settrace(None)

    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(SECONDS)
    assert not stopping.is_alive()
    assert worker.health().stopping
