"""Executions end, once: finished, interrupted or overruled; and what that makes of their phase."""

from __future__ import annotations

import logging
from functools import partial
from typing import get_args

import pytest
from support.workflows.steps import Raw, started, together

from lastlight_state.errors import Conflict, InvalidValue, LostRace, NotFound, PayloadTooLarge
from lastlight_state.store import StateStore
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Execution, Failure, NodeRef, Trigger, Usage
from lastlight_state.workflows.executions import changes
from lastlight_state.workflows.executions.running import Ended

BOOM = Failure("boom", {"line": 3, "part": 1.0}, "max_turns")


def begun(store: StateStore, skill: str = "deploy:plan", run_id: str | None = None) -> Execution:
    return store.workflows.executions.start(skill, run_id=run_id or started(store).id)


def test_each_outcome_ends_an_execution(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-52."""
    for outcome in get_args(Ended):
        execution = begun(store)
        frozen_clock.advance(seconds=1.234)
        ended = store.workflows.executions.finish(execution.id, outcome)
        assert (ended.outcome, ended.success) == (outcome, outcome == "succeeded")
        assert (ended.finished_at, ended.duration_ms) == (frozen_clock.now(), 1234)
        assert store.workflows.executions.get(execution.id) == ended


def test_a_failure_is_kept_whole(store: StateStore) -> None:
    """workflows W-52."""
    failed = store.workflows.executions.finish(begun(store).id, "failed", failure=BOOM, session_id="s-1")
    assert (failed.error, failed.error_detail) == ("boom", {"line": 3, "part": 1.0})
    assert (failed.stop_reason, failed.session_id) == ("max_turns", "s-1")


def test_a_red_check_that_ran_has_succeeded(store: StateStore) -> None:
    """workflows W-52."""
    executions, execution = store.workflows.executions, begun(store)
    for _ in range(2):
        ended = executions.finish(execution.id, "succeeded", stop_reason="condition_not_met")
        assert (ended.success, ended.error, ended.stop_reason) == (True, None, "condition_not_met")
    phase = executions.finish_phase(begun(store).id, stop_reason="end_turn")
    assert (phase.outcome, phase.stop_reason) == ("succeeded", "end_turn")


def test_a_success_has_no_failure_and_an_end_one_reason(store: StateStore) -> None:
    """workflows W-52: nothing is stored."""
    executions, execution = store.workflows.executions, begun(store)
    for finish in (executions.finish, executions.finish_phase):
        with pytest.raises(InvalidValue, match=r"failure: must be None for a success; stop_reason says why"):
            finish(execution.id, "succeeded", failure=Failure("text"))
        with pytest.raises(InvalidValue, match="stop_reason: must not be given twice"):
            finish(execution.id, "failed", failure=BOOM, stop_reason="max_turns")
    assert executions.get(execution.id).outcome == "running"
    ended = executions.finish(execution.id, "failed", failure=Failure("text"), stop_reason="max_turns")
    assert (ended.error, ended.stop_reason) == ("text", "max_turns")


def test_executions_whose_log_is_lost_are_listed(store: StateStore) -> None:
    """workflows W-130: ended, with tokens or turns, and without a session id; other filters hold beside it."""
    executions, run = store.workflows.executions, started(store).id
    lost = [begun(store, "deploy:plan", run).id, begun(store).id]
    executions.finish(lost[0], "failed", usage=Usage(cache_read_input_tokens=5))
    executions.finish(lost[1], "succeeded", usage=Usage(turns=1))
    executions.finish(begun(store).id, "succeeded", usage=Usage(turns=1), session_id="s-1")
    executions.finish(begun(store).id, "succeeded", usage=Usage(turns=0))
    executions.update(begun(store).id, usage=Usage(output_tokens=5))
    assert {found.id for found in executions.list(lost_log=True).items} == set(lost)
    assert [found.id for found in executions.list(lost_log=True, run_id=run).items] == lost[:1]
    assert [found.id for found in executions.list(lost_log=True, outcomes=["succeeded"], limit=1).items] == lost[1:]


def test_a_session_id_is_one_that_a_log_can_have(store: StateStore, raw: Raw) -> None:
    """workflows W-131: wherever it is given; what stands in old rows is read as it is."""
    executions, execution = store.workflows.executions, begun(store)
    longest = "x" * 200
    assert executions.update(execution.id, session_id=longest).session_id == longest
    for wrong in ("../../x", "a.b", "", "x" * 201, "é", "a b"):
        for given in (
            partial(executions.start, "deploy:plan", run_id=execution.run_id),
            partial(executions.update, execution.id),
            partial(executions.finish, execution.id, "succeeded"),
        ):
            with pytest.raises(InvalidValue, match="session_id: must be 1 to 200 of A-Z a-z 0-9 _ -"):
                given(session_id=wrong)
    raw("UPDATE executions SET session_id = '../../x' WHERE id = ?", execution.id)
    found = executions.find_by_session("../../x")
    assert found is not None
    assert (found.id, found.session_id) == (execution.id, "../../x")


def test_what_finish_does_not_say_keeps_what_update_stored(store: StateStore) -> None:
    """workflows W-52."""
    executions, execution = store.workflows.executions, begun(store)
    usage = Usage(turns=3, input_tokens=100, model="m-1", price_table="2026-01")
    updated = executions.update(execution.id, session_id="s-1", checkpoint={"at": 3}, usage=usage)
    ended = executions.finish(execution.id, "succeeded", usage=Usage(turns=4))
    kept = ("session_id", "checkpoint", "input_tokens", "model", "price_table", "heartbeat_at")
    assert [getattr(ended, name) for name in kept] == [getattr(updated, name) for name in kept]
    assert ended.turns == 4


def test_the_clock_may_step_back_and_no_duration_is_negative(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-5, W-52."""
    execution = begun(store)
    frozen_clock.advance(seconds=-60)
    assert store.workflows.executions.finish(execution.id, "succeeded").duration_ms == 0


def test_the_same_finish_again_gives_the_first_one(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-52."""
    executions, execution = store.workflows.executions, begun(store)
    first = executions.finish(execution.id, "failed", failure=BOOM)
    frozen_clock.advance(seconds=5)
    equal = Failure("boom", {"part": 1, "line": 3}, "max_turns")
    assert executions.finish(execution.id, "failed", failure=equal) == first


def test_another_failure_comes_too_late(store: StateStore) -> None:
    """workflows W-52."""
    executions, execution = store.workflows.executions, begun(store)
    first = executions.finish(execution.id, "failed", failure=BOOM)
    for late in (None, Failure("other"), Failure("boom", {"line": 4}, "max_turns"), Failure("boom")):
        with pytest.raises(LostRace) as caught:
            executions.finish(execution.id, "failed", failure=late)
        assert caught.value.details["found"] == "failed"
    assert executions.get(execution.id) == first


def test_a_late_failure_never_overwrites_a_success(store: StateStore) -> None:
    """workflows W-52."""
    executions, execution = store.workflows.executions, begun(store)
    first = executions.finish(execution.id, "succeeded")
    with pytest.raises(LostRace, match="has already ended: succeeded") as caught:
        executions.finish(execution.id, "failed", failure=BOOM)
    assert caught.value.details["found"] == "succeeded"
    assert executions.get(execution.id) == first


def test_of_concurrent_ends_one_wins(every_backend: StateStore) -> None:
    """workflows W-52."""
    executions = every_backend.workflows.executions
    for _ in range(5):
        end = partial(executions.finish, begun(every_backend).id, "failed")
        results = together([partial(end, failure=Failure(f"boom {n}")) for n in range(6)])
        won = [result for result in results if isinstance(result, Execution)]
        lost = [result for result in results if isinstance(result, LostRace)]
        assert (len(won), len(lost)) == (1, 5)
        assert executions.get(won[0].id) == won[0]


def test_a_change_that_does_not_fit_and_that_nothing_speaks_against_was_lost_to_another(
    every_backend: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-52: by somebody who writes without the run's lock, between the second look and the second try."""
    execution = begun(every_backend)
    monkeypatch.setattr(changes.Change, "attempt", lambda *_: None)
    with pytest.raises(LostRace, match="is being changed by another process"):
        every_backend.workflows.executions.finish(execution.id, "succeeded")


def test_a_cancelled_run_keeps_its_end_and_that_of_its_executions(store: StateStore) -> None:
    """workflows W-18."""
    run = started(store)
    execution = begun(store, run_id=run.id)
    cancelled = store.workflows.runs.cancel(run.id, by="ana", reason="enough")
    with pytest.raises(LostRace) as caught:
        store.workflows.executions.finish(execution.id, "failed", failure=BOOM)
    assert caught.value.details["found"] == "cancelled"
    with pytest.raises(Conflict, match="cancelled"):
        store.workflows.runs.finish(run.id, "failed", failure=BOOM)
    assert store.workflows.runs.get(run.id) == cancelled
    assert store.workflows.executions.get(execution.id).error is None


def test_an_unknown_execution_is_not_found(store: StateStore) -> None:
    """workflows W-13."""
    executions = store.workflows.executions
    for call in (
        lambda: executions.get("e"),
        lambda: executions.finish("e", "succeeded"),
        lambda: executions.update("e", checkpoint=1),
        lambda: executions.update("e", usage=Usage(turns=1)),
        lambda: executions.overrule("e", failure=Failure("no")),
        lambda: executions.save_output("e", "text"),
        lambda: executions.save_output("e", "text", loop="fix"),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert (caught.value.kind, caught.value.key) == ("execution", "e")
    assert executions.find_output("e") is None
    assert executions.find_by_session("s") is None


def test_an_end_is_said_in_words_of_the_vocabulary(store: StateStore) -> None:
    """workflows W-1, W-3."""
    executions, execution = store.workflows.executions, begun(store)
    for outcome in ("running", "done", "SUCCEEDED"):
        with pytest.raises(InvalidValue, match="outcome"):
            executions.finish(execution.id, outcome)  # type: ignore[arg-type]
    for failure in (Failure("x" * (16 * 1024 + 1)), Failure("boom", "x" * (64 * 1024))):
        with pytest.raises(PayloadTooLarge):
            executions.finish(execution.id, "failed", failure=failure)
    with pytest.raises(InvalidValue, match="stop_reason"):
        executions.finish(execution.id, "failed", failure=Failure("boom", stop_reason="x" * 65))
    assert executions.get(execution.id) == execution


def test_interrupt_ends_what_is_in_flight_in_its_own_run(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-53: two runs of one trigger."""
    executions, run, sibling = store.workflows.executions, started(store), started(store)
    done = executions.finish(begun(store, run_id=run.id).id, "succeeded")
    flying = [begun(store, run_id=run.id), executions.start("deploy:a", run_id=run.id, node=NodeRef("a"))]
    theirs = begun(store, run_id=sibling.id)
    frozen_clock.advance(seconds=2)
    assert executions.interrupt(run.id, reason="the holder died") == 2
    for execution in flying:
        ended = executions.get(execution.id)
        assert (ended.outcome, ended.success, ended.stop_reason) == ("interrupted", False, "interrupted")
        assert (ended.finished_at, ended.duration_ms, ended.error) == (frozen_clock.now(), 2000, "the holder died")
    assert executions.get(theirs.id) == theirs
    assert executions.get(done.id) == done
    assert executions.interrupt(run.id, reason="again") == 0


def test_interrupt_can_be_of_one_skill(store: StateStore) -> None:
    """workflows W-53."""
    executions, run = store.workflows.executions, started(store)
    plan, fix = begun(store, "deploy:plan", run.id), begun(store, "deploy:fix", run.id)
    assert executions.interrupt(run.id, skill="deploy:fix", reason="stuck") == 1
    assert [executions.get(execution.id).outcome for execution in (plan, fix)] == ["running", "interrupted"]
    with pytest.raises(NotFound, match="workflow_run"):
        executions.interrupt("nobody", reason="stuck")
    with pytest.raises(InvalidValue, match="reason"):
        executions.interrupt(run.id, reason=" ")


def test_an_overruled_success_runs_again(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-54."""
    executions, run = store.workflows.executions, started(store)
    execution = executions.finish(begun(store, run_id=run.id).id, "succeeded")
    assert executions.phase_state("deploy:plan", run_id=run.id) == "done"
    frozen_clock.advance(seconds=5)
    overruled = executions.overrule(execution.id, failure=Failure("the tests are red", {"red": 2}))
    assert (overruled.outcome, overruled.success, overruled.stop_reason) == ("failed", False, "overruled")
    assert (overruled.error, overruled.error_detail) == ("the tests are red", {"red": 2})
    assert (overruled.finished_at, overruled.duration_ms) == (execution.finished_at, execution.duration_ms)
    assert executions.phase_state("deploy:plan", run_id=run.id) == "run"
    assert executions.overrule(execution.id, failure=Failure("the tests are red", {"red": 2})) == overruled


def test_overrule_also_ends_one_in_flight(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-54."""
    execution = begun(store)
    frozen_clock.advance(seconds=5)
    overruled = store.workflows.executions.overrule(execution.id, failure=Failure("no"))
    assert (overruled.outcome, overruled.finished_at) == ("failed", frozen_clock.now())
    assert overruled.duration_ms == 5000


def test_only_a_success_can_be_overruled(store: StateStore) -> None:
    """workflows W-54."""
    executions = store.workflows.executions
    failed = executions.finish(begun(store).id, "failed", failure=BOOM)
    with pytest.raises(Conflict) as caught:
        executions.overrule(failed.id, failure=Failure("no"))
    assert (caught.value.code, caught.value.details["found"]) == ("execution_finished", "failed")
    with pytest.raises(InvalidValue, match="stop_reason"):
        executions.overrule(failed.id, failure=BOOM)
    assert executions.get(failed.id) == failed


def test_what_is_in_flight_beats_what_is_done(store: StateStore) -> None:
    """workflows W-55."""
    executions, run = store.workflows.executions, started(store)
    assert executions.phase_state("deploy:plan", run_id=run.id) == "run"
    executions.finish(begun(store, run_id=run.id).id, "succeeded")
    again = begun(store, run_id=run.id)
    assert executions.phase_state("deploy:plan", run_id=run.id) == "running"
    executions.finish(again.id, "failed", failure=BOOM)
    assert executions.phase_state("deploy:plan", run_id=run.id) == "done"


def test_a_phase_is_done_in_its_own_run_or_for_its_trigger(store: StateStore) -> None:
    """workflows W-55."""
    executions, run, sibling = store.workflows.executions, started(store), started(store)
    stranger = started(store, trigger=Trigger("t-9", type="api"))
    executions.finish(begun(store, run_id=run.id).id, "succeeded")
    assert executions.phase_state("deploy:plan", run_id=sibling.id) == "run"
    assert executions.phase_state("deploy:plan", run_id=stranger.id, trigger_id=run.trigger_id) == "run"
    assert executions.phase_state("deploy:plan", trigger_id=run.trigger_id) == "done"
    assert executions.phase_state("deploy:plan", trigger_id=stranger.trigger_id) == "run"


def test_skipped_and_failed_phases_are_to_run(store: StateStore) -> None:
    """workflows W-55."""
    executions, run = store.workflows.executions, started(store)
    executions.skip("deploy:plan", run_id=run.id, reason="off")
    executions.finish(begun(store, run_id=run.id).id, "failed", failure=BOOM)
    assert executions.phase_state("deploy:plan", run_id=run.id) == "run"


def test_a_skill_is_compared_exactly(store: StateStore) -> None:
    """workflows W-55."""
    executions, run = store.workflows.executions, started(store)
    for other in ("deploy:fixXloop", "deploy:FIX_LOOP", "deploy:fix_loop ", "deploy:fix_loop2"):
        executions.finish(begun(store, other, run.id).id, "succeeded")
    assert executions.phase_state("deploy:fix_loop", run_id=run.id) == "run"


def test_a_phase_has_a_state_in_a_known_run_only(store: StateStore) -> None:
    """workflows W-13, W-55."""
    with pytest.raises(NotFound, match="workflow_run"):
        store.workflows.executions.phase_state("deploy:plan", run_id="nobody")
    with pytest.raises(InvalidValue, match="expected run_id or trigger_id"):
        store.workflows.executions.phase_state("deploy:plan")


def test_tokens_without_a_session_are_counted_once(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    """workflows W-58."""
    execution = begun(store)
    store.workflows.executions.update(execution.id, usage=Usage(output_tokens=5))
    with caplog.at_level(logging.INFO, "lastlight_state"):
        for _ in range(2):
            store.workflows.executions.finish(execution.id, "succeeded")
    assert store.metrics.executions_without_session == 1
    [record] = caplog.records
    assert execution.id in record.getMessage()


def test_a_session_or_no_tokens_is_nothing_to_count(store: StateStore) -> None:
    """workflows W-58."""
    executions, spent = store.workflows.executions, Usage(turns=2)
    stored = begun(store)
    executions.update(stored.id, session_id="s-1")
    executions.finish(stored.id, "succeeded", usage=spent)
    executions.finish(begun(store).id, "succeeded", usage=spent, session_id="s-2")
    executions.finish(begun(store).id, "failed", usage=Usage(turns=0))
    assert store.metrics.executions_without_session == 0


def test_a_finish_that_was_rolled_back_is_not_counted(store: StateStore, raw: Raw) -> None:
    """workflows W-58."""
    execution = begun(store)

    def give_up() -> None:
        with store.transaction() as tx:
            tx.workflows.executions.finish(execution.id, "succeeded", usage=Usage(turns=1))
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        give_up()
    assert store.metrics.executions_without_session == 0
    assert raw("SELECT outcome FROM executions") == [("running",)]
