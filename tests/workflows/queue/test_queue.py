"""The line of runs that wait for a place: who is admitted, who goes to its end, who waited too long."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from support.workflows.steps import PLAN, Raw, all_pages, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, LostRace, NotFound, PayloadTooLarge
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import WorkflowRun

MINUTE = timedelta(minutes=1)


def queued(store: Any, count: int, clock: FrozenClock, **given: Any) -> list[str]:
    """The ids of runs queued one second after the other, in ids that would order them otherwise."""
    ids = []
    for index in range(count):
        ids.append(started(store, status="queued", id=f"{given.get('workflow_name', 'q')}-{count - index}", **given).id)
        clock.advance(seconds=1)
    return ids


def line(store: Any) -> list[str]:
    return [run.id for run in store.workflows.queue.list(limit=500)]


def admitted(store: Any, cap: int = 100, limit: int = 1, **given: Any) -> list[str]:
    return [claim.run_id for claim in store.workflows.queue.admit_next(cap=cap, owner="w-1", limit=limit, **given)]


def test_the_first_to_come_is_the_first_in_line(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-109: by time, then by id; what runs is in no line."""
    ids = queued(store, 3, frozen_clock)
    ids += sorted(started(store, status="queued", id=f"same-{name}").id for name in "ba")
    started(store)
    assert line(store) == ids
    for limit in (1, 2):
        assert [run.id for run in all_pages(store.workflows.queue.list, limit=limit)] == ids
    token = store.workflows.queue.list(limit=1).next_page_token
    with pytest.raises(InvalidValue):
        store.workflows.runs.list(page_token=token)
    [first] = store.workflows.queue.list(limit=1)
    assert first == next(run for run in store.workflows.runs.list() if run.id == ids[0])


def test_who_was_queued_without_a_time_is_in_no_line(store: StateStore, frozen_clock: FrozenClock, raw: Raw) -> None:
    """workflows W-109: by another program; alike on both databases, and one step from the line."""
    [kept] = queued(store, 1, frozen_clock)
    stray = started(store, status="queued").id
    raw("UPDATE workflow_runs SET queued_at = NULL WHERE id = ?", stray)
    assert line(store) == [kept]
    assert admitted(store, limit=5) == [kept]
    assert store.workflows.queue.expire(timedelta(0), reason="late") == ()
    store.workflows.queue.requeue(stray, reason="into the line")
    assert admitted(store, limit=5) == [stray]


