"""Pauses until a time, for a signal, by an operator, or for gates asked before; and how they end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from support.workflows.crew import Crew
from support.workflows.plans import plan_of, plan_of_page
from support.workflows.steps import PLAN, Raw, all_pages, paused, started, together

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, NotFound, PayloadTooLarge, StaleVersion
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Answered, Gate, WorkflowRun, waits as sql

MINUTE = timedelta(minutes=1)


def person_is_asked(raw: Raw, run: WorkflowRun, status: str) -> None:
    """Asks a person something that blocks the run; the status is the id."""
    raw(
        "INSERT INTO human_requests (id, run_id, node_id, kind, prompt, status, blocks_run, requested_at) "
        "VALUES (?, ?, 'build', 'text', 'Which', ?, ?, ?)",
        status,
        run.id,
        status,
        True,
        run.started_at,
    )


def test_a_pause_says_what_it_waits_for(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-32: a word for the first of it, and all of it in the row."""
    until = frozen_clock.now() + MINUTE
    cases: list[tuple[str, dict[str, Any]]] = [
        ("operator", {}),
        ("timer", {"until": until}),
        ("signal", {"signal": "merged", "correlation_id": "pr-7", "until": until}),
        ("gate", {"gates": ["gate"], "signal": "merged", "until": until}),
    ]
    for why, given in cases:
        run = started(store)
        if why == "gate":
            given["gates"] = [store.workflows.approvals.create(run.id, PLAN).id]
        waiting = store.workflows.waits.pause(run.id, **given)
        assert (waiting.status, waiting.status_reason, waiting.pause_reason) == ("paused", f"run.paused.{why}", why)
        assert (waiting.wake_at, waiting.waiting_for, waiting.correlation_id) == tuple(
            given.get(name) for name in ("until", "signal", "correlation_id")
        )
        assert store.workflows.runs.get(run.id) == waiting
        raw.check_history(run.id)


def test_a_pause_by_a_person_is_recorded_with_who_and_why(store: StateStore) -> None:
    """workflows W-213."""
    named, unnamed = started(store), started(store)
    store.workflows.waits.pause(named.id, by="ana", reason="lunch")
    store.workflows.waits.pause(unnamed.id)

    def last(run: WorkflowRun) -> tuple[str | None, str, str | None]:
        change = store.workflows.lookups.list_transitions(run.id).items[0]
        return change.actor, change.source, change.detail

    assert (last(named), last(unnamed)) == (("ana", "operator", "lunch"), (None, "engine", None))
    bad_ones: list[dict[str, Any]] = [{"by": ""}, {"by": "x" * 129}, {"reason": "x" * 3_000}]
    for bad in bad_ones:
        run = started(store)
        with pytest.raises((InvalidValue, PayloadTooLarge)):
            store.workflows.waits.pause(run.id, **bad)
        assert store.workflows.runs.get(run.id).status == "running"


def test_a_pause_ends_the_claim(store: StateStore) -> None:
    """workflows W-32, W-48: nobody holds a paused run."""
    run = started(store)
    claim = store.workflows.claims.take(run.id, owner="w-1")
    waiting = store.workflows.waits.pause(run.id, claim=claim)
    assert (waiting.claim_owner, waiting.claim_epoch) == (None, claim.epoch + 1)
    with pytest.raises(ClaimLost) as lost:
        store.workflows.runs.merge_scratch(run.id, {"late": 1}, claim=claim)
    assert lost.value.status == "paused"


def test_a_pause_that_is_refused_changes_nothing(store: StateStore, raw: Raw) -> None:
    """workflows W-13, W-14, W-32."""
    held, queued, other = started(store), started(store, status="queued"), started(store)
    store.workflows.claims.take(held.id, owner="w-1")
    theirs = store.workflows.approvals.create(other.id, PLAN).id
    pause = store.workflows.waits.pause
    refused: list[tuple[type[Exception], Callable[[], object]]] = [
        (NotFound, partial(pause, "nothing")),
        (ClaimLost, partial(pause, held.id)),
        (Conflict, partial(pause, queued.id)),
        (NotFound, partial(pause, started(store).id, gates=[theirs])),
        (NotFound, partial(pause, other.id, gates=[theirs, "nothing"])),
    ]
    for error, call in refused:
        with pytest.raises(error):
            call()
    assert not raw("SELECT id FROM workflow_runs WHERE status = 'paused'")
    assert raw("SELECT run_id, reason FROM run_transitions WHERE seq > 1") == [(other.id, "question.asked")]


def test_what_a_pause_waits_for_is_said_in_sound_words(store: StateStore) -> None:
    """workflows W-2, W-5."""
    run = started(store)
    cases: list[dict[str, Any]] = [
        {"until": datetime(2030, 1, 1)},  # noqa: DTZ001 - naive on purpose
        {"signal": ""},
        {"signal": "x" * 257},
        {"signal": "go", "correlation_id": "a\nb"},
        {"correlation_id": "pr-7"},
        {"gates": "gate"},
        {"gates": [f"g-{index}" for index in range(501)]},
    ]
    for given in cases:
        with pytest.raises(InvalidValue):
            store.workflows.waits.pause(run.id, **given)
    assert store.workflows.runs.get(run.id) == run


