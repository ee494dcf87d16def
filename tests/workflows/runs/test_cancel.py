"""Runs are asked to stop, or cancelled: one, or its whole tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.workflows.steps import PLAN, Raw, paused, started, together

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import WorkflowRun

ENDED = ["succeeded", "failed", "cancelled"]


def test_asking_a_running_run_to_stop_changes_no_status(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-28: the first request stays, its holder too."""
    run = started(store)
    claim = raw.hold(run.id)
    at = frozen_clock.advance(seconds=1)
    asked = store.workflows.runs.request_cancel(run.id, by="ana", reason="too slow")
    assert (asked.status, asked.cancel_requested_at, asked.cancel_requested_by) == ("running", at, "ana")
    assert (asked.cancel_reason, asked.claim_owner, asked.claim_epoch) == ("too slow", claim.owner, claim.epoch)
    frozen_clock.advance(seconds=1)
    assert store.workflows.runs.request_cancel(run.id, by="bo", reason="also") == asked
    assert raw.transitions(run.id)[1:] == [("running", "running", "cancel.requested")]
    ended = store.workflows.runs.finish(run.id, "cancelled", claim=claim)
    assert (ended.status, ended.cancel_requested_by) == ("cancelled", "ana")
    raw.check_history(run.id)


def test_asking_where_nobody_is_there_cancels_at_once(store: StateStore, raw: Raw) -> None:
    """workflows W-28."""
    cases: list[str] = ["queued", "paused"]
    for status in cases:
        run_id = paused(store).run_id if status == "paused" else started(store, status="queued").id
        cancelled = store.workflows.runs.request_cancel(run_id, by="ana", reason="stop")
        assert (cancelled.status, cancelled.status_reason) == ("cancelled", "run.cancelled")
        assert raw(
            "SELECT actor, source, detail FROM run_transitions WHERE run_id = ? AND to_status = 'cancelled'", run_id
        ) == [("ana", "operator", "stop")]


def test_an_ended_run_is_not_asked(store: StateStore) -> None:
    """workflows W-28."""
    cases: list[Any] = ENDED
    for status in cases:
        run = started(store)
        store.workflows.runs.finish(run.id, status)
        with pytest.raises(Conflict) as refused:
            store.workflows.runs.request_cancel(run.id, by="ana", reason="stop")
        assert (refused.value.code, refused.value.details["found"]) == ("run_status", status)


def test_a_cancel_ends_any_live_run_and_fences_its_holder(store: StateStore, raw: Raw) -> None:
    """workflows W-29."""
    cases: list[str] = ["queued", "running", "paused"]
    for status in cases:
        run = started(store, status="queued" if status == "queued" else "running")
        claim = raw.hold(run.id)
        if status == "paused":
            store.workflows.approvals.pause(run.id, PLAN, claim=claim)
        cancelled = store.workflows.runs.cancel(run.id, by="ana", reason="stop")
        assert (cancelled.status, cancelled.claim_owner, cancelled.pause_reason) == ("cancelled", None, None)
        with pytest.raises(ClaimLost) as lost:
            store.workflows.runs.merge_scratch(run.id, {"late": 1}, claim=claim)
        assert lost.value.status == "cancelled"


