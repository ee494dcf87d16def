"""The steps of a run in the hands of a worker: phases of agents, loops, waits, inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel
from support.each import with_each
from worker.test_worker import ended, new, until, working

from lastlight_state import StateStore
from lastlight_state.errors import MisuseError
from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database
from lastlight_state.worker import Job, Retry, Worker
from lastlight_state.workflows import RunningExecution, RunOptions, Trigger, Usage, WorkflowRun

OFFERED: dict[str, Any] = {
    "trigger": Trigger("issue-7", type="webhook"),
    "phase": "p",
    "options": RunOptions(offered=True),
}
LARGE = "a draft of five thousand characters " * 150


@pytest.fixture
def store(database: Database) -> Iterator[StateStore]:
    """A store on each backend, with the time of the machine."""
    with StateStore.open(database.url) as opened:
        yield opened


class Plan(BaseModel):
    """A plan as a model."""

    title: str
    due: datetime
    steps: tuple[int, ...]


@dataclass
class Point:
    """A point as a dataclass."""

    x: int
    y: Decimal


def paused(store: StateStore, run: WorkflowRun) -> WorkflowRun:
    """Return the run, once it is paused."""
    until(lambda: store.workflows.runs.get(run.id).status == "paused")
    return store.workflows.runs.get(run.id)


def answer(store: StateStore, run: WorkflowRun, text: str) -> None:
    """Answer the question of a paused run."""
    paused(store, run)
    [question] = store.workflows.approvals.list_pending(run_id=run.id)
    store.workflows.approvals.answer(question.id, "replied", by="ana", response=text)


def test_a_phase_of_an_agent_stores_all_that_it_says_of_its_execution(store: StateStore) -> None:
    """workflows W-189: session, usage, details and output, in the commit that ends the phase."""
    worker = Worker(store)

    @worker.workflow("review")
    def review(job: Job) -> None:
        def plan(execution: RunningExecution) -> int:
            execution.session_id, execution.usage = "s-1", Usage(input_tokens=9, cost_usd=Decimal("0.01"))
            execution.output, execution.details = "the whole plan", {"cpu": 2}
            return 7

        assert job.phase("plan", plan) == 7

    with working(worker):
        run = ended(store, new(store))
    [found] = store.workflows.executions.list(run_id=run.id)
    execution = store.workflows.executions.get(found.id)
    assert (run.status, run.scratch) == ("succeeded", {"plan": 7})
    assert (execution.session_id, execution.input_tokens, execution.details) == ("s-1", 9, {"cpu": 2})
    assert store.workflows.executions.find_output(execution.id) == "the whole plan"


@with_each(
    ("result", "returns", "comes_back"),
    [
        (None, None, None),
        ((1, 2), None, [1, 2]),
        ({"lastOutputExecutionId": "x"}, None, {"lastOutputExecutionId": "x"}),
        (LARGE, None, LARGE),
        ('{"result":1}' + LARGE, None, '{"result":1}' + LARGE),
        ([LARGE, 2**60], None, [LARGE, 2**60]),
        (
            Plan(title="t", due=datetime(2026, 1, 2, tzinfo=UTC), steps=(1, 2)),
            Plan,
            Plan(title="t", due=datetime(2026, 1, 2, tzinfo=UTC), steps=(1, 2)),
        ),
        (
            Plan(title=LARGE, due=datetime(2026, 1, 2, tzinfo=UTC), steps=()),
            Plan,
            Plan(title=LARGE, due=datetime(2026, 1, 2, tzinfo=UTC), steps=()),
        ),
        (Point(1, Decimal("0.10")), Point, Point(1, Decimal("0.10"))),
        ({datetime(2026, 1, 2, tzinfo=UTC)}, set[datetime], {datetime(2026, 1, 2, tzinfo=UTC)}),
    ],
    ids=[
        "none",
        "tuple",
        "pointer",
        "large text",
        "odd text",
        "large json",
        "model",
        "large model",
        "dataclass",
        "set",
    ],
)
def test_a_result_is_the_same_at_first_and_after_a_resume(
    store: StateStore, result: Any, returns: Any, comes_back: Any
) -> None:
    """workflows W-189."""
    worker, seen, calls = Worker(store), list[Any](), list[Any]()

    @worker.workflow("review")
    def review(job: Job) -> None:
        def work() -> Any:
            calls.append(1)
            return result

        seen.append(job.phase("plan", work, returns=returns))
        job.ask("ship", "Ship it?", kind="reply")

    with working(worker):
        run = new(store)
        answer(store, run, "yes")
        ended(store, run)
    assert (seen, len(calls)) == ([comes_back, comes_back], 1)


def test_no_number_of_results_fills_the_scratch(store: StateStore) -> None:
    """workflows W-189: what has no room there is found by its execution."""
    worker, seen, calls = Worker(store), list[Any](), list[Any]()
    names = [f"phase-{n:03}" for n in range(60)]

    @worker.workflow("review")
    def review(job: Job) -> None:
        def work(name: str) -> str:
            calls.append(name)
            return name * 180

        seen.append([job.phase(name, partial(work, name)) for name in names])
        job.ask("ship", "Ship it?", kind="reply")

    with working(worker):
        run = new(store)
        answer(store, run, "yes")
        done = ended(store, run)
    assert done.status == "succeeded"
    assert seen == [[name * 180 for name in names]] * 2
    assert calls == names


def test_each_turn_of_a_loop_has_names_of_its_own(store: StateStore) -> None:
    """workflows W-195: ask, answer, until it is clear; the text of a turn is the bridge to the next."""
    worker, bridge = Worker(store), list[Any]()

    @worker.workflow("review")
    def review(job: Job) -> None:
        for turn in job.loop("socratic", limit=20):
            bridge.append((turn.number, turn.last_output()))
            replies = [gate.response for gate in turn.answers()]

            def draft(execution: RunningExecution, n: int = turn.number, replies: list[Any] = replies) -> str:
                execution.session_id, execution.usage = f"s-{n}", Usage(input_tokens=5)
                return f"{n} {replies} {LARGE}"

            text = turn.phase("draft", draft)
            reply = turn.ask("reply", text[:40], kind="reply")
            turn.emit("replied", {"text": reply.response}, event_id="reply")
            if reply.response == "clear":
                break
        job.phase("end", lambda: "done")

    with working(worker):
        run = new(store)
        for text in ["why", "how", "clear"]:
            answer(store, run, text)
        done = ended(store, run)
    executions = store.workflows.executions.list(run_id=run.id).items
    texts = [store.workflows.executions.find_output(one.id) for one in reversed(executions)]
    assert done.status == "succeeded"
    assert [one.session_id for one in executions] == [None, "s-2", "s-1", "s-0"]
    assert [str(text)[:20] for text in texts[:3]] == [
        "0 [] a draft of five",
        "1 ['why'] a draft of",
        "2 ['why', 'how'] a d",
    ]
    assert len(str(done.scratch)) < 300
    assert [entry.phase for entry in done.phase_history] == ["socratic.draft"] * 3 + ["end"]
    events = [event for event in store.journal.events.list(run.id) if event.type == "replied"]
    assert [event.payload["text"] for event in events] == ["why", "how", "clear"]
    assert bridge[-1] == (2, texts[2])


def test_a_loop_within_a_loop_begins_anew_in_each_turn(store: StateStore) -> None:
    """workflows W-195: also where the run was resumed in the middle."""
    worker, done = Worker(store), list[Any]()

    @worker.workflow("review", retry=Retry(attempts=9, pause=timedelta(0)))
    def review(job: Job) -> None:
        for outer in job.loop("outer", limit=2):
            for inner in outer.loop("inner", limit=3):
                inner.phase("work", lambda o=outer.number, i=inner.number: done.append((o, i)))
                if inner.number == 1 and len(done) in (2, 5):
                    inner.phase("again", lambda: done.append("again"))
                    raise ValueError("once")

    with working(worker):
        run = ended(store, new(store))
    assert run.status == "succeeded"
    assert [one for one in done if one != "again"] == [(o, i) for o in range(2) for i in range(3)]
    assert done.count("again") == 1


def test_the_turns_of_a_loop_end_at_its_limit(store: StateStore) -> None:
    """workflows W-195."""
    worker, numbers = Worker(store), list[int]()

    @worker.workflow("review")
    def review(job: Job) -> None:
        numbers.extend(turn.number for turn in job.loop("draft", limit=3))
        with pytest.raises(MisuseError, match="the loop 'draft' is used a second time"):
            job.loop("draft")

    with working(worker):
        assert ended(store, new(store)).status == "succeeded"
    assert numbers == [0, 1, 2]


def test_a_sleep_pauses_the_run_once(store: StateStore) -> None:
    """workflows W-196: held by nobody; a length begins at the first call."""
    worker, calls = Worker(store), list[Any]()

    @worker.workflow("review")
    def review(job: Job) -> None:
        calls.append(job.run.status)
        job.sleep(timedelta(milliseconds=300))
        job.sleep(until=datetime(2020, 1, 1, tzinfo=UTC), name="over")
        job.phase("end", lambda: 1)

    with working(worker):
        run = new(store)
        assert paused(store, run).pause_reason == "timer"
        done = ended(store, run)
    assert (done.status, len(calls), done.restart_count) == ("succeeded", 2, 0)


def test_a_signal_wakes_the_run_that_waits_for_it(store: StateStore) -> None:
    """workflows W-196: each wait takes one, also one that came before."""
    worker, seen = Worker(store), list[Any]()

    @worker.workflow("review")
    def review(job: Job) -> None:
        first = job.wait_for("merged", timeout=timedelta(hours=1))
        second = job.wait_for("merged", name="again")
        none = job.wait_for("never", timeout=timedelta(0))
        job.phase("end", lambda: 1)
        seen.append((first and first.payload, second and second.payload, none))

    with working(worker):
        run = new(store)
        assert paused(store, run).waiting_for == "merged"
        store.journal.signals.send(run.id, "merged", {"n": 1})
        store.journal.signals.send(run.id, "merged", {"n": 2})
        done = ended(store, run)
    assert (done.status, seen) == ("succeeded", [({"n": 1}, {"n": 2}, None)])
    store.journal.signals.send(run.id, "never")


def test_a_wait_that_timed_out_stays_so(store: StateStore) -> None:
    """workflows W-196: a signal that comes later changes nothing of what the function has seen."""
    worker, seen = Worker(store), list[Any]()

    @worker.workflow("review")
    def review(job: Job) -> None:
        seen.append(job.wait_for("merged", timeout=timedelta(milliseconds=100)))
        job.ask("ship", "Ship it?", kind="reply")

    with working(worker):
        run = new(store)
        until(lambda: list(store.workflows.approvals.list_pending(run_id=run.id)))
        store.journal.signals.send(run.id, "merged")
        answer(store, run, "yes")
        ended(store, run)
    assert set(seen) == {None}


def test_a_job_has_its_input_as_the_declared_type(store: StateStore) -> None:
    """workflows W-197: one that does not fit fails the run at once."""
    worker, seen = Worker(store), list[Any]()
    given = {"title": "t", "due": "2026-01-02T00:00:00Z", "steps": [1]}

    @worker.workflow("typed", input=Plan)
    def typed(job: Job) -> None:
        seen.append(job.input)

    worker.workflow("plain", input=dict)(lambda job: seen.append(job.input))
    worker.workflow("none")(lambda job: job.input)

    def driven(name: str, payload: dict[str, Any] | None) -> WorkflowRun:
        with store.transaction() as tx:
            run = tx.workflows.runs.create(name, **OFFERED)
            if payload is not None:
                tx.outputs.inputs.ensure(run.id, payload)
        return ended(store, run)

    with working(worker):
        assert driven("typed", given).status == driven("plain", given).status == "succeeded"
        wrong = [driven("typed", {"title": 1}), driven("typed", None), driven("none", given)]
    assert seen == [Plan(title="t", due=datetime(2026, 1, 2, tzinfo=UTC), steps=(1,)), given]
    assert [run.status for run in wrong] == ["failed"] * 3
    assert ["due: Field required" in str(wrong[0].error), "no input" in str(wrong[1].error)] == [True] * 2
    assert "input=Model" in str(wrong[2].error)


def test_a_cron_makes_one_run_at_each_instant_whoever_comes_first(store: StateStore) -> None:
    """workflows W-198: run and fire are one commit."""
    workers = [Worker(store, owner=name) for name in "ab"]
    for worker in workers:
        worker.workflow("tidy", cron=CronSpec("* * * * * *", target="tidy", payload={"days": 3}))(lambda _: None)
    with working(workers[0]), working(workers[1]):
        until(lambda: len(store.workflows.runs.list(workflow_names=["tidy"]).items) >= 2)
    runs = store.workflows.runs.list(workflow_names=["tidy"]).items
    fires = store.schedules.fires.list(cron_name="tidy").items
    assert len(runs) == len([fire for fire in fires if fire.status == "ok"])
    run = store.workflows.runs.get(runs[-1].id)
    assert (run.context, run.trigger_type) == ({"days": 3}, "cron")
