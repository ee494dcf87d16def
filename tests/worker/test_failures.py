"""How a function that raises ends: as a failed try, whatever it raises, on a thread and in a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from worker.test_worker import ended, new, until, working

from lastlight_state import StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.errors import BackendUnavailable, ClaimLost, InvalidValue, NotFound
from lastlight_state.testing import Database
from lastlight_state.worker import AsyncJob, AsyncWorker, Job, Retry, RunFailed, Worker, common

TWICE = Retry(attempts=2, pause=timedelta(0))
LOST = ClaimLost("another", presented=1, current_epoch=2, held_by="b", status="running")
RAISED = [
    ValueError("broke"),
    InvalidValue("text", "must not be blank"),
    NotFound("approval", "a-1"),
    LOST,
    SystemExit("stop"),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    ExceptionGroup("several", [ValueError("one")]),
    BaseExceptionGroup("several", [SystemExit()]),
    TimeoutError("late"),
    RecursionError("deep"),
]
Driving = Callable[[Database, BaseException, Retry], int]


@pytest.fixture
def store(database: Database) -> Iterator[StateStore]:
    """A store on each backend, with the time of the machine."""
    with StateStore.open(database.url) as opened:
        yield opened


def name_of(error: BaseException) -> str:
    """Return the name of the error's class."""
    return type(error).__name__


def on_a_thread(database: Database, error: BaseException, retry: Retry) -> int:
    """Drive a run of the workflow that has the error's name by a function that raises; return how often it ran."""
    calls = []
    with StateStore.open(database.url) as store:
        worker = Worker(store)

        @worker.workflow(name_of(error), retry=retry)
        def review(job: Job) -> None:
            calls.append(job.run.id)
            job.phase("plan", lambda: raising(error))

        with working(worker):
            ended(store, new(store, name_of(error)))
    return len(calls)


def in_a_task(database: Database, error: BaseException, retry: Retry) -> int:
    """Drive a run of the workflow that has the error's name by a coroutine that raises; return how often it ran."""
    calls = []

    async def work() -> None:
        async with await AsyncStateStore.open(database.url) as store:
            worker = AsyncWorker(store)

            @worker.workflow(name_of(error), retry=retry)
            async def review(job: AsyncJob) -> None:
                calls.append(job.run.id)

                async def plan() -> None:
                    raising(error)

                await job.phase("plan", plan)

            running = asyncio.create_task(worker.run())
            with StateStore.open(database.url) as beside:
                run = await asyncio.to_thread(new, beside, name_of(error))
                await asyncio.to_thread(ended, beside, run)
            worker.stop()
            await asyncio.wait_for(running, 30)

    asyncio.run(work())
    return len(calls)


def raising(error: BaseException) -> Any:
    """Raise it."""
    raise error


