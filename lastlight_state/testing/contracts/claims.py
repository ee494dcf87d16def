"""The contracts of claims and of admission."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastlight_state import ClaimLost, LostRace, StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import fresh, started
from lastlight_state.workflows import PhaseEntry, RunOptions

LEASE = timedelta(seconds=30)
DONE = PhaseEntry("plan", success=True)


class ClaimsContract:
    """``store.workflows.claims``"""

    def test_a_run_has_one_holder(self, store: StateStore) -> None:
        run = started(store)
        claim = store.workflows.claims.take(run.id, owner="ana", lease=LEASE)
        with pytest.raises(LostRace):
            store.workflows.claims.take(run.id, owner="bo", lease=LEASE)
        holder = store.workflows.claims.find(run.id)
        assert holder is not None
        assert (holder.owner, holder.epoch) == ("ana", claim.epoch)

    def test_a_silent_holder_is_replaced_and_stays_fenced(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = started(store)
        silent = store.workflows.claims.take(run.id, owner="ana", lease=LEASE)
        frozen_clock.advance(LEASE + timedelta(milliseconds=1))
        taken = store.workflows.claims.take(run.id, owner="bo", lease=LEASE)
        assert (taken.restart_count, taken.epoch > silent.epoch) == (1, True)
        with pytest.raises(ClaimLost):
            store.workflows.runs.append_phase(run.id, DONE, claim=silent)
        store.workflows.runs.append_phase(run.id, DONE, claim=taken)
        assert store.workflows.runs.get(run.id).phase_count == 1

    def test_a_heartbeat_keeps_the_run(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = started(store)
        claim = store.workflows.claims.take(run.id, owner="ana", lease=LEASE)
        frozen_clock.advance(seconds=29)
        claim = store.workflows.claims.heartbeat(claim)
        frozen_clock.advance(seconds=29)
        assert store.workflows.claims.try_take(run.id, owner="bo", lease=LEASE) is None
        store.workflows.runs.request_cancel(run.id, by="ana", reason="not needed")
        assert store.workflows.claims.heartbeat(claim).cancel_requested

    def test_a_release_puts_back_what_was(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = started(store)
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
    """``store.workflows.queue`` and ``store.workflows.waits``"""

    def test_the_first_in_line_is_admitted(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        name = fresh("queued")
        first, _ = (self._queued(store, frozen_clock, name) for _ in range(2))
        [claim] = store.workflows.queue.admit_next(cap=10**6, owner="ana", workflow_names=[name])
        assert claim.run_id == first
        assert store.workflows.runs.get(first).status == "running"

    def test_nothing_is_admitted_past_the_cap(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        queued = self._queued(store, frozen_clock, fresh("queued"))
        assert store.workflows.queue.admit_next(cap=0, owner="ana") == ()
        assert store.workflows.runs.get(queued).status == "queued"

    def test_a_pause_until_a_time_ends_then(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        run = started(store)
        store.workflows.waits.pause(run.id, until=frozen_clock.now() + timedelta(hours=1))
        assert store.workflows.claims.try_take(run.id, owner="ana", lease=LEASE) is None
        frozen_clock.advance(seconds=3600)
        assert store.workflows.claims.take(run.id, owner="ana", lease=LEASE).restart_count == 0

    def test_a_pause_for_a_signal_is_found_by_it(self, store: StateStore) -> None:
        run, signal = started(store), fresh("signal")
        store.workflows.waits.pause(run.id, signal=signal)
        assert [found.id for found in store.workflows.waits.list_waiting(signal).items] == [run.id]
        assert store.workflows.waits.resume(run.id, by="ana", reason="it came").status == "running"

    def _queued(self, store: StateStore, frozen_clock: FrozenClock, name: str) -> str:
        frozen_clock.advance(seconds=1)
        return started(store, workflow_name=name, options=RunOptions(status="queued")).id
