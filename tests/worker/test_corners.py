"""Where a step of a worker meets another one: loops in loops, waits that were over, groups, odd results, crons."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field
from support.each import with_each
from worker.test_worker import ended, new, until, working

from lastlight_state import StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.errors import BackendUnavailable, InvalidValue
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database
from lastlight_state.worker import AsyncJob, AsyncWorker, Job, Retry, RunFailed, Worker, common
from lastlight_state.workflows import NodeRef, Question, WorkflowRun
from lastlight_state.workflows.runs import Runs

ONCE = Retry(attempts=1)
HASTY = Retry(attempts=3, pause=timedelta(0))
A_MOMENT = timedelta(milliseconds=50)


@pytest.fixture
def store(database: Database) -> Iterator[StateStore]:
    """A store on each backend, with the time of the machine."""
    with StateStore.open(database.url) as opened:
        yield opened


def driven(store: StateStore, function: Callable[[Job], Any], retry: Retry = ONCE) -> WorkflowRun:
    """Drive one run by a function; return how it ended."""
    worker = Worker(store)
    worker.workflow("review", retry=retry)(function)
    with working(worker):
        return ended(store, new(store))


def test_an_inner_loop_asks_anew_in_each_turn_of_the_outer_one(store: StateStore) -> None:
    """workflows W-195: and takes no signal that an earlier turn has taken."""
    told: list[Any] = []

    def review(job: Job) -> None:
        for outer in job.loop("outer", limit=2):
            for inner in outer.loop("inner", limit=2):
                asked = (outer.number, inner.number)
                signal = inner.wait_for("go")
                told.append(
                    (
                        asked,
                        inner.ask("reply", f"{asked}", kind="reply").response,
                        signal.payload["n"] if signal else None,
                    )
                )

    worker = Worker(store)
    worker.workflow("review", retry=ONCE)(review)
    with working(worker):
        run = new(store)
        for number in range(4):
            store.journal.signals.send(run.id, "go", {"n": number})
        for number in range(4):
            until(lambda: store.workflows.approvals.list_pending(run_id=run.id).items)
            [gate] = store.workflows.approvals.list_pending(run_id=run.id)
            store.workflows.approvals.answer(gate.id, "replied", by="ana", response=f"answer {number}")
        assert ended(store, run).status == "succeeded"
    answers = {asked: (response, n) for asked, response, n in told}
    assert list(answers.values()) == [(f"answer {number}", number) for number in range(4)]
    assert list(answers) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_the_last_output_of_a_loop_stays_when_other_steps_follow(store: StateStore) -> None:
    """workflows W-195: in the same turn and in the next."""
    seen: list[Any] = []

    def review(job: Job) -> None:
        for turn in job.loop("talk", limit=2):
            seen.append(turn.last_output())

            def answer(execution: Any, number: int = turn.number) -> None:
                execution.output = f"text {number}"

            turn.phase("answer", answer)
            turn.phase("small", lambda: 1)
            seen.append(turn.last_output())

    run = driven(store, review)
    assert (run.status, seen) == ("succeeded", [None, "text 0", "text 0", "text 1"])
    found = store.workflows.loops.find_output(run.id, "talk")
    assert found is not None
    assert "text 1" in str(found)


def test_a_wait_that_was_over_stays_over(store: StateStore) -> None:
    """workflows W-196: the signal that came after it is not taken, whatever step comes between."""
    told: list[Any] = []

    def review(job: Job) -> None:
        found = job.wait_for("a", timeout=A_MOMENT)
        told.append(found)
        if len(told) == 1:
            store.journal.signals.send(job.run.id, "a", {})
        job.sleep(A_MOMENT)

    assert driven(store, review).status == "succeeded"
    assert told == [None, None]


@with_each("first", ["phase", "loop"])
def test_a_phase_and_a_loop_of_one_name_are_refused(store: StateStore, first: str) -> None:
    """workflows W-195: their results stand in one key of scratch."""

    def phase(job: Job) -> None:
        job.phase("plan", lambda: 1)

    def loop(job: Job) -> None:
        for _ in job.loop("plan", limit=1):
            pass

    def review(job: Job) -> None:
        for step in (phase, loop) if first == "phase" else (loop, phase):
            step(job)

    run = driven(store, review, HASTY)
    assert run.status == "failed"
    assert "use another name" in str(run.error)


def test_a_cron_of_a_workflow_that_is_switched_off_fails_and_the_worker_goes_on(store: StateStore) -> None:
    """workflows W-198: other workflows of the worker are driven."""
    worker = Worker(store)
    worker.workflow("digest", cron=CronSpec("* * * * * *", target="digest"))(lambda _: None)
    worker.workflow("review")(lambda _: None)
    store.workflows.overrides.put("digest", enabled=False, reason="r", by="ana")
    with working(worker):
        until(lambda: store.schedules.fires.list(cron_name="digest", status="failed").items)
        assert ended(store, new(store)).status == "succeeded"


def too_long() -> Exception:
    return RunFailed("x" * 20_000)


def not_text() -> Exception:
    return RunFailed(ValueError("broke"))  # type: ignore[arg-type]


def with_a_zero() -> Exception:
    return RunFailed("broke \0 here")


def odd_detail() -> Exception:
    return RunFailed("broke", detail=object())


@pytest.mark.parametrize("made", [too_long, not_text, with_a_zero, odd_detail])
def test_run_failed_ends_the_run_whatever_it_says(store: StateStore, made: Callable[[], Exception]) -> None:
    """workflows W-182: at the first try, and at no restart."""
    calls = []

    def review(job: Job) -> None:
        calls.append(job.run.id)
        raise made()

    run = driven(store, review, HASTY)
    assert (run.status, run.restart_count, len(calls)) == ("failed", 0, 1)
    assert str(run.error).startswith(str(made())[:5])


def test_run_failed_in_a_group_of_tasks_ends_the_run(database: Database) -> None:
    """workflows W-182: as it does outside of one, with its own text."""
    calls = []

    async def work() -> WorkflowRun:
        async with await AsyncStateStore.open(database.url) as opened:
            worker = AsyncWorker(opened)

            @worker.workflow("review", retry=HASTY)
            async def review(job: AsyncJob) -> None:
                calls.append(job.run.id)

                async def ends() -> None:
                    raise RunFailed("no such issue")

                async with asyncio.TaskGroup() as group:
                    group.create_task(ends())

            running = asyncio.create_task(worker.run())
            run = await asyncio.to_thread(drive_beside, database)
            worker.stop()
            await running
            return run

    run = asyncio.run(work())
    assert (run.status, run.error, len(calls)) == ("failed", "no such issue", 1)


def drive_beside(database: Database) -> WorkflowRun:
    with StateStore.open(database.url) as beside:
        return ended(beside, new(beside))


class Files(BaseModel):
    """A model that is read by other names than those of its fields."""

    file_list: list[str] = Field(alias="fileList")


def test_a_result_with_aliases_comes_back(store: StateStore) -> None:
    """workflows W-189: at the first time and after a pause."""
    told: list[Files] = []

    def review(job: Job) -> None:
        told.append(job.phase("list", lambda: Files(fileList=["a"]), returns=Files))
        job.sleep(A_MOMENT)

    assert driven(store, review).status == "succeeded"
    assert told == [Files(fileList=["a"])] * 2


def test_a_type_that_pydantic_cannot_check_is_refused_before_the_work(store: StateStore) -> None:
    """workflows W-189"""
    calls = []

    class Plain:
        pass

    run = driven(store, lambda job: job.phase("plan", lambda: calls.append(1), returns=Plain), HASTY)
    assert (run.status, calls) == ("failed", [])
    assert "cannot return" in str(run.error)


def test_an_output_that_looks_like_a_result_is_read_as_text(store: StateStore) -> None:
    """workflows W-189"""
    told: list[Any] = []

    def plan(execution: Any) -> None:
        execution.output = '{"result": foo'

    def review(job: Job) -> None:
        told.append(job.phase("plan", plan))

    assert driven(store, review).status == "succeeded"
    assert told == ['{"result": foo']


def test_versions_of_a_worker_are_a_collection(store: StateStore) -> None:
    """workflows W-218"""
    with pytest.raises(InvalidValue, match="app_versions"):
        Worker(store, app_versions="2.0")
    assert Worker(store, app_versions={"2.0"}).app_versions == ["2.0"]


def test_a_run_that_is_to_be_cancelled_waits_for_no_try(store: StateStore) -> None:
    """workflows W-183: a worker ends it at once."""

    def review(job: Job) -> None:
        store.workflows.runs.request_cancel(job.run.id, by="ana", reason="enough")
        raise ValueError("broke")

    run = driven(store, review, Retry(attempts=3, pause=timedelta(minutes=10), longest=timedelta(minutes=10)))
    assert run.status == "cancelled"


def test_a_cron_gives_its_payload_as_the_input_that_is_declared(store: StateStore) -> None:
    """workflows W-198"""
    worker, told = Worker(store), []
    spec = CronSpec("* * * * * *", target="digest", payload={"days": 3})

    @worker.workflow("digest", input=dict, cron=spec)
    def digest(job: Job) -> None:
        told.append(job.input)

    with working(worker):
        until(lambda: told)
    assert told[0] == {"days": 3}


def test_a_run_is_driven_when_a_database_that_was_away_as_it_was_taken_is_back(
    store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-220: at no restart."""
    monkeypatch.setattr(common, "PAUSE_SECONDS", 0.01)
    real, left = Runs.get, ["away"]

    def get(runs: Runs, run_id: str) -> WorkflowRun:
        if left and threading.current_thread().name.startswith("run-"):
            left.clear()
            raise BackendUnavailable("gone")
        return real(runs, run_id)

    monkeypatch.setattr(Runs, "get", get)
    run = driven(store, lambda job: job.phase("a", lambda: 1))
    assert (run.status, run.restart_count, left) == ("succeeded", 0, [])


def test_a_question_of_an_inner_loop_is_asked_in_each_turn(store: StateStore) -> None:
    """workflows W-195"""

    def review(job: Job) -> None:
        for outer in job.loop("outer", limit=2):
            for inner in outer.loop("inner", limit=1):
                inner.ask(Question(NodeRef("who"), "text", "Who?"))

    worker = Worker(store)
    worker.workflow("review", retry=ONCE)(review)
    with working(worker):
        run = new(store)
        for _ in range(2):
            until(lambda: store.workflows.human_requests.list_pending(run_id=run.id).items)
            [asked] = store.workflows.human_requests.list_pending(run_id=run.id)
            store.workflows.human_requests.answer(asked.id, "ana", by="ana")
        assert ended(store, run).status == "succeeded"
    assert len(store.workflows.human_requests.list_for_run(run.id).items) == 2
