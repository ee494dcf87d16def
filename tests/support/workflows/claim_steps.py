"""Steps that tests of claims share: runs to be claimed, and how they stand."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.workflows.steps import paused, started

from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Claim, WorkflowRun

LEASE = timedelta(seconds=30)
MILLI = timedelta(milliseconds=1)
PREVIOUS = ("claim_owner", "heartbeat_at", "lease_expires_at", "restart_count", "status")


def offered(store: Any) -> WorkflowRun:
    """A run that waits for any worker, after an answer."""
    approval = paused(store)
    answered: WorkflowRun = store.workflows.approvals.answer(approval.id, "approved", by="ana").run
    return answered


def sleeping(store: Any, until: Any) -> WorkflowRun:
    """A run that is paused until a time."""
    slept: WorkflowRun = store.workflows.waits.pause(started(store).id, until=until)
    return slept


def abandoned(store: Any, clock: FrozenClock, owner: str = "a", **given: Any) -> Claim:
    """A claim whose lease is over, by a second."""
    run = started(store, **given)
    claim: Claim = store.workflows.claims.take(run.id, owner=owner)
    clock.advance(LEASE + timedelta(seconds=1))
    return claim


def stand(store: Any, run_id: str) -> tuple[Any, ...]:
    """How a run stands, as far as a take changes and a release restores it."""
    run = store.workflows.runs.get(run_id)
    return tuple(getattr(run, name) for name in PREVIOUS)


def listed(store: Any, **given: Any) -> list[str]:
    page = store.workflows.claims.list_claimable(**given)
    return [run.run_id for run in page]