def test_cancelling_again_changes_nothing(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-29."""
    run = started(store)
    first = store.workflows.runs.cancel(run.id, by="ana", reason="stop")
    frozen_clock.advance(seconds=1)
    assert store.workflows.runs.cancel(run.id, by="bo", reason="stop it") == first
    assert len(raw.transitions(run.id)) == 2


def test_what_has_succeeded_or_failed_is_not_cancelled(store: StateStore) -> None:
    """workflows W-29."""
    cases: list[Any] = ["succeeded", "failed"]
    for status in cases:
        run = started(store)
        ended = store.workflows.runs.finish(run.id, status)
        with pytest.raises(Conflict) as refused:
            store.workflows.runs.cancel(run.id, by="ana", reason="stop")
        assert refused.value.details["found"] == status
        assert store.workflows.runs.get(run.id) == ended


def tree(store: StateStore) -> dict[str, WorkflowRun]:
    """A root with two children, one of which has children of its own in every status."""
    runs = {"root": started(store, id="root")}
    for name, parent in (("left", "root"), ("right", "root"), ("a-queued", "left"), ("z-done", "left"), ("b", "left")):
        status = "queued" if name == "a-queued" else "running"
        runs[name] = started(store, id=name, parent_run_id=parent, status=status)
    store.workflows.runs.finish("z-done", "succeeded")
    store.workflows.approvals.pause("b", PLAN)
    started(store, id="stranger")
    return runs


def statuses(store: StateStore) -> dict[str, str]:
    return {run.id: run.status for run in store.workflows.runs.list()}


def test_a_tree_is_cancelled_with_its_live_descendants(store: StateStore, raw: Raw) -> None:
    """workflows W-29."""
    tree(store)
    assert store.workflows.runs.cancel("root", by="ana", reason="stop", scope="tree").id == "root"
    live = dict.fromkeys(("root", "left", "right", "a-queued", "b"), "cancelled")
    assert statuses(store) == {**live, "z-done": "succeeded", "stranger": "running"}
    for run_id in live:
        raw.check_history(run_id)


def test_a_tree_is_asked_where_somebody_is_there(store: StateStore) -> None:
    """workflows W-28."""
    tree(store)
    store.workflows.runs.request_cancel("root", by="ana", reason="stop", scope="tree")
    asked = dict.fromkeys(("root", "left", "right"), "running")
    assert statuses(store) == {
        **asked,
        "a-queued": "cancelled",
        "b": "cancelled",
        "z-done": "succeeded",
        "stranger": "running",
    }
    assert all(store.workflows.runs.get(run_id).cancel_requested_by == "ana" for run_id in asked)


def test_a_cancel_of_one_run_leaves_its_children(store: StateStore) -> None:
    """workflows W-29."""
    tree(store)
    store.workflows.runs.cancel("left", by="ana", reason="stop")
    assert (statuses(store)["left"], statuses(store)["a-queued"]) == ("cancelled", "queued")


def test_a_tree_whose_root_has_succeeded_stays_as_it_is(store: StateStore) -> None:
    """workflows W-29: all or nothing."""
    tree(store)
    store.workflows.runs.finish("root", "succeeded")
    before = statuses(store)
    with pytest.raises(Conflict):
        store.workflows.runs.cancel("root", by="ana", reason="stop", scope="tree")
    assert statuses(store) == before


def test_a_tree_cancelled_before_loses_what_was_begun_since(store: StateStore) -> None:
    """workflows W-29: repeat-safe on the root, thorough below it."""
    tree(store)
    first = store.workflows.runs.cancel("root", by="ana", reason="stop")
    assert store.workflows.runs.cancel("root", by="ana", reason="stop", scope="tree") == first
    assert statuses(store)["b"] == "cancelled"


def test_a_planted_cycle_of_parents_ends(store: StateStore, raw: Raw) -> None:
    """workflows W-29: another program may have left one."""
    at = started(store, id="stranger").started_at
    for run_id, parent in (("one", "two"), ("two", "one")):
        raw(
            "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at, "
            "parent_run_id) VALUES (?, 'deploy', 't', 'plan', ?, ?, ?)",
            run_id,
            at,
            at,
            parent,
        )
    store.workflows.runs.cancel("one", by="ana", reason="stop", scope="tree")
    assert statuses(store) == {"one": "cancelled", "two": "cancelled", "stranger": "running"}


def test_trees_cancelled_at_once_do_not_deadlock(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-10."""
    tree(every_backend)
    roots = ("root", "left", "right", "b") * 3
    cancel = every_backend.workflows.runs.cancel
    outcomes = together([partial(cancel, root, by="ana", reason="stop", scope="tree") for root in roots])
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert every_backend.metrics.retries == 0
    assert sorted(set(statuses(every_backend).values())) == ["cancelled", "running", "succeeded"]
    for run_id in ("root", "left", "right", "a-queued", "b"):
        assert len(raw("SELECT 1 FROM run_transitions WHERE run_id = ? AND to_status = 'cancelled'", run_id)) == 1


def test_a_cancelled_run_gets_no_children(store: StateStore) -> None:
    """workflows W-22, W-29: whether it is cancelled or asked to be; an ended one may have a successor."""
    ended, cancelled, asked = (started(store).id for _ in range(3))
    store.workflows.runs.finish(ended, "failed")
    store.workflows.runs.cancel(cancelled, by="ana", reason="stop")
    store.workflows.runs.request_cancel(asked, by="ana", reason="stop")
    assert started(store, parent_run_id=ended).parent_run_id == ended
    for parent in (cancelled, asked):
        with pytest.raises(Conflict) as refused:
            started(store, parent_run_id=parent)
        assert (refused.value.code, refused.value.details["parent_run_id"]) == ("parent_cancelled", parent)
    assert len(store.workflows.runs.list()) == 4
    store.workflows.runs.restart(cancelled, by="ana", reason="again")
    assert started(store, parent_run_id=cancelled).status == "running"


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.soak)])
def test_no_child_escapes_a_cancel_of_its_tree(every_backend: StateStore, rounds: int) -> None:
    """workflows W-29: made before it, and cancelled with it; or after it, and refused."""
    runs = every_backend.workflows.runs
    for round_ in range(rounds):
        root = started(every_backend).id
        middle = started(every_backend, parent_run_id=root).id
        makes: list[Callable[[], object]] = [
            partial(started, every_backend, parent_run_id=parent) for parent in (root, middle, middle)
        ]
        cancels: list[Callable[[], object]] = [
            partial(runs.cancel, root, by="ana", reason="stop", scope="tree") for _ in range(2)
        ]
        outcomes = together([*makes, *cancels] if round_ % 2 else [*cancels, *makes])
        assert {type(outcome) for outcome in outcomes} <= {WorkflowRun, Conflict}
        assert {run.status for run in runs.list(limit=5)} == {"cancelled"}
    assert every_backend.metrics.retries == 0


def test_operators_say_who_and_why(store: StateStore) -> None:
    """workflows W-2."""
    cases: list[dict[str, str]] = [{"by": ""}, {"by": "a" * 129}, {"reason": "x" * 2_049}]
    for given in cases:
        run = started(store)
        said = {"by": "ana", "reason": "because", **given}
        calls: tuple[Callable[..., object], ...] = (
            store.workflows.runs.cancel,
            store.workflows.runs.request_cancel,
            store.workflows.runs.restart,
            partial(store.workflows.runs.allow_restarts, max_restarts=5),
        )
        for call in calls:
            with pytest.raises(InvalidValue):
                call(run.id, **said)
        assert store.workflows.runs.get(run.id) == run
