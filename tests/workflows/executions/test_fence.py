"""The fence: what is written about a run's executions is written by whoever holds the run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.each import with_each
from support.sent import recorded
from support.workflows.steps import Raw, started, wait_until_blocked

from lastlight_state.errors import ClaimLost, InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Claim, Failure, NodeRef, Trigger, Usage

Write = Callable[[Any, str, str, Claim | None], Any]

WRITES: dict[str, Write] = {
    "start": lambda on, run, _, claim: on.start("deploy:plan", run_id=run, claim=claim),
    "start of a node": lambda on, run, _, claim: on.start("deploy:plan", run_id=run, node=NodeRef("a"), claim=claim),
    "skip": lambda on, run, _, claim: on.skip("deploy:plan", run_id=run, reason="off", claim=claim),
    "update": lambda on, _, e, claim: on.update(e, checkpoint=[1], usage=Usage(turns=9), claim=claim),
    "sign of life": lambda on, _, e, claim: on.update(e, claim=claim),
    "finish": lambda on, _, e, claim: on.finish(e, "succeeded", usage=Usage(turns=9), claim=claim),
    "interrupt": lambda on, run, _, claim: on.interrupt(run, reason="the holder died", claim=claim),
    "overrule": lambda on, _, e, claim: on.overrule(e, failure=Failure("no"), claim=claim),
    "save output": lambda on, _, e, claim: on.save_output(e, "text", claim=claim),
    "save output of a loop": lambda on, _, e, claim: on.save_output(e, "text", loop="fix", claim=claim),
}


@pytest.fixture
def watch(database: Database) -> Raw:
    """A connection beside the one that holds a lock."""
    return Raw(database)


def stored(raw: Raw) -> list[tuple[Any, ...]]:
    """Everything that an engine write could have changed."""
    rows = raw("SELECT id, outcome, turns, output_text, checkpoint, heartbeat_at FROM executions ORDER BY id")
    return rows + raw("SELECT id, scratch, updated_at FROM workflow_runs ORDER BY id")


@with_each("write", WRITES.values(), ids=list(WRITES))
def test_a_write_needs_the_claim_that_holds_the_run(store: StateStore, raw: Raw, write: Write) -> None:
    """workflows W-14, case 1: a claim that was taken over, none at all, one of another run, and the right one."""
    executions, run, other = store.workflows.executions, started(store), started(store)
    execution = executions.start("deploy:plan", run_id=run.id)
    stale = raw.hold(run.id, "worker-1")
    held = raw.hold(run.id, "worker-2")
    raw.hold(other.id)
    foreign = raw.hold(other.id)
    assert foreign.epoch == held.epoch
    before = stored(raw)
    for claim in (stale, None, foreign):
        with pytest.raises(ClaimLost) as caught:
            write(executions, run.id, execution.id, claim)
        lost = caught.value
        assert (lost.run_id, lost.presented) == (run.id, claim.epoch if claim else None)
        assert (lost.current_epoch, lost.held_by, lost.status) == (held.epoch, "worker-2", "running")
        assert stored(raw) == before
    write(executions, run.id, execution.id, held)
    assert stored(raw) != before


def test_a_claim_on_a_run_that_nobody_holds_is_lost(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-48."""
    executions = store.workflows.executions
    for write in WRITES.values():
        run = started(store)
        execution = executions.start("deploy:plan", run_id=run.id)
        claim = raw.hold(run.id)
        raw("UPDATE workflow_runs SET claim_owner = NULL")
        before = stored(raw)
        with pytest.raises(ClaimLost) as caught:
            write(executions, run.id, execution.id, claim)
        assert (caught.value.presented, caught.value.held_by) == (claim.epoch, None)
        assert stored(raw) == before
        write(executions, run.id, execution.id, None)
        assert stored(raw) != before


def test_an_execution_knows_the_epoch_it_began_in(store: StateStore, raw: Raw) -> None:
    """workflows W-50."""
    run = started(store)
    claim = raw.hold(run.id)
    execution = store.workflows.executions.start("deploy:plan", run_id=run.id, claim=claim)
    assert execution.claim_epoch == claim.epoch


def test_the_present_holder_ends_what_an_earlier_one_began(store: StateStore, raw: Raw) -> None:
    """workflows W-52."""
    executions, run = store.workflows.executions, started(store)
    execution = executions.start("deploy:plan", run_id=run.id, claim=raw.hold(run.id))
    now = raw.hold(run.id, "worker-2")
    ended = executions.finish(execution.id, "succeeded", claim=now)
    assert (ended.outcome, ended.claim_epoch) == ("succeeded", now.epoch - 1)