def test_an_admitted_run_waits_for_its_claim(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-35: unclaimed, with grace; whatever its place and time."""
    ids = queued(store, 2, frozen_clock, not_before=frozen_clock.now() + MINUTE)
    before = store.workflows.runs.get(ids[1])
    run = store.workflows.queue.admit(ids[1])
    now = frozen_clock.now()
    assert (run.status, run.claim_owner, run.lease_expires_at) == ("running", None, now + timedelta(seconds=30))
    assert (run.admitted_at, run.wake_at, run.queued_at) == (now, None, before.queued_at)
    assert (run.started_at, run.restart_count) == (before.started_at, 0)
    assert store.workflows.runs.get(run.id) == run
    assert raw.transitions(run.id)[1:] == [("queued", "running", "run.admitted")]
    assert store.workflows.claims.take(run.id, owner="w-1").restart_count == 0


def test_what_is_not_queued_any_more_is_not_admitted(store: StateStore) -> None:
    """workflows W-13, W-35."""
    run = started(store)
    with pytest.raises(LostRace) as lost:
        store.workflows.queue.admit(run.id)
    assert lost.value.details["found"] == "running"
    with pytest.raises(NotFound):
        store.workflows.queue.admit("nothing")
    assert store.workflows.runs.get(run.id) == run


def test_the_next_are_admitted_and_claimed_in_order(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-36: admission, claim and transition in one."""
    ids = queued(store, 3, frozen_clock)
    first, second = store.workflows.queue.admit_next(cap=10, owner="w-1", lease=MINUTE, limit=2)
    assert [first.run_id, second.run_id] == ids[:2]
    run = store.workflows.runs.get(ids[0])
    now = frozen_clock.now()
    assert (run.status, run.claim_owner, run.claim_epoch) == ("running", "w-1", first.epoch)
    assert (run.admitted_at, run.heartbeat_at, run.lease_expires_at) == (now, now, now + MINUTE)
    assert (first.taken_at, first.lease_expires_at, first.lease) == (now, now + MINUTE, MINUTE)
    assert raw("SELECT reason, actor, claim_epoch FROM run_transitions WHERE run_id = ? AND seq = 2", ids[0]) == [
        ("run.admitted", "w-1", first.epoch)
    ]
    raw.check_history(ids[0])
    store.workflows.runs.finish(ids[0], "succeeded", claim=first)
    with pytest.raises(ClaimLost):
        store.workflows.runs.finish(ids[1], "succeeded")
    assert line(store) == ids[2:]


def test_admission_never_passes_the_cap(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-36: whoever runs counts, whoever is paused does not."""
    ids = queued(store, 5, frozen_clock)
    runs = [started(store) for _ in range(2)]
    assert admitted(store, cap=0) == admitted(store, cap=1) == admitted(store, cap=2) == []
    assert admitted(store, cap=4, limit=10) == ids[:2]
    assert admitted(store, cap=4, limit=10) == []
    store.workflows.waits.pause(runs[0].id)
    assert admitted(store, cap=4, limit=10) == ids[2:3]
    store.workflows.runs.finish(runs[1].id, "succeeded")
    assert admitted(store, cap=4, limit=10) == ids[3:4]


def test_who_is_not_due_is_passed_over_and_keeps_its_place(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-36: "not before" includes the moment itself."""
    due_at = frozen_clock.now() + MINUTE
    [late, *_] = ids = queued(store, 1, frozen_clock, not_before=due_at, workflow_name="late")
    ids += queued(store, 3, frozen_clock)
    assert admitted(store) == [ids[1]]
    frozen_clock.set(due_at - timedelta(milliseconds=1))
    assert admitted(store) == [ids[2]]
    assert line(store) == [late, ids[3]]
    frozen_clock.set(due_at)
    assert admitted(store) == [late]


def test_a_workflow_that_is_off_does_not_block_the_line(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-36, W-95: its runs are passed over, and first again when it is on."""
    off = queued(store, 2, frozen_clock, workflow_name="off")
    on = queued(store, 2, frozen_clock, workflow_name="on")
    store.workflows.overrides.put("off", enabled=False)
    store.workflows.overrides.put("on", enabled=True)
    assert line(store) == off + on
    assert admitted(store) == on[:1]
    store.workflows.overrides.clear("off")
    assert admitted(store, limit=5) == [*off, on[1]]


def test_admission_can_be_of_some_workflows(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-20, W-36: the cap counts these alone, and without names all of them; no workflow is none."""
    a, b = (queued(store, 3, frozen_clock, workflow_name=name) for name in ("a", "b"))
    queued(store, 1, frozen_clock, workflow_name="c")
    assert admitted(store, workflow_names=[]) == []
    assert admitted(store, limit=2, workflow_names=["b"]) == b[:2]
    assert admitted(store, cap=2) == []
    assert admitted(store, cap=2, workflow_names=["b"]) == admitted(store, cap=2, workflow_names=["a", "b"]) == []
    assert not store.workflows.queue.wait(cap=2, timeout=0, workflow_names=["b"])
    assert store.workflows.queue.wait(cap=2, timeout=0, workflow_names=["a"])
    assert admitted(store, limit=9, cap=1, workflow_names=["a"]) == a[:1]
    assert admitted(store, limit=9, workflow_names=["b", "a", "nothing"]) == [*a[1:], b[2]]


def test_a_released_run_is_back_in_its_old_place(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-46: an admission that came to nothing costs it nothing."""
    ids = queued(store, 3, frozen_clock)
    first, second = store.workflows.queue.admit_next(cap=10, owner="w-1", limit=2)
    store.workflows.claims.release(first)
    store.workflows.claims.release(second, retry_after=MINUTE)
    assert line(store) == ids
    run = store.workflows.runs.get(ids[0])
    assert (run.status, run.restart_count, run.claim_owner, run.admitted_at) == ("queued", 0, None, None)
    with pytest.raises(ClaimLost):
        store.workflows.runs.finish(ids[0], "succeeded", claim=first)
    assert admitted(store, limit=5) == [ids[0], ids[2]]
    frozen_clock.advance(MINUTE)
    assert admitted(store, limit=5) == [ids[1]]
    for run_id in ids:
        raw.check_history(run_id)


def test_an_admission_that_is_undone_leaves_the_line(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows case 55."""
    ids = queued(store, 2, frozen_clock)
    with undone(store) as tx:
        assert admitted(tx, limit=2) == ids
        assert line(tx) == []
    assert line(store) == ids


def test_a_requeued_run_is_last_in_line(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-37: its claim ended, its start untouched."""
    ids = queued(store, 2, frozen_clock)
    [claim] = store.workflows.queue.admit_next(cap=10, owner="w-1")
    started_at = store.workflows.runs.get(ids[0]).started_at
    frozen_clock.advance(seconds=1)
    run = store.workflows.queue.requeue(ids[0], reason="provider overloaded", claim=claim)
    assert (run.status, run.queued_at, run.started_at) == ("queued", frozen_clock.now(), started_at)
    assert (run.claim_owner, run.claim_epoch, run.admitted_at, run.wake_at) == (None, claim.epoch + 1, None, None)
    assert line(store) == ids[::-1]
    assert raw("SELECT reason, detail, claim_epoch FROM run_transitions WHERE run_id = ? AND seq = 3", ids[0]) == [
        ("run.requeued", "provider overloaded", claim.epoch)
    ]
    with pytest.raises(ClaimLost):
        store.workflows.queue.requeue(ids[0], reason="again", claim=claim)
    assert admitted(store, limit=2) == ids[::-1]


def test_runs_that_enter_the_line_in_the_same_millisecond_are_in_the_order_of_their_ids(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-37: also where the other one was requeued."""
    ids = queued(store, 2, frozen_clock)
    for run_id in reversed(ids):
        store.workflows.queue.requeue(run_id, reason="again")
    assert line(store) == sorted(ids)


def test_a_requeued_run_may_be_put_off(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-37."""
    run = started(store)
    store.workflows.queue.requeue(run.id, reason="later", not_before=frozen_clock.now() + MINUTE)
    assert admitted(store) == []
    frozen_clock.advance(MINUTE)
    assert admitted(store) == [run.id]


def test_a_queued_run_gets_a_new_time_of_waiting(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-37: so that an outage expires nobody; what it waits for stays, unless said otherwise."""
    due_at = frozen_clock.now() + timedelta(hours=2)
    first, second = queued(store, 2, frozen_clock, not_before=due_at)
    frozen_clock.advance(timedelta(hours=1))
    run = store.workflows.queue.requeue(first, reason="provider down")
    assert (run.queued_at, run.wake_at, run.status) == (frozen_clock.now(), due_at, "queued")
    assert line(store) == [second, first]
    assert store.workflows.queue.expire(MINUTE, reason="late") == (second,)
    assert store.workflows.queue.requeue(first, reason="sooner", not_before=frozen_clock.now()).wake_at != due_at
    assert raw.transitions(first)[1:] == [("queued", "queued", "run.requeued")] * 2
    assert admitted(store) == [first]


def test_a_requeue_that_is_refused_changes_nothing(store: StateStore) -> None:
    """workflows W-12, W-13, W-14, W-37."""
    held, done, waiting = (started(store) for _ in range(3))
    store.workflows.claims.take(held.id, owner="w-1")
    store.workflows.runs.finish(done.id, "succeeded")
    store.workflows.waits.pause(waiting.id)
    requeue = partial(store.workflows.queue.requeue, reason="later")
    before = [store.workflows.runs.get(run.id) for run in (held, done, waiting)]
    refused: list[tuple[type[Exception], str]] = [
        (ClaimLost, held.id),
        (Conflict, done.id),
        (Conflict, waiting.id),
        (NotFound, "nothing"),
    ]
    for error, run_id in refused:
        with pytest.raises(error):
            requeue(run_id)
    assert [store.workflows.runs.get(run.id) for run in (held, done, waiting)] == before


def test_who_has_been_queued_for_too_long_is_cancelled(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-18, W-38: strictly longer; context as it was, the text as the error, everything closed, once told."""
    told: list[WorkflowRun] = []
    store.workflows.on_terminal(told.append)
    old = started(store, context={"title": "Widgets squeak"})
    gate = store.workflows.approvals.create(old.id, PLAN)
    execution = store.workflows.executions.start("deploy:plan", run_id=old.id)
    store.workflows.queue.requeue(old.id, reason="later")
    frozen_clock.advance(seconds=1)
    queued(store, 1, frozen_clock)
    frozen_clock.advance(MINUTE - timedelta(seconds=1))
    assert store.workflows.queue.expire(MINUTE, reason="nobody had room") == (old.id,)
    [run] = told
    assert (run.id, run.status, run.status_reason, run.error) == (
        old.id, "cancelled", "queue.expired", "nobody had room",
    )  # fmt: skip
    assert (run.context, run.finished_at) == ({"title": "Widgets squeak"}, frozen_clock.now())
    assert store.workflows.runs.get(old.id) == run
    assert store.workflows.approvals.get(gate.id).status == "cancelled"
    assert store.workflows.executions.get(execution.id).outcome == "cancelled"
    raw.check_history(old.id)
    assert store.workflows.queue.expire(MINUTE, reason="nobody had room") == ()
    assert len(told) == 1


def test_expiry_takes_the_first_in_line(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-38: so many at a time; runs that run or wait are no concern of it."""
    started(store)
    store.workflows.waits.pause(started(store).id)
    ids = queued(store, 3, frozen_clock)
    assert store.workflows.queue.expire(timedelta(0), reason="late", limit=2) == tuple(sorted(ids[:2]))
    assert line(store) == ids[2:]


def test_the_queue_is_asked_in_sound_words(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-2, W-3, W-5."""
    [run_id] = queued(store, 1, frozen_clock)
    queue = store.workflows.queue
    next_ = {"cap": 1, "owner": "w-1"}
    cases: list[tuple[Any, dict[str, Any]]] = [
        (queue.admit_next, {**next_, "cap": -1}),
        (queue.admit_next, {**next_, "cap": True}),
        (queue.admit_next, {**next_, "owner": " "}),
        (queue.admit_next, {**next_, "lease": timedelta(0)}),
        (queue.admit_next, {**next_, "limit": 0}),
        (queue.admit_next, {**next_, "limit": 501}),
        (queue.admit_next, {**next_, "workflow_names": "deploy"}),
        (queue.admit_next, {**next_, "workflow_names": [f"w-{index}" for index in range(51)]}),
        (queue.requeue, {"run_id": run_id, "reason": 7}),
        (queue.requeue, {"run_id": run_id, "reason": "later", "not_before": datetime(2030, 1, 1)}),  # noqa: DTZ001
        (queue.expire, {"older_than": -MINUTE, "reason": "late"}),
        (queue.expire, {"older_than": 60, "reason": "late"}),
        (queue.list, {"limit": 501}),
    ]
    for call, given in cases:
        with pytest.raises(InvalidValue):
            call(**given)
    with pytest.raises(PayloadTooLarge):
        queue.expire(timedelta(0), reason="x" * 16_385)
    assert line(store) == [run_id]