def test_a_gate_that_was_answered_is_not_waited_for(store: StateStore) -> None:
    """workflows W-32: the run goes on, and its driver reads the answer."""
    run = started(store)
    claim = store.workflows.claims.take(run.id, owner="w-1")
    open_, answered = (store.workflows.approvals.create(run.id, Gate(gate, "Go?"), claim=claim).id for gate in "ab")
    store.workflows.approvals.answer(answered, "approved", by="ana")
    with pytest.raises(StaleVersion) as stale:
        store.workflows.waits.pause(run.id, gates=[open_, answered], claim=claim)
    assert (stale.value.expected, stale.value.found) == ("pending", "approved")
    assert store.workflows.claims.heartbeat(claim).epoch == claim.epoch
    assert store.workflows.waits.pause(run.id, gates=[open_], claim=claim).status == "paused"


def test_a_request_to_a_person_is_waited_for_as_a_gate_is(store: StateStore, raw: Raw) -> None:
    """workflows W-32."""
    run = started(store)
    for status in ("pending", "answered"):
        person_is_asked(raw, run, status)
    with pytest.raises(StaleVersion, match="human_request") as stale:
        store.workflows.waits.pause(run.id, gates=["pending", "answered"])
    assert stale.value.found == "answered"
    assert store.workflows.waits.pause(run.id, gates=["pending"]).pause_reason == "gate"


def test_any_answer_wakes_a_run_that_waits_for_several_gates(store: StateStore) -> None:
    """workflows W-32, W-85: asked beside the run, none of them blocks it."""
    run = started(store)
    first, second = (store.workflows.approvals.create(run.id, Gate(gate, "Go?")).id for gate in "ab")
    store.workflows.waits.pause(run.id, gates=[first, second], until=store.workflows.runs.get(run.id).started_at)
    woken = store.workflows.approvals.answer(second, "approved", by="ana").run
    assert (woken.status, woken.claim_owner, woken.lease_expires_at, woken.wake_at) == ("running", None, None, None)


def test_an_answer_leaves_a_run_that_waits_for_something_else(store: StateStore) -> None:
    """workflows W-85."""
    cases: list[dict[str, Any]] = [{}, {"signal": "merged"}]
    for given in cases:
        run = started(store)
        gate = store.workflows.approvals.create(run.id, PLAN)
        store.workflows.waits.pause(run.id, **given)
        assert store.workflows.approvals.answer(gate.id, "approved", by="ana").run.status == "paused"


@pytest.mark.parametrize("rounds", [15, pytest.param(200, marks=pytest.mark.soak)])
def test_no_answer_is_slept_through(every_backend: StateStore, raw: Raw, rounds: int) -> None:
    """workflows W-10, W-32, case 3: an answer at the instant of the pause comes before it, or wakes the run."""
    waits, approvals = every_backend.workflows.waits, every_backend.workflows.approvals
    seen = set()
    for round_ in range(rounds):
        run = started(every_backend)
        gate = approvals.create(run.id, PLAN)
        both: list[Callable[[], object]] = [
            partial(waits.pause, run.id, gates=[gate.id]),
            partial(approvals.answer, gate.id, "approved", by="ana"),
        ]
        outcomes = together(both if round_ % 2 else both[::-1])
        [answered] = [outcome for outcome in outcomes if isinstance(outcome, Answered)]
        [pausing] = [outcome for outcome in outcomes if outcome is not answered]
        assert isinstance(pausing, WorkflowRun | StaleVersion)
        assert answered.run.status == every_backend.workflows.runs.get(run.id).status == "running"
        assert len(raw.transitions(run.id)) == (4 if isinstance(pausing, WorkflowRun) else 3)
        raw.check_history(run.id)
        seen.add(type(pausing))
    assert seen <= {WorkflowRun, StaleVersion}


WAKE = """
from lastlight_state import StateStore

url, me = arguments
with StateStore.open(url, migrate=False) as store:
    result = []
    ready()
    while claims := store.workflows.claims.take_next(owner=me, limit=2):
        result += [claim.run_id for claim in claims]
"""


