"""Services that share a database: none takes the work of another, and none waits behind it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.each import with_each
from support.workflows.asking import WHO
from support.workflows.steps import started

from lastlight_state import StateStore, iterate
from lastlight_state.errors import InvalidValue
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Gate, RunOptions, Trigger

OTHERS = 60
OURS = ["ours"]


def create(store: StateStore, name: str, **options: object) -> str:
    """A run of this workflow."""
    given = RunOptions(**options)  # type: ignore[arg-type]
    return store.workflows.runs.create(name, trigger=Trigger("t"), phase="p", options=given).id


@pytest.mark.parametrize("paused", [False, True], ids=["abandoned", "due"])
def test_claimable_runs_of_others_hide_none_of_ours(
    every_backend: StateStore, frozen_clock: FrozenClock, paused: bool
) -> None:
    """workflows W-125: a page of 50 behind 60 runs of another workflow."""
    claims = every_backend.workflows.claims
    for _ in range(OTHERS):
        other = create(every_backend, "theirs")
        if paused:
            every_backend.workflows.waits.pause(other, until=frozen_clock.now())
    frozen_clock.advance(timedelta(seconds=1))
    run_id = create(every_backend, "ours")
    if paused:
        every_backend.workflows.waits.pause(run_id, until=frozen_clock.now())
    frozen_clock.advance(timedelta(minutes=1))
    assert run_id not in [found.run_id for found in claims.list_claimable()]
    assert [found.run_id for found in claims.list_claimable(workflow_names=OURS)] == [run_id]
    assert run_id in [found.run_id for found in iterate(claims.list_claimable)]
    assert claims.list_claimable(workflow_names=[]).items == ()
    assert claims.take_next(owner="w", limit=100, workflow_names=[]) == ()
    assert [claim.run_id for claim in claims.take_next(owner="w", limit=100, workflow_names=OURS)] == [run_id]


def test_a_token_belongs_to_its_workflows(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-125."""
    runs = [create(every_backend, "ours") for _ in range(3)]
    frozen_clock.advance(timedelta(minutes=1))
    claims = every_backend.workflows.claims
    first = claims.list_claimable(workflow_names=OURS, limit=2)
    rest = claims.list_claimable(workflow_names=OURS, limit=2, page_token=first.next_page_token)
    assert [found.run_id for found in (*first, *rest)] == runs
    with pytest.raises(InvalidValue, match="another filter"):
        claims.list_claimable(limit=2, page_token=first.next_page_token)


def test_spent_runs_of_others_are_left_to_them(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-125."""
    theirs, ours = (create(every_backend, name, max_restarts=0) for name in ("theirs", "ours"))
    for run_id in (theirs, ours):
        every_backend.workflows.claims.take(run_id, owner="gone")
    frozen_clock.advance(timedelta(minutes=1))
    assert every_backend.workflows.claims.give_up(workflow_names=OURS) == (ours,)
    assert every_backend.workflows.runs.get(theirs).status == "running"


def test_questions_of_others_are_left_to_them(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-125: gates and requests that nobody answered in time."""
    due = frozen_clock.now() + timedelta(minutes=1)
    gate, question = Gate("go", "Go?", expires_at=due), replace(WHO, expires_at=due)
    flows = store.workflows
    ours, theirs = (
        (
            flows.approvals.create(create(store, name), gate).id,
            flows.human_requests.create(create(store, name), question).id,
        )
        for name in ("ours", "theirs")
    )
    frozen_clock.advance(timedelta(minutes=2))
    sweeps: list[Any] = [flows.approvals, flows.human_requests]
    for sweep, mine, other in zip(sweeps, ours, theirs, strict=True):
        assert sweep.expire_due(workflow_names=[]) == ()
        assert sweep.expire_due(workflow_names=OURS) == (mine,)
        assert sweep.expire_due() == (other,)


def test_runs_of_others_that_waited_too_long_are_left_to_them(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-125, W-38."""
    theirs, ours = (create(store, name, status="queued") for name in ("theirs", "ours"))
    frozen_clock.advance(timedelta(hours=2))
    expire = partial(store.workflows.queue.expire, timedelta(hours=1), reason="too old")
    assert expire(workflow_names=[]) == ()
    assert expire(workflow_names=OURS) == (ours,)
    assert expire() == (theirs,)


def test_the_unhealthy_runs_of_others_are_not_shown(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-125, W-98: a page looks at runs of these workflows only."""
    ours = [create(store, name) for name in ("ours", "theirs", "theirs", "ours", "theirs")][::3]
    frozen_clock.advance(timedelta(hours=1))
    list_unhealthy = store.workflows.health.list_unhealthy
    page = list_unhealthy(workflow_names=OURS, limit=2)
    assert {run.id for run in page} == set(ours)
    assert page.next_page_token is None
    assert list_unhealthy(workflow_names=[]).items == ()
    assert len(list_unhealthy().items) == 5


def test_a_cap_of_one_workflow_keeps_only_that_one_waiting(every_backend: StateStore) -> None:
    """workflows W-125: beside the cap over all."""
    queue = every_backend.workflows.queue
    wide, narrow = "wide", "narrow"
    lined = [create(every_backend, name, status="queued") for name in (narrow, narrow, narrow, wide, wide, wide)]
    caps = {narrow: 1, "absent": 0}
    admitted = queue.admit_next(cap=3, owner="w", limit=10, workflow_caps=caps)
    assert [claim.run_id for claim in admitted] == [lined[0], lined[3], lined[4]]
    assert queue.admit_next(cap=3, owner="w", limit=10, workflow_caps=caps) == ()
    [more] = queue.admit_next(cap=10, owner="w", limit=10, workflow_caps=caps, workflow_names=[narrow, wide])
    assert more.run_id == lined[5]
    every_backend.workflows.runs.finish(lined[0], "succeeded", claim=admitted[0])
    [next_narrow] = queue.admit_next(cap=10, owner="w", limit=10, workflow_caps=caps)
    assert next_narrow.run_id == lined[1]
    lined += [create(every_backend, narrow, status="queued") for _ in range(2)]
    both = queue.admit_next(cap=10, owner="w", limit=10, workflow_caps={narrow: 3})
    assert [claim.run_id for claim in both] == [lined[2], lined[6]]


@with_each("caps", [{"w": -1}, {"w": True}, {"": 1}, [("w", 1)], {"w": None}])
def test_caps_are_checked(store: StateStore, caps: object) -> None:
    """workflows W-125, W-119."""
    started(store, status="queued")
    with pytest.raises(InvalidValue):
        store.workflows.queue.admit_next(cap=1, owner="w", workflow_caps=caps)  # type: ignore[arg-type]