@pytest.mark.parametrize("driving", [on_a_thread, in_a_task])
@with_each("error", RAISED, ids=map(name_of, RAISED))
def test_whatever_a_function_raises_is_a_failed_try(
    database: Database, driving: Driving, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """workflows W-182: as often as the workflow says, at no restart, with the error on execution, run and log."""
    caplog.clear()
    assert driving(database, error, TWICE) == 2
    tries = [line for line in caplog.records if line.getMessage().startswith("try ")]
    assert [(line.levelname, bool(line.exc_info)) for line in tries] == [("ERROR", True)] * 2
    with StateStore.open(database.url) as store:
        [run] = store.workflows.runs.list(workflow_names=[name_of(error)])
        found = store.workflows.executions.list(run_id=run.id)
        assert (run.status, run.restart_count) == ("failed", 0)
        assert str(store.workflows.runs.get(run.id).error).startswith(name_of(error))
        assert [(one.outcome, str(one.error).startswith(name_of(error))) for one in found] == [("failed", True)] * 2


@pytest.mark.parametrize("driving", [on_a_thread, in_a_task])
def test_a_group_of_exceptions_is_told_with_the_first_of_them(database: Database, driving: Driving) -> None:
    """workflows W-182: the group's own text, such as that of a TaskGroup, says nothing."""
    error = ExceptionGroup("unhandled errors", [ExceptionGroup("inner", [ValueError("one"), KeyError("two")])])
    driving(database, error, Retry(attempts=1))
    with StateStore.open(database.url) as store:
        [run] = store.workflows.runs.list(workflow_names=["ExceptionGroup"])
        told = "ExceptionGroup: unhandled errors (1 sub-exception): ValueError: one"
        assert store.workflows.runs.get(run.id).error == told


@pytest.mark.parametrize("driving", [on_a_thread, in_a_task])
def test_a_failure_that_the_workflow_calls_final_ends_the_run(database: Database, driving: Driving) -> None:
    """workflows W-182: so does `RunFailed`, with its own text."""
    assert driving(database, ValueError("no"), Retry(final=(ValueError,))) == 1
    assert driving(database, RunFailed("no such pull request"), TWICE) == 1


def test_tries_are_counted_anew_after_a_restart_by_a_person(store: StateStore) -> None:
    """workflows W-182."""
    worker, calls = Worker(store), []

    @worker.workflow("review", retry=TWICE)
    def review(job: Job) -> None:
        calls.append(job.run.restart_count)
        raise ValueError("broke")

    with working(worker):
        run = ended(store, new(store))
        store.workflows.runs.restart(run.id, by="ana", reason="mended")
        until(lambda: len(calls) == 4)
        ended(store, run)
    assert calls == [0, 0, 1, 1]


def test_the_pauses_between_tries_grow_up_to_a_bound() -> None:
    """workflows W-182."""
    retry = Retry(attempts=9, pause=timedelta(seconds=2), factor=3, longest=timedelta(seconds=20))
    assert [retry.pause_after(tries).total_seconds() for tries in (1, 2, 3, 4, 10_000)] == [2, 6, 18, 20, 20]
    assert Retry(pause=timedelta(0)).pause_after(5) == timedelta(0)
    for wrong in ({"attempts": 0}, {"pause": timedelta(-1)}, {"factor": 0.5}, {"factor": float("nan")}, {"final": "x"}):
        with pytest.raises(InvalidValue, match="retry"):
            Retry(**wrong)


def test_a_result_that_cannot_be_stored_fails_the_run_at_the_first_try(store: StateStore) -> None:
    """workflows W-189: the paid work is not done again, and execution and run say why."""
    worker, calls = Worker(store), list[int]()

    @worker.workflow("review", retry=TWICE)
    def review(job: Job) -> None:
        def plan() -> set[int]:
            calls.append(1)
            return {1, 2}

        job.phase("plan", plan)

    with working(worker):
        run = ended(store, new(store))
    [execution] = store.workflows.executions.list(run_id=run.id)
    assert (len(calls), run.status, execution.outcome) == (1, "failed", "failed")
    assert "the result of phase 'plan'" in str(run.error)
    assert "set" in str(execution.error)


def test_a_name_that_is_used_twice_is_refused_and_names_the_loop(store: StateStore) -> None:
    """workflows W-189."""
    worker = Worker(store)

    @worker.workflow("review")
    def review(job: Job) -> None:
        for n in range(2):
            job.phase("draft", lambda n=n: n)

    with working(worker):
        run = ended(store, new(store))
    assert (run.status, run.phase_count) == ("failed", 1)
    assert "'draft' is used a second time" in str(run.error)
    assert "job.loop" in str(run.error)


def test_a_coroutine_in_a_worker_of_threads_is_refused(store: StateStore) -> None:
    """workflows W-180."""
    worker = Worker(store)

    async def plan() -> int:
        return 7

    worker.workflow("review")(lambda job: job.phase("plan", plan))
    with working(worker):
        run = ended(store, new(store))
    assert (run.status, "AsyncWorker" in str(run.error)) == ("failed", True)


@pytest.mark.logs("could not be driven, and is taken again when its lease is over")
def test_a_run_that_cannot_be_driven_is_taken_again_after_its_lease(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-182: nothing of it was done, so this is no failed try but a restart."""
    monkeypatch.setattr(common, "SWEEP_SECONDS", 0.1)
    worker, driving = Worker(store, lease=timedelta(milliseconds=300)), store.driving
    failures = [BackendUnavailable("away")]
    worker.workflow("review")(lambda _: None)

    def failing_once(claim: Any) -> Any:
        if failures:
            raise failures.pop()
        return driving(claim)

    monkeypatch.setattr(store, "driving", failing_once)
    with working(worker):
        run = ended(store, new(store))
    assert (run.status, run.restart_count) == ("succeeded", 1)


@pytest.mark.logs("waits for the database")
def test_a_failed_try_is_stored_once_the_database_is_back(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """workflows W-182: while the worker holds the run, at no restart."""
    monkeypatch.setattr(common, "PAUSE_SECONDS", 0.01)
    away = [BackendUnavailable("away"), BackendUnavailable("away")]
    store_try = Worker._store_failed_try

    async def failing_twice(worker: Worker, *given: Any, **also: Any) -> None:
        if away:
            raise away.pop()
        await store_try(worker, *given, **also)

    monkeypatch.setattr(Worker, "_store_failed_try", failing_twice)
    worker = Worker(store)

    @worker.workflow("review", retry=TWICE)
    def review(job: Job) -> None:
        raise ValueError("broke")

    with working(worker):
        run = ended(store, new(store))
    assert (run.error, run.restart_count, away) == ("ValueError: broke", 0, [])
