"""A run's gate by its name."""

from __future__ import annotations

from datetime import timedelta

from support.workflows.steps import started

from lastlight_state import StateStore
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Gate, NodeRef


def test_the_newest_gate_of_a_name_is_found(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-128."""
    approvals, run_id, other = store.workflows.approvals, started(store).id, started(store).id
    assert approvals.find(run_id, "plan") is None
    first = approvals.create(run_id, Gate("plan", "Go?", expires_at=frozen_clock.now() + timedelta(minutes=1)))
    approvals.create(other, Gate("plan", "Go?"))
    approvals.create(run_id, Gate("ship", "Go?"))
    frozen_clock.advance(timedelta(minutes=2))
    found = approvals.find(run_id, "plan")
    assert found is not None
    assert (found.id, found.status) == (first.id, "expired")
    node = NodeRef("build", 2)
    store.workflows.nodes.put(run_id, node)
    newer = approvals.create(run_id, Gate("plan", "Go now?", node=node))
    assert approvals.find(run_id, "plan") == approvals.find(run_id, "plan", node=node) == newer
    assert approvals.find(run_id, "plan", node=NodeRef("build", 3)) is None
    assert approvals.find("none", "plan") is None
