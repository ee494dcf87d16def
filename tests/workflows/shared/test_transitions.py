"""Every change of a run's status: legal, recorded, told once."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.each import with_each
from support.workflows.steps import PLAN, Raw, started, together, undone

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, StateError
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, WorkflowRun
from lastlight_state.workflows.words import RUN_STATUSES

Change = Callable[[StateStore, str], object]

CHANGES: dict[str, Change] = {
    "pause": lambda store, run_id: store.workflows.approvals.pause(run_id, PLAN),
    "wait": lambda store, run_id: store.workflows.waits.pause(run_id),
    "requeue": lambda store, run_id: store.workflows.queue.requeue(run_id, reason="later"),
    "succeed": lambda store, run_id: store.workflows.runs.finish(run_id, "succeeded"),
    "fail": lambda store, run_id: store.workflows.runs.finish(run_id, "failed"),
    "finish cancelled": lambda store, run_id: store.workflows.runs.finish(run_id, "cancelled"),
    "ask": lambda store, run_id: store.workflows.runs.request_cancel(run_id, by="ana", reason="stop"),
    "cancel": lambda store, run_id: store.workflows.runs.cancel(run_id, by="ana", reason="stop"),
    "restart": lambda store, run_id: store.workflows.runs.restart(run_id, by="ana", reason="again"),
    "restart queued": lambda store, run_id: store.workflows.runs.restart(
        run_id, by="ana", reason="again", into="queued"
    ),
}

ALLOWED: dict[str, dict[str, str]] = {
    "queued": {"requeue": "queued", "fail": "failed", "ask": "cancelled", "cancel": "cancelled"},
    "running": {
        "pause": "paused",
        "wait": "paused",
        "requeue": "queued",
        "succeed": "succeeded",
        "fail": "failed",
        "finish cancelled": "cancelled",
        "ask": "running",
        "cancel": "cancelled",
    },
    "paused": {"fail": "failed", "ask": "cancelled", "cancel": "cancelled"},
    "succeeded": {"succeed": "succeeded"},
    "failed": {"fail": "failed", "restart": "running", "restart queued": "queued"},
    "cancelled": {
        "finish cancelled": "cancelled",
        "cancel": "cancelled",
        "restart": "running",
        "restart queued": "queued",
    },
}
"""From each status, the changes that are legal (or repeat-safe) and where they lead."""


def in_status(store: StateStore, status: str) -> WorkflowRun:
    run = started(store, status="queued" if status == "queued" else "running")
    if status == "paused":
        store.workflows.approvals.pause(run.id, PLAN)
    elif status not in ("queued", "running"):
        store.workflows.runs.finish(run.id, status)  # type: ignore[arg-type]
    return store.workflows.runs.get(run.id)


@with_each("status", sorted(RUN_STATUSES))
def test_only_legal_moves_are_made(every_backend: StateStore, raw: Raw, status: str) -> None:
    """workflows W-12: anything else is a Conflict that says what was found and what is allowed."""
    for name, change in CHANGES.items():
        run = in_status(every_backend, status)
        to = ALLOWED[status].get(name)
        if to is None:
            with pytest.raises(Conflict) as refused:
                change(every_backend, run.id)
            assert (name, refused.value.code, refused.value.details["found"]) == (name, "run_status", status)
            assert status not in refused.value.details["allowed"]
            assert every_backend.workflows.runs.get(run.id) == run
        else:
            change(every_backend, run.id)
            assert (name, every_backend.workflows.runs.get(run.id).status) == (name, to)
        raw.check_history(run.id)


def test_a_transition_says_who_when_why_and_with_which_claim(store: StateStore, raw: Raw, database: Database) -> None:
    """workflows W-11."""
    run = started(store)
    claim = raw.hold(run.id)
    database.clock.advance(seconds=1)
    paused = store.workflows.approvals.pause(run.id, PLAN, claim=claim)
    store.workflows.approvals.answer(paused.id, "approved", by="bo")
    store.workflows.runs.cancel(run.id, by="cy", reason="enough")
    rows = raw(
        "SELECT seq, from_status, to_status, reason, actor, source, claim_epoch, detail FROM run_transitions "
        "WHERE run_id = ? ORDER BY seq",
        run.id,
    )
    assert rows == [
        (1, None, "running", "run.created", "ana", "engine", None, None),
        (2, "running", "paused", "run.paused.gate", None, "engine", claim.epoch, "approval plan: asked"),
        (3, "paused", "running", "run.resumed.gate", "bo", "responder", None, "approval plan: approved"),
        (4, "running", "cancelled", "run.cancelled", "cy", "operator", None, "enough"),
    ]
    stored = store.workflows.runs.get(run.id)
    assert (stored.transition_seq, stored.status_reason) == (4, "run.cancelled")


def _steps(store: StateStore, run_id: str, seed: int) -> None:
    """Any changes in any order; what the state does not allow is refused, and that is all."""
    choice = random.Random(seed)
    approvals, runs = store.workflows.approvals, store.workflows.runs
    pending: list[Callable[[], object]] = [partial(change, store, run_id) for change in CHANGES.values()]
    pending += [
        partial(approvals.create, run_id, Gate(f"gate-{seed}", "And this?", on_reject="resume")),
        partial(runs.allow_restarts, run_id, 100, by="ana", reason="more"),
        partial(runs.merge_scratch, run_id, {f"thread-{seed}": 1}),
        partial(store.workflows.waits.resume, run_id, by="ana", reason="go"),
        partial(store.workflows.queue.admit, run_id),
        partial(store.workflows.queue.admit_next, cap=100, owner=f"worker-{seed}"),
    ]
    for _ in range(8):
        try:
            choice.choice(pending)()
            for gate in approvals.list_pending(run_id=run_id):
                approvals.answer(gate.id, choice.choice(["approved", "rejected"]), by=f"p-{seed}")
        except StateError as error:
            if not isinstance(error, Conflict):
                raise


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.soak)])
def test_the_newest_transition_equals_the_row_whatever_eight_threads_do(
    every_backend: StateStore, raw: Raw, rounds: int
) -> None:
    """workflows W-11: numbers without gaps, each change from where the last one led."""
    for round_ in range(rounds):
        runs = [started(every_backend, max_restarts=100).id for _ in range(2)]
        works = [partial(_steps, every_backend, runs[thread % 2], round_ * 8 + thread) for thread in range(8)]
        assert together(works) == [None] * 8
        for run_id in runs:
            raw.check_history(run_id)
            run = every_backend.workflows.runs.get(run_id)
            blocking = [gate for gate in every_backend.workflows.approvals.list_for_run(run_id) if gate.blocks_run]
            waits_for_gates = (run.status, run.pause_reason) == ("paused", "gate")
            assert ("pending" in {gate.status for gate in blocking}) == waits_for_gates


def test_a_terminal_change_is_told_once_after_its_commit(store: StateStore) -> None:
    """workflows W-19."""
    told: list[tuple[str, str]] = []
    store.workflows.on_terminal(lambda run: told.append((run.id, run.status)))
    first, second = started(store), started(store)
    with store.transaction() as tx:
        tx.workflows.runs.finish(first.id, "succeeded")
        tx.workflows.runs.cancel(second.id, by="ana", reason="stop")
        assert not told
    assert told == [(first.id, "succeeded"), (second.id, "cancelled")]
    store.workflows.runs.cancel(second.id, by="ana", reason="stop")
    with pytest.raises(Conflict):
        store.workflows.runs.finish(first.id, "failed")
    assert len(told) == 2


def test_nobody_is_told_of_what_was_undone(store: StateStore) -> None:
    """workflows W-19, case 55."""
    told: list[str] = []
    store.workflows.on_terminal(lambda run: told.append(run.id))
    run = started(store)
    with undone(store) as tx:
        tx.workflows.runs.finish(run.id, "failed")
    assert not told
    store.workflows.runs.finish(run.id, "succeeded")
    assert told == [run.id]


def test_every_listener_is_called_although_another_raises(store: StateStore, caplog: pytest.LogCaptureFixture) -> None:
    """workflows W-19."""
    told: list[str] = []

    def broken(run: WorkflowRun) -> None:
        raise RuntimeError(run.id)

    store.workflows.on_terminal(broken)
    stop = store.workflows.on_terminal(lambda run: told.append(run.id))
    first = started(store)
    with caplog.at_level(logging.ERROR):
        assert store.workflows.runs.finish(first.id, "succeeded").status == "succeeded"
    assert told == [first.id]
    assert "listener" in caplog.text
    assert store.metrics.failed_hooks == 1
    stop()
    stop()
    store.workflows.runs.finish(started(store).id, "succeeded")
    assert told == [first.id]


def test_a_listener_sees_the_run_as_it_was_committed(every_backend: StateStore) -> None:
    """workflows W-19: and may use the store."""
    seen: list[Any] = []
    every_backend.workflows.on_terminal(lambda run: seen.append((run, every_backend.workflows.runs.get(run.id))))
    ended = every_backend.workflows.runs.finish(started(every_backend).id, "failed")
    assert seen == [(ended, ended)]


def test_of_many_ends_at_once_one_is_told(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-11, W-19."""
    told: list[WorkflowRun] = []
    every_backend.workflows.on_terminal(told.append)
    run = started(every_backend)
    works: list[Callable[[], object]] = [
        partial(CHANGES[change], every_backend, run.id) for change in ("succeed", "fail", "cancel", "finish cancelled")
    ]
    outcomes = together(works * 3)
    assert len(told) == 1
    assert all(isinstance(outcome, WorkflowRun | Conflict) for outcome in outcomes)
    assert every_backend.workflows.runs.get(run.id) == told[0]
    assert len(raw.transitions(run.id)) == 2
