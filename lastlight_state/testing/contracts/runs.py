"""Contract tests of workflow runs, claims, the queue and executions."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

import pytest

from lastlight_state import AlreadyExists, ClaimLost, Conflict, LostRace, NotFound, StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import fresh, start_run
from lastlight_state.workflows import Failure, PhaseEntry, RunOptions, Trigger, Usage

# Claims and admission

LEASE = timedelta(seconds=30)
DONE = PhaseEntry("plan", success=True)


class ClaimsContract:
    """Tests of ``store.workflows.claims``."""

    def test_a_run_has_one_holder(self, store: StateStore) -> None:
        run = start_run(store)
        claim = store.workflows.claims.take(run.id, owner="ana", lease=LEASE)
        with pytest.raises(LostRace):
            store.workflows.claims.take(run.id, owner="bo", lease=LEASE)
        holder = store.workflows.claims.find(run.id)
        assert holder is not None
        assert (holder.owner, holder.epoch) == ("ana", claim.epoch)

    def test_a_silent_holder_is_replaced_and_stays_fenced(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = start_run(store)
        silent = store.workflows.claims.take(run.id, owner="ana", lease=LEASE)
        frozen_clock.advance(LEASE + timedelta(milliseconds=1))
        taken = store.workflows.claims.take(run.id, owner="bo", lease=LEASE)
        assert (taken.restart_count, taken.epoch > silent.epoch) == (1, True)
        with pytest.raises(ClaimLost):
            store.workflows.runs.append_phase(run.id, DONE, claim=silent)
        store.workflows.runs.append_phase(run.id, DONE, claim=taken)
        assert store.workflows.runs.get(run.id).phase_count == 1

    def test_a_heartbeat_keeps_the_run(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = start_run(store)
        claim = store.workflows.claims.take(run.id, owner="ana", lease=LEASE)
        frozen_clock.advance(seconds=29)
        claim = store.workflows.claims.heartbeat(claim)
        frozen_clock.advance(seconds=29)
        assert store.workflows.claims.try_take(run.id, owner="bo", lease=LEASE) is None
        store.workflows.runs.request_cancel(run.id, by="ana", reason="not needed")
        assert store.workflows.claims.heartbeat(claim).cancel_requested

    def test_a_release_puts_back_what_was(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = start_run(store)
        store.workflows.claims.take(run.id, owner="ana", lease=LEASE)
        before = store.workflows.runs.get(run.id)
        frozen_clock.advance(seconds=60)
        store.workflows.claims.release(store.workflows.claims.take(run.id, owner="bo", lease=LEASE))
        after = store.workflows.runs.get(run.id)
        assert (after.claim_owner, after.heartbeat_at, after.lease_expires_at, after.restart_count) == (
            before.claim_owner,
            before.heartbeat_at,
            before.lease_expires_at,
            before.restart_count,
        )
        assert after.claim_epoch > before.claim_epoch


class QueueContract:
    """Tests of ``store.workflows.queue`` and ``store.workflows.waits``."""

    def test_the_first_in_line_is_admitted(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        name = fresh("queued")
        first, _ = (self._queue_run(store, frozen_clock, name) for _ in range(2))
        [claim] = store.workflows.queue.admit_next(cap=10**6, owner="ana", workflow_names=[name])
        assert claim.run_id == first
        assert store.workflows.runs.get(first).status == "running"

    def test_nothing_is_admitted_past_the_cap(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        queued = self._queue_run(store, frozen_clock, fresh("queued"))
        assert store.workflows.queue.admit_next(cap=0, owner="ana") == ()
        assert store.workflows.runs.get(queued).status == "queued"

    def test_a_pause_until_a_time_ends_then(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = start_run(store)
        store.workflows.waits.pause(run.id, until=frozen_clock.now() + timedelta(hours=1))
        assert store.workflows.claims.try_take(run.id, owner="ana", lease=LEASE) is None
        frozen_clock.advance(seconds=3600)
        assert store.workflows.claims.take(run.id, owner="ana", lease=LEASE).restart_count == 0

    def test_a_pause_for_a_signal_is_found_by_it(self, store: StateStore) -> None:
        run, signal = start_run(store), fresh("signal")
        store.workflows.waits.pause(run.id, signal=signal)
        assert [found.id for found in store.workflows.waits.list_waiting(signal).items] == [run.id]
        assert store.workflows.waits.resume(run.id, by="ana", reason="it came").status == "running"

    def _queue_run(self, store: StateStore, frozen_clock: FrozenClock, name: str) -> str:
        frozen_clock.advance(seconds=1)
        return start_run(store, workflow_name=name, options=RunOptions(status="queued")).id


# Executions


class ExecutionsContract:
    """Tests of ``store.workflows.executions``."""

    def test_an_execution_ends_once_with_what_it_used(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, start_run(store)
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
        executions, run = store.workflows.executions, start_run(store)
        assert executions.phase_state("contract:plan", run_id=run.id) == "run"
        failing = executions.start("contract:plan", run_id=run.id)
        assert executions.phase_state("contract:plan", run_id=run.id) == "running"
        executions.finish(failing.id, "failed", failure=Failure("no"))
        executions.finish(executions.start("contract:plan", run_id=run.id).id, "succeeded")
        assert executions.phase_state("contract:plan", run_id=run.id) == "done"

    def test_the_scratch_points_to_an_output(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, start_run(store)
        execution = executions.start("contract:explore", run_id=run.id)
        executions.save_output(execution.id, "what was found ✓", loop="explore")
        scratch = store.workflows.runs.get(run.id).scratch
        assert executions.find_output(scratch["explore"]["lastOutputExecutionId"]) == "what was found ✓"

    def test_a_session_leads_to_its_execution(self, store: StateStore) -> None:
        session = fresh("session")
        execution = store.workflows.executions.start("contract:plan", run_id=start_run(store).id, session_id=session)
        assert store.workflows.executions.find_by_session(session) == execution


class RunsContract:
    """Tests of ``store.workflows.runs``."""

    def test_a_run_reads_back_as_it_was_created(self, store: StateStore) -> None:
        run = start_run(store, context={"issue": 7, "text": "ünï"}, scratch={"a": [1, None, 2.5]})
        assert store.workflows.runs.get(run.id) == run
        assert (run.status, run.context["text"], run.scratch) == ("running", "ünï", {"a": [1, None, 2.5]})

    def test_an_unknown_run_is_not_found(self, store: StateStore) -> None:
        with pytest.raises(NotFound):
            store.workflows.runs.get(fresh("run"))

    def test_an_id_in_use_is_refused(self, store: StateStore) -> None:
        run = start_run(store)
        with pytest.raises(AlreadyExists):
            start_run(store, options=RunOptions(id=run.id))

    def test_a_key_makes_one_run(self, store: StateStore) -> None:
        key, trigger = fresh("key"), Trigger(fresh("t"))
        first = store.workflows.runs.ensure(key, "contract", trigger=trigger, phase="plan")
        again = store.workflows.runs.ensure(key, "contract", trigger=trigger, phase="plan")
        assert (first.created, again.created, again.run.id) == (True, False, first.run.id)

    def test_phases_grow_the_history_and_merge_the_scratch(self, store: StateStore) -> None:
        run = start_run(store, scratch={"kept": 1})
        store.workflows.runs.append_phase(run.id, PhaseEntry("plan", success=True), scratch={"files": 2})
        progress = store.workflows.runs.append_phase(run.id, PhaseEntry("build", success=False))
        stored = store.workflows.runs.get(run.id)
        assert (progress.phase, progress.phase_count, stored.current_phase) == ("build", 2, "build")
        assert [phase.phase for phase in stored.phase_history] == ["plan", "build"]
        assert stored.scratch == {"kept": 1, "files": 2}

    def test_an_end_is_final(self, store: StateStore) -> None:
        run = start_run(store)
        ended = store.workflows.runs.finish(run.id, "succeeded")
        assert (ended.status, ended.finished_at is not None) == ("succeeded", True)
        with pytest.raises(Conflict):
            store.workflows.runs.finish(run.id, "failed", failure=Failure("too late"))
        assert store.workflows.runs.get(run.id) == ended

    def test_restarts_end_at_the_limit(self, store: StateStore) -> None:
        run = start_run(store, options=RunOptions(max_restarts=1))
        store.workflows.runs.finish(run.id, "failed", failure=Failure("no"))
        assert store.workflows.runs.restart(run.id, by="ana", reason="again").restart_count == 1
        store.workflows.runs.finish(run.id, "failed", failure=Failure("no"))
        with pytest.raises(Conflict) as caught:
            store.workflows.runs.restart(run.id, by="ana", reason="again")
        assert caught.value.code == "restart_limit"

    def test_pages_show_each_run_once_newest_first(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        name, ids = fresh("workflow"), []
        for _ in range(5):
            ids.append(start_run(store, workflow_name=name).id)
            frozen_clock.advance(seconds=1)
        seen: list[str] = []
        token: str | None = None
        for _ in range(3):
            page = store.workflows.runs.list(workflow_names=[name], limit=2, page_token=token)
            seen += [summary.id for summary in page.items]
            token = page.next_page_token
        assert (seen, token) == (ids[::-1], None)

    def test_what_fails_together_leaves_nothing(self, store: StateStore) -> None:
        run_id = fresh("run")
        with suppress(Conflict), store.transaction() as tx:
            tx.workflows.runs.create("contract", trigger=Trigger("t"), phase="plan", options=RunOptions(id=run_id))
            raise Conflict("the caller's own code failed")
        with pytest.raises(NotFound):
            store.workflows.runs.get(run_id)