def test_a_lost_claim_says_so_even_of_an_execution_that_has_ended(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-48, case 1: the new holder has interrupted what the old one began."""
    executions, run = store.workflows.executions, started(store)
    old = raw.hold(run.id)
    execution = executions.start("deploy:plan", run_id=run.id, claim=old)
    executions.interrupt(run.id, reason="taken over", claim=raw.hold(run.id, "worker-2"))
    with pytest.raises(ClaimLost, match="worker-2"):
        executions.finish(execution.id, "succeeded", claim=old)
    assert executions.get(execution.id).outcome == "interrupted"


def test_a_run_that_was_cancelled_says_why_the_claim_is_lost(store: StateStore, raw: Raw) -> None:
    """workflows W-18, W-48."""
    executions, run = store.workflows.executions, started(store)
    claim = raw.hold(run.id)
    execution = executions.start("deploy:plan", run_id=run.id, claim=claim)
    store.workflows.runs.cancel(run.id, by="ana", reason="enough")
    with pytest.raises(ClaimLost) as caught:
        executions.finish(execution.id, "failed", failure=Failure("late"), claim=claim)
    assert (caught.value.status, caught.value.held_by) == ("cancelled", None)
    assert executions.get(execution.id).outcome == "cancelled"


def test_a_fenced_owner_may_report_what_it_spent(store: StateStore, raw: Raw) -> None:
    """workflows W-51, case 27."""
    executions, run = store.workflows.executions, started(store)
    old = raw.hold(run.id)
    execution = executions.start("deploy:plan", run_id=run.id, claim=old)
    raw.hold(run.id, "worker-2")
    for claim in (old, None):
        assert executions.update(execution.id, usage=Usage(turns=4), claim=claim).turns == 4
    with pytest.raises(ClaimLost):
        executions.finish(execution.id, "succeeded", usage=Usage(turns=5), claim=old)
    assert executions.get(execution.id).turns == 4


def test_a_chat_turn_has_nothing_to_claim(store: StateStore, raw: Raw) -> None:
    """workflows W-14."""
    executions, claim = store.workflows.executions, raw.hold(started(store).id)
    trigger = Trigger("thread-1")
    with pytest.raises(InvalidValue, match="claim"):
        executions.start("chat", trigger=trigger, claim=claim)
    turn = executions.start("chat", trigger=trigger)
    for write in ("update", "finish", "overrule", "save output"):
        with pytest.raises(InvalidValue, match="claim"):
            WRITES[write](executions, "", turn.id, claim)
    assert executions.get(turn.id) == turn
    executions.save_output(turn.id, "hello")
    ended = executions.finish(turn.id, "succeeded")
    assert executions.finish(turn.id, "succeeded") == ended


@with_each("write", WRITES.values(), ids=list(WRITES))
def test_a_write_waits_for_a_takeover_that_is_being_committed(
    watch: Raw, every_backend: StateStore, raw: Raw, write: Write
) -> None:
    """workflows W-10, W-14: the fence is no earlier read, so the write loses when the takeover commits."""
    executions, run = every_backend.workflows.executions, started(every_backend)
    execution = executions.start("deploy:plan", run_id=run.id)
    old = raw.hold(run.id)
    raw("BEGIN IMMEDIATE" if raw.name == "sqlite" else "BEGIN")
    with ThreadPoolExecutor(1) as pool:
        try:
            raw.hold(run.id, "worker-2")
            writing = pool.submit(write, executions, run.id, execution.id, old)
            wait_until_blocked(watch)
            assert not writing.done()
        finally:
            raw("COMMIT")
        with pytest.raises(ClaimLost):
            writing.result()
    assert watch("SELECT count(*), min(outcome) FROM executions WHERE workflow_run_id = ?", run.id) == [(1, "running")]


def test_a_refused_write_looks_again_under_the_lock(database: Database, raw: Raw) -> None:
    """workflows W-10, W-14: what stood in its way has gone meanwhile, so it is no reason any more."""
    with recorded(database) as (store, sent):
        executions = store.workflows.executions
        for write in WRITES.values():
            run = started(store)
            execution = executions.start("deploy:plan", run_id=run.id)
            theirs = raw.hold(run.id, "worker-2")
            ours = theirs.model_copy(update={"epoch": theirs.epoch + 1})
            before = stored(raw)
            sent.before("BEGIN", lambda run_id=run.id: raw.hold(run_id, "worker-1"))  # type: ignore[misc]
            write(executions, run.id, execution.id, ours)
            assert stored(raw) != before
