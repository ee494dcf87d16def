"""Helpers with which contract tests begin."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from lastlight_state import StateStore
from lastlight_state.workflows import Approval, Gate, Trigger, WorkflowRun


def fresh(word: str) -> str:
    """Return a name that no other test uses."""
    return f"{word}-{uuid4().hex}"


def start_run(store: StateStore, **given: Any) -> WorkflowRun:
    """Create a run whose trigger is its own id, and return it."""
    name = given.pop("workflow_name", "contract")
    return store.workflows.runs.create(name, trigger=Trigger(fresh("t"), type="api"), phase="plan", **given)


def pause_at_gate(store: StateStore, **gate: Any) -> Approval:
    """Create a run that is paused at a gate, and return the gate."""
    return store.workflows.approvals.pause(start_run(store).id, Gate("review", "Go ahead?", **gate))
