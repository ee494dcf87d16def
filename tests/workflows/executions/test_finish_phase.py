"""Ending a phase is one verb."""

from __future__ import annotations

import pytest
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, InvalidValue, LostRace, PayloadTooLarge, StaleVersion
from lastlight_state.workflows import Execution, ExecutionOptions, Failure, LoopStep, Trigger, Usage


def test_the_execution_its_phase_and_scratch_end_together_and_once(store: StateStore, raw: Raw) -> None:
    """workflows W-126: alone or in a transaction, with the holder's claim."""
    executions, runs = store.workflows.executions, store.workflows.runs
    claim = store.workflows.claims.take(started(store).id, owner="a")
    first = executions.start("deploy:build", run_id=claim.run_id, claim=claim)
    with pytest.raises(ClaimLost):
        executions.finish_phase(first.id, scratch={"built": 1})
    with pytest.raises(PayloadTooLarge):
        executions.finish_phase(first.id, scratch={"built": "x" * 70_000}, claim=claim)
    assert executions.get(first.id).outcome == "running"
    for _ in range(2):
        ended = executions.finish_phase(first.id, summary="green", scratch={"built": 1}, claim=claim)
        assert ended.outcome == "succeeded"
    with pytest.raises(LostRace):
        executions.finish_phase(first.id, "failed", failure=Failure("red"), claim=claim)
    second = executions.start("deploy:test", run_id=claim.run_id, claim=claim)
    executions.finish_phase(second.id, "failed", failure=Failure("red"), claim=claim)
    run = runs.get(claim.run_id)
    told = [(entry.phase, entry.success, entry.summary) for entry in run.phase_history]
    assert told == [("build", True, "green"), ("test", False, "red")]
    assert (run.current_phase, run.phase_count, run.scratch) == ("test", 2, {"built": 1})
    raw.check_history(claim.run_id)


def test_an_execution_without_a_run_has_no_phase(store: StateStore) -> None:
    """workflows W-126."""
    chat = store.workflows.executions.start("chat", trigger=Trigger("t"))
    with pytest.raises(InvalidValue, match="must belong to a run"):
        store.workflows.executions.finish_phase(chat.id)
    assert store.workflows.executions.get(chat.id).outcome == "running"


def test_a_phase_of_an_agent_ends_in_one_commit(store: StateStore) -> None:
    """workflows W-126: session, usage, details, output with its pointer, and the loop's iteration, or none of them."""
    executions, loops = store.workflows.executions, store.workflows.loops
    claim = store.workflows.claims.take(started(store).id, owner="a")
    store.workflows.runs.merge_scratch(claim.run_id, {"draft": {"mood": "calm"}}, claim=claim)
    draft = executions.start("essay:draft", run_id=claim.run_id, claim=claim)

    def end(iteration: int) -> Execution:
        return executions.finish_phase(
            draft.id,
            usage=Usage(input_tokens=7),
            session_id="s-1",
            output="a draft",
            pointer="draft",
            details={"cpu": 2},
            loop=LoopStep("draft", iteration),
            claim=claim,
        )

    with pytest.raises(StaleVersion) as refused:
        end(3)
    assert (refused.value.expected, refused.value.found) == (3, 0)
    assert executions.get(draft.id).outcome == "running"
    assert executions.find_output(draft.id) is None
    ended = end(0)
    assert end(0) == ended
    assert (ended.session_id, ended.input_tokens, ended.details) == ("s-1", 7, {"cpu": 2})
    assert executions.find_output(draft.id) == "a draft"
    run, loop = store.workflows.runs.get(claim.run_id), loops.find(claim.run_id, "draft")
    assert run.scratch == {"draft": {"mood": "calm", "lastOutputExecutionId": draft.id}}
    assert loops.find_output(claim.run_id, "draft") == "a draft"
    assert (loop and loop.iteration, run.phase_count) == (1, 1)


def test_a_pointer_without_an_output_is_refused(store: StateStore) -> None:
    """workflows W-126."""
    run = started(store)
    phase = store.workflows.executions.start("essay:draft", run_id=run.id)
    with pytest.raises(InvalidValue, match="without an output"):
        store.workflows.executions.finish_phase(phase.id, pointer="draft")


def test_an_end_keeps_or_replaces_details_and_output(store: StateStore) -> None:
    """workflows W-52: what is not given stays, and what is given replaces what was stored."""
    executions, run = store.workflows.executions, started(store)

    def begun() -> str:
        execution = executions.start("deploy:a", run_id=run.id, options=ExecutionOptions(details={"n": 1}))
        executions.save_output(execution.id, "early")
        return execution.id

    kept = executions.finish(begun(), "succeeded")
    assert (executions.find_output(kept.id), kept.details) == ("early", {"n": 1})
    replaced = executions.finish(begun(), "succeeded", output="late", details=[2])
    assert (executions.find_output(replaced.id), replaced.details) == ("late", [2])