def test_two_processes_wake_a_due_run_once(fresh_database: Database, crew: Crew) -> None:
    """workflows W-32: whoever comes second, before any work has begun; none that still waits for a gate."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    due_at = fresh_database.clock.now() + MINUTE
    due = [store.workflows.waits.pause(started(store).id, until=due_at).id for _ in range(12)]
    gate = paused(store)
    raw("UPDATE workflow_runs SET wake_at = ? WHERE id = ?", due_at, gate.run_id)
    assert not store.workflows.claims.list_claimable().items
    told = crew.race(WAKE, *([fresh_database.url, f"p{index}"] for index in range(2)))
    assert sorted(run_id for woken in told for run_id in woken) == due
    fresh_database.clock.advance(2 * MINUTE)
    assert not store.workflows.claims.list_claimable().items
    for run_id in due:
        assert raw.transitions(run_id)[-1] == ("paused", "running", "run.resumed.timer")
        raw.check_history(run_id)


def test_a_resumed_run_is_offered_to_anybody(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-33."""
    run = started(store)
    store.workflows.waits.pause(run.id, signal="merged", correlation_id="pr-7", until=frozen_clock.now() + MINUTE)
    woken = store.workflows.waits.resume(run.id, by="ana", reason="merged by hand")
    assert (woken.status, woken.claim_owner, woken.lease_expires_at) == ("running", None, None)
    assert (woken.pause_reason, woken.wake_at, woken.waiting_for, woken.correlation_id) == (None,) * 4
    assert raw("SELECT reason, actor, source, detail FROM run_transitions WHERE seq = 3") == [
        ("run.resumed.signal", "ana", "operator", "merged by hand")
    ]
    claim = store.workflows.claims.take(run.id, owner="w-1")
    assert claim.restart_count == 0


def test_a_run_with_a_question_that_blocks_it_is_not_resumed(store: StateStore, raw: Raw) -> None:
    """workflows W-33: gates and requests to people alike, and none of another run."""
    gate, other = paused(store), started(store)
    run_id = gate.run_id
    person_is_asked(raw, store.workflows.runs.get(run_id), "pending")
    with pytest.raises(Conflict) as refused:
        store.workflows.waits.resume(run_id, by="ana", reason="go")
    assert (refused.value.code, refused.value.details["ids"]) == ("gate_pending", tuple(sorted([gate.id, "pending"])))
    store.workflows.waits.pause(other.id)
    assert store.workflows.waits.resume(other.id, by="ana", reason="go").status == "running"
    assert store.workflows.runs.get(run_id).status == "paused"
    raw("UPDATE human_requests SET status = 'answered'")
    raw("UPDATE workflow_approvals SET blocks_run = ?", False)
    assert store.workflows.waits.resume(run_id, by="ana", reason="go").status_reason == "run.resumed.gate"


def test_only_a_paused_run_is_resumed(store: StateStore) -> None:
    """workflows W-12, W-13, W-33."""
    for run in (started(store), started(store, status="queued")):
        with pytest.raises(Conflict) as refused:
            store.workflows.waits.resume(run.id, by="ana", reason="go")
        assert (refused.value.code, refused.value.details["found"]) == ("run_status", run.status)
    with pytest.raises(NotFound):
        store.workflows.waits.resume("nothing", by="ana", reason="go")
    with pytest.raises(InvalidValue):
        store.workflows.waits.resume("nothing", by=" ", reason="go")


def test_a_sender_finds_who_waits_for_its_signal(store: StateStore) -> None:
    """workflows W-34."""
    ids = []
    for correlation_id in ("pr-7", "pr-8", None, "pr-7"):
        run = started(store)
        store.workflows.waits.pause(run.id, signal="merged", correlation_id=correlation_id)
        ids.append(run.id)
    store.workflows.waits.pause(started(store).id, signal="closed")
    started(store)
    waiting = store.workflows.waits.list_waiting
    assert [run.id for run in waiting("merged")] == ids
    assert [run.id for run in waiting("merged", correlation_id="pr-7")] == [ids[0], ids[3]]
    assert [run.id for run in all_pages(partial(waiting, "merged"), limit=1)] == ids
    assert not waiting("nothing").items
    token = waiting("merged", limit=1).next_page_token
    for given in ({"signal": "closed", "page_token": token}, {"signal": ""}, {"signal": "merged", "limit": 0}):
        with pytest.raises(InvalidValue):
            waiting(**given)


def test_a_sender_resumes_in_the_transaction_of_its_signal(store: StateStore) -> None:
    """workflows W-34."""
    run = started(store)
    store.workflows.waits.pause(run.id, signal="merged")
    with store.transaction() as tx:
        for waiting in tx.workflows.waits.list_waiting("merged"):
            tx.workflows.waits.resume(waiting.id, by="webhook", reason="merged")
    assert store.workflows.runs.get(run.id).status == "running"
    assert not store.workflows.waits.list_waiting("merged").items


def test_who_waits_is_found_by_the_index_of_who_waits(every_backend: StateStore, database: Database, raw: Raw) -> None:
    """workflows W-34, W-101: history costs nothing."""
    if database.name == "postgresql":
        raw.many_runs(2_000)
        raw("UPDATE workflow_runs SET waiting_for = 'merged', correlation_id = id WHERE status = 'paused'")
        raw.analyze()
    for chosen in ({"signal": "merged"}, {"signal": "merged", "correlation_id": "pr-7"}):
        for paged in (False, True):
            plan = plan_of_page(database, every_backend, sql.WAITING, chosen, paged=paged, in_order=False)
            assert "ix_workflow_runs_waiting" in plan.text, plan
    plan = plan_of(database, every_backend, sql.QUESTION, {"run_id": "r1", "question_id": "g"})
    assert not plan.scans_the_table or database.name == "postgresql", plan  # nothing to read there, in no order
