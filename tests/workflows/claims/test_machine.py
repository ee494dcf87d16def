"""Claims against a small pure model: any sequence of calls by several owners, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.workflows.claim_model import Model, Refused
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import Conflict
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Claim

OWNERS = st.sampled_from(["ana", "bo", "cy"])
LEASES = st.sampled_from([timedelta(seconds=10), timedelta(seconds=40)])
SECONDS = st.integers(-5, 45)


def _refusal(by_model: Callable[[], Any]) -> str | None:
    try:
        by_model()
    except Refused as refused:
        return refused.code
    return None


class ClaimsMachine(RuleBasedStateMachine):
    """One run, driven through the store and through the model side by side."""

    store: ClassVar[StateStore]
    clock: ClassVar[FrozenClock]
    raw: ClassVar[Raw]
    handed_out = Bundle("claims")

    @initialize(most=st.integers(0, 2))
    def start(self, most: int) -> None:
        run = started(self.store, max_restarts=most)
        self.run_id = run.id
        self.model = Model(run.started_at, run.started_at + timedelta(seconds=30), most)

    def agree(self, by_store: Callable[[], Any], by_model: Callable[[], Any]) -> Any:
        """What the call gives, which both refuse or neither; None for a refusal."""
        refused = _refusal(by_model)
        if refused is None:
            return by_store()
        with pytest.raises(Conflict) as caught:
            by_store()
        assert caught.value.code == refused
        return None

    @property
    def now(self) -> Any:
        return self.clock.now()

    @rule(seconds=SECONDS)
    def let_time_pass(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)

    @rule(target=handed_out, owner=OWNERS, lease=LEASES)
    def take(self, owner: str, lease: timedelta) -> Any:
        claims = self.store.workflows.claims
        claim = self.agree(
            lambda: claims.take(self.run_id, owner=owner, lease=lease), lambda: self.model.take(self.now, owner, lease)
        )
        return multiple() if claim is None else claim

    @rule(target=handed_out, owner=OWNERS, lease=LEASES)
    def take_next(self, owner: str, lease: timedelta) -> Any:
        taken = self.store.workflows.claims.take_next(owner=owner, lease=lease)
        if self.model.kind(self.now) is None or self.model.at_limit(self.now):
            assert taken == ()
            return multiple()
        self.model.take(self.now, owner, lease)
        [claim] = taken
        return claim

    @rule(target=handed_out, claim=handed_out, owner=OWNERS, lease=LEASES)
    def transfer(self, claim: Claim, owner: str, lease: timedelta) -> Any:
        claims = self.store.workflows.claims
        handed = self.agree(
            lambda: claims.transfer(claim, owner=owner, lease=lease),
            lambda: self.model.transfer(self.now, claim.epoch, owner, lease),
        )
        return multiple() if handed is None else handed

    @rule(claim=handed_out, many=st.booleans())
    def heartbeat(self, claim: Claim, many: bool) -> None:
        def by_store() -> Claim:
            if not many:
                return self.store.workflows.claims.heartbeat(claim)
            [told] = self.store.workflows.claims.heartbeat_many([claim]).values()
            if isinstance(told, Claim):
                return told
            raise told

        renewed = self.agree(by_store, lambda: self.model.beat(self.now, claim.epoch, claim.lease))
        if renewed is not None:
            assert renewed.lease_expires_at == self.model.lease_end

    @rule(claim=handed_out)
    def write(self, claim: Claim) -> None:
        self._write(claim)

    @rule()
    def write_without_a_claim(self) -> None:
        self._write(None)

    def _write(self, claim: Claim | None) -> None:
        runs, patch = self.store.workflows.runs, {"writes": self.model.writes + 1}
        self.agree(
            lambda: runs.merge_scratch(self.run_id, patch, claim=claim),
            lambda: self.model.write(claim.epoch if claim else None),
        )

    @rule(claim=handed_out, seconds=SECONDS)
    def pause(self, claim: Claim, seconds: int) -> None:
        until = self.now + timedelta(seconds=seconds)
        self.agree(
            lambda: self.store.workflows.waits.pause(self.run_id, until=until, claim=claim),
            lambda: self.model.pause(claim.epoch, until),
        )

    @precondition(lambda self: self.model.status != "failed")
    @rule()
    def resume(self) -> None:
        waits = self.store.workflows.waits
        self.agree(lambda: waits.resume(self.run_id, by="ana", reason="go on"), self.model.resume)

    @rule(claim=handed_out, seconds=st.none() | st.integers(0, 20))
    def release(self, claim: Claim, seconds: int | None) -> None:
        retry = None if seconds is None else timedelta(seconds=seconds)
        self.agree(
            lambda: self.store.workflows.claims.release(claim, retry_after=retry),
            lambda: self.model.release(claim.epoch, self.now + retry if retry is not None else None),
        )

    @precondition(lambda self: self.model.status == "running")
    @rule(claim=handed_out)
    def finish(self, claim: Claim) -> None:
        runs = self.store.workflows.runs
        self.agree(lambda: runs.finish(self.run_id, "failed", claim=claim), lambda: self.model.finish(claim.epoch))

    @rule()
    def give_up(self) -> None:
        expected = (self.run_id,) if self.model.give_up(self.now) else ()
        assert self.store.workflows.claims.give_up() == expected

    @invariant()
    def the_row_is_as_the_model_says(self) -> None:
        run = self.store.workflows.runs.get(self.run_id)
        expected = self.model.shown()
        assert {name: getattr(run, name) for name in expected} == expected

    @invariant()
    def what_is_listed_is_what_may_be_taken(self) -> None:
        listed = [(run.kind, run.at_limit) for run in self.store.workflows.claims.list_claimable()]
        kind = self.model.kind(self.now)
        assert listed == ([] if kind is None else [(kind, self.model.at_limit(self.now))])

    @invariant()
    def the_holder_is_found(self) -> None:
        holder = self.store.workflows.claims.find(self.run_id)
        assert (holder.owner if holder else None) == self.model.owner

    def teardown(self) -> None:
        """Out of the way of the next run."""
        if hasattr(self, "run_id"):
            self.raw.check_history(self.run_id)
            if self.model.status != "failed":
                self.store.workflows.runs.cancel(self.run_id, by="ana", reason="the end of this example")


@pytest.mark.parametrize("examples", [20, pytest.param(1_500, marks=pytest.mark.soak)])
def test_any_sequence_of_calls_does_what_the_model_says(
    every_backend: StateStore, database: Database, raw: Raw, examples: int
) -> None:
    """workflows W-14, W-15, W-40, W-41, W-42, W-44, W-45, W-46, W-47, W-48."""
    machine = type("Machine", (ClaimsMachine,), {"store": every_backend, "clock": database.clock, "raw": raw})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
