"""Ending a phase is one verb."""

from __future__ import annotations

import pytest
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, InvalidValue, LostRace, PayloadTooLarge
from lastlight_state.workflows import Failure, Trigger


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
    assert told == [("build", True, "green"), ("test", False, None)]
    assert (run.current_phase, run.phase_count, run.scratch) == ("test", 2, {"built": 1})
    raw.check_history(claim.run_id)


def test_an_execution_without_a_run_has_no_phase(store: StateStore) -> None:
    """workflows W-126."""
    chat = store.workflows.executions.start("chat", trigger=Trigger("t"))
    with pytest.raises(InvalidValue, match="must belong to a run"):
        store.workflows.executions.finish_phase(chat.id)
    assert store.workflows.executions.get(chat.id).outcome == "running"
