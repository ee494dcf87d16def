"""A block around the work of an execution."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from support.each import with_each
from support.workflows.steps import TRIGGER, Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, LostRace, MisuseError, NotFound
from lastlight_state.workflows import Failure, NodeRef, Usage

SPENT = Usage(turns=2, input_tokens=10, cost_usd=Decimal("0.25"))


class Broken(Exception):
    """What a phase raises."""


def test_a_block_starts_an_execution_and_ends_it_succeeded(store: StateStore) -> None:
    """workflows W-59: with what the block said of it."""
    executions, run = store.workflows.executions, started(store)
    with executions.running("deploy:plan", run_id=run.id, node=NodeRef("plan")) as execution:
        assert executions.get(execution.id).outcome == "running"
        assert repr(execution).startswith(f"RunningExecution(Execution(id='{execution.id}'")
        execution.usage, execution.output, execution.session_id = SPENT, "the plan", "s-1"
        execution.node_state = "finished"
    ended = executions.get(execution.id)
    assert (ended.outcome, ended.turns, ended.cost_usd, ended.session_id) == ("succeeded", 2, Decimal("0.25"), "s-1")
    assert executions.find_output(execution.id) == "the plan"
    assert store.workflows.nodes.get(run.id, NodeRef("plan")).state == "finished"


def test_a_block_may_end_in_another_way(store: StateStore) -> None:
    """workflows W-59."""
    executions, run = store.workflows.executions, started(store)
    with executions.running("deploy:plan", run_id=run.id) as execution:
        execution.outcome, execution.failure = "deferred", Failure("no quota", stop_reason="quota")
    ended = executions.get(execution.id)
    assert (ended.outcome, ended.error, ended.stop_reason) == ("deferred", "no quota", "quota")


def test_a_block_says_why_it_stopped_and_a_failure_alone_fails_it(store: StateStore) -> None:
    """workflows W-59: a success has no failure, and that is refused where it is set."""
    executions, run = store.workflows.executions, started(store).id
    with executions.running("deploy:plan", run_id=run) as first:
        first.stop_reason = "end_turn"
    with executions.running("deploy:plan", run_id=run) as second:
        second.failure = Failure("no quota")
    assert [(found.outcome, found.stop_reason) for found in map(executions.get, (first.id, second.id))] == [
        ("succeeded", "end_turn"),
        ("failed", None),
    ]
    with pytest.raises(InvalidValue), executions.running("deploy:plan", run_id=run) as third:
        third.outcome, third.failure = "succeeded", Failure("no")
    with pytest.raises(InvalidValue), executions.running("deploy:plan", run_id=run) as fourth:
        fourth.failure, fourth.outcome = Failure("no"), "succeeded"
    assert {executions.get(ended.id).outcome for ended in (third, fourth)} == {"failed"}


def test_a_block_that_raises_fails_the_execution_and_raises_the_same(store: StateStore) -> None:
    """workflows W-59: usage and output are kept."""
    executions, run, raised = store.workflows.executions, started(store), Broken("no \0route")

    def work() -> None:
        with executions.running("deploy:plan", run_id=run.id) as execution:
            execution.usage, execution.output = SPENT, "half a plan"
            raise raised

    with pytest.raises(Broken) as caught:
        work()
    assert caught.value is raised
    assert not hasattr(raised, "__notes__")
    [ended] = executions.list(run_id=run.id)
    assert (ended.outcome, ended.error, ended.turns) == ("failed", "Broken: no \N{REPLACEMENT CHARACTER}route", 2)
    assert executions.find_output(ended.id) == "half a plan"


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_block_interrupts_the_execution(
    every_backend: StateStore, interruption: type[BaseException]
) -> None:
    """workflows W-59."""
    executions, run = every_backend.workflows.executions, started(every_backend)
    with pytest.raises(interruption), executions.running("deploy:plan", run_id=run.id):
        raise interruption
    [ended] = executions.list(run_id=run.id)
    assert (ended.outcome, ended.error) == ("interrupted", interruption.__name__)


def test_a_database_that_breaks_hides_no_error_of_the_work(store: StateStore, raw: Raw) -> None:
    """workflows W-59."""
    raised = Broken("no route")

    def work() -> None:
        with store.workflows.executions.running("chat", trigger=TRIGGER):
            raw("ALTER TABLE executions RENAME TO lost_executions")
            raise raised

    with pytest.raises(Broken) as caught:
        work()
    raw("ALTER TABLE lost_executions RENAME TO executions")
    assert caught.value is raised
    [note] = raised.__notes__
    assert "could not be finished: BackendError" in note


def test_a_block_may_end_its_execution_itself(store: StateStore) -> None:
    """workflows W-59: what it used is kept all the same; to say two ends is told."""
    executions, run = store.workflows.executions, started(store)
    with executions.running("deploy:plan", run_id=run.id) as execution:
        executions.finish(execution.id, "skipped")
        execution.usage = SPENT
    ended = executions.get(execution.id)
    assert (ended.outcome, ended.turns) == ("skipped", 2)

    def twice() -> None:
        with executions.running("deploy:plan", run_id=run.id) as execution:
            executions.finish(execution.id, "skipped")
            execution.outcome = "failed"

    with pytest.raises(LostRace):
        twice()


def test_usage_is_kept_where_the_claim_was_lost(store: StateStore, raw: Raw) -> None:
    """workflows W-51, W-59: and nothing else."""
    executions, run = store.workflows.executions, started(store)
    claim = store.workflows.claims.take(run.id, owner="worker-1")

    def work() -> None:
        with executions.running("deploy:plan", run_id=run.id, claim=claim) as execution:
            raw.hold(run.id, "worker-2")
            execution.usage, execution.output = SPENT, "late"

    with pytest.raises(ClaimLost):
        work()
    [left] = executions.list(run_id=run.id)
    assert (left.outcome, left.turns, executions.find_output(left.id)) == ("running", 2, None)


@with_each(
    ("name", "value"),
    [
        ("usage", Usage(turns=-1)),
        ("usage", "much"),
        ("output", "a\0"),
        ("session_id", " "),
        ("outcome", "running"),
        ("failure", "no"),
        ("stop_reason", "x" * 65),
        ("node_state", "done"),
    ],
)
def test_what_could_not_be_stored_is_refused_where_it_is_set(state_store: StateStore, name: str, value: Any) -> None:
    """workflows W-59."""
    run, node = started(state_store), NodeRef("plan")
    running = state_store.workflows.executions.running("deploy:plan", run_id=run.id, node=node)
    with pytest.raises(InvalidValue), running as block:
        setattr(block, name, value)
    [ended] = state_store.workflows.executions.list(run_id=run.id)
    assert ended.outcome == "failed"


@with_each(
    "given",
    [
        (("failure", Failure("no", stop_reason="quota")), ("stop_reason", "end_turn")),
        (("stop_reason", "end_turn"), ("failure", Failure("no", stop_reason="quota"))),
        (("failure", Failure("no", stop_reason="x" * 65)),),
        (("node_state", "finished"),),
    ],
)
def test_what_does_not_fit_together_is_refused_where_it_is_set(
    every_backend: StateStore, given: tuple[tuple[str, Any], ...]
) -> None:
    """workflows W-52, W-59: two stop reasons, or the state of a node without one; the execution has ended."""
    executions, run = every_backend.workflows.executions, started(every_backend)

    def work() -> None:
        with executions.running("deploy:plan", run_id=run.id) as block:
            for name, value in given:
                setattr(block, name, value)

    with pytest.raises(InvalidValue):
        work()
    [ended] = executions.list(run_id=run.id)
    assert ended.outcome == "failed"


def test_a_block_that_cannot_start_does_not_begin(store: StateStore) -> None:
    """workflows W-59: errors as of `start`."""
    run = started(store, status="queued")
    with pytest.raises(Conflict), store.workflows.executions.running("deploy:plan", run_id=run.id):
        pytest.fail("the block must not begin")
    with pytest.raises(NotFound), store.workflows.executions.running("deploy:plan", run_id="nobody"):
        pytest.fail("the block must not begin")


def test_no_block_within_a_transaction(every_backend: StateStore) -> None:
    """workflows W-59."""
    with every_backend.transaction() as tx, pytest.raises(MisuseError):
        tx.workflows.executions.running("chat", trigger=TRIGGER)
