"""The contract of executions."""

from __future__ import annotations

from decimal import Decimal

import pytest

from lastlight_state import LostRace, StateStore
from lastlight_state.testing.contracts.steps import fresh, started
from lastlight_state.workflows import Failure, Usage


class ExecutionsContract:
    """``store.workflows.executions``"""

    def test_an_execution_ends_once_with_what_it_used(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, started(store)
        execution = executions.start("contract:plan", run_id=run.id, session_id=fresh("s"))
        usage = Usage(turns=3, input_tokens=812, output_tokens=96, cost_usd=Decimal("0.012345"))
        ended = executions.finish(execution.id, "succeeded", usage=usage)
        assert (ended.outcome, ended.success, ended.turns, ended.cost_usd) == (
            "succeeded",
            True,
            3,
            Decimal("0.012345"),
        )
        assert executions.get(execution.id) == ended
        with pytest.raises(LostRace):
            executions.finish(execution.id, "failed", failure=Failure("too late"))

    def test_a_phase_is_run_until_it_succeeded(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, started(store)
        assert executions.phase_state("contract:plan", run_id=run.id) == "run"
        failing = executions.start("contract:plan", run_id=run.id)
        assert executions.phase_state("contract:plan", run_id=run.id) == "running"
        executions.finish(failing.id, "failed", failure=Failure("no"))
        executions.finish(executions.start("contract:plan", run_id=run.id).id, "succeeded")
        assert executions.phase_state("contract:plan", run_id=run.id) == "done"

    def test_the_scratch_points_to_an_output(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, started(store)
        execution = executions.start("contract:explore", run_id=run.id)
        executions.save_output(execution.id, "what was found ✓", loop="explore")
        scratch = store.workflows.runs.get(run.id).scratch
        assert executions.find_output(scratch["explore"]["lastOutputExecutionId"]) == "what was found ✓"

    def test_a_session_leads_to_its_execution(self, store: StateStore) -> None:
        session = fresh("session")
        execution = store.workflows.executions.start("contract:plan", run_id=started(store).id, session_id=session)
        assert store.workflows.executions.find_by_session(session) == execution
