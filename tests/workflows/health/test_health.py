"""How runs stand, from what is stored: the snapshot behind a state, and the unhealthy among live runs."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from support.sent import recorded
from support.stored_words import unguarded_words
from support.workflows.filled import fill
from support.workflows.plans import plan_of, plan_of_page
from support.workflows.steps import PLAN, Raw, all_pages, paused, started

from lastlight_state import StateStore
from lastlight_state.db.rows.statements import Family
from lastlight_state.errors import CorruptData, InvalidValue, NotFound
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Blocked, Gate, NodeRef, Question, health as sql
from lastlight_state.workflows.words import LIVE

START = FrozenClock().now()
SECOND, TICK = timedelta(seconds=1), timedelta(milliseconds=1)


def test_a_run_that_waits_for_a_person_says_for_what(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-97, W-98: the earliest of all that are pending, with the label of its node."""
    workflows, run = store.workflows, started(store)
    workflows.nodes.put(run.id, NodeRef("ask"), label="Ask")
    request = workflows.human_requests.create(run.id, Question(NodeRef("ask"), "text", "Which?"))
    frozen_clock.advance(seconds=1)
    approval = workflows.approvals.pause(run.id, Gate("plan", "Go?", node=NodeRef("review", 1)))
    closed = workflows.approvals.create(run.id, Gate("other", "Go?"))
    workflows.approvals.answer(closed.id, "approved", by="ana")
    state = workflows.health.get_state(run.id)
    assert (state.status, state.state, state.unhealthy) == ("paused", "waiting_person", ())
    assert state.blocked == Blocked(
        kind="human_request", id=request.id, node=NodeRef("ask"), label="Ask", since=START, count=2
    )
    workflows.human_requests.answer(request.id, "this", by="ana")
    blocked = workflows.health.get_state(run.id).blocked
    assert blocked is not None
    assert (blocked.kind, blocked.id, blocked.node, blocked.count) == ("approval", approval.id, NodeRef("review", 1), 1)


def test_of_many_questions_the_first_is_told_and_all_are_counted(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-97, W-98: and one that is overdue is told wherever it stands."""
    workflows, run = store.workflows, started(store)
    first = workflows.approvals.pause(run.id, PLAN)
    for turn, patience in ((1, 10 * SECOND), (2, SECOND)):
        expires_at = frozen_clock.advance(seconds=1) + patience
        workflows.approvals.create(run.id, Gate(f"plan-{turn}", "Go?", expires_at=expires_at))
        workflows.human_requests.create(run.id, Question(NodeRef("ask", turn), "text", "Which?"))
    state = workflows.health.get_state(run.id)
    assert state.blocked == Blocked(kind="approval", id=first.id, label=PLAN.gate, since=START, count=5)
    assert state.unhealthy == ()
    frozen_clock.advance(seconds=1)
    assert workflows.health.get_state(run.id).unhealthy == ("gate_expired",)


def test_a_queued_run_waits_for_its_turn_its_time_or_its_switch(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-97, W-98."""
    later = START + 60 * SECOND
    run = started(store, status="queued", not_before=later)
    get_state = store.workflows.health.get_state
    assert get_state(run.id).state == "delayed"
    assert get_state(run.id).blocked == Blocked(kind="timer", since=START, until=later)
    frozen_clock.set(later)
    assert get_state(run.id).blocked == Blocked(kind="queue", since=START)
    store.workflows.overrides.put("deploy", enabled=False)
    assert get_state(run.id).blocked == Blocked(kind="workflow_disabled", id="deploy", since=later)


def test_a_queued_run_waits_for_no_switch_of_another_workflow(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-97, W-98: nor for its own, once that is on again."""
    run = started(store, status="queued")
    frozen_clock.advance(seconds=1)
    for name, enabled in (("deploy", False), ("deploy", True), ("other", False)):
        store.workflows.overrides.put(name, enabled=enabled)
    assert store.workflows.health.get_state(run.id).blocked == Blocked(kind="queue", since=START)


def test_a_pause_says_since_when(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-97, W-98: notes since then are no change of status, and those of another run are not its own."""
    run, other = started(store), started(store)
    at = frozen_clock.advance(seconds=1)
    store.workflows.waits.pause(run.id)
    frozen_clock.advance(seconds=1)
    store.workflows.runs.allow_restarts(run.id, 5, by="ana", reason="more")
    store.workflows.runs.finish(other.id, "failed")
    store.workflows.runs.restart(other.id, by="ana", reason="again")
    state = store.workflows.health.get_state(run.id)
    assert (state.state, state.blocked, state.unhealthy) == ("paused", Blocked(kind="operator", since=at), ())


@pytest.mark.parametrize(
    ("table", "column", "said"),
    [
        ("workflow_runs", "started_at", "started_at"),
        ("workflow_approvals", "created_at", "created_at"),
        ("executions", "started_at", "silent_since"),
    ],
)
def test_a_run_of_which_something_cannot_be_read_has_no_state(
    sqlite_database: Database, table: str, column: str, said: str
) -> None:
    """workflows W-97: and is said to be damaged."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    run = started(store)
    store.workflows.executions.start("s", run_id=run.id)
    store.workflows.approvals.create(run.id, Gate("plan", "Go?"))
    for (name,) in raw("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", table):
        raw(f"DROP TRIGGER {name}")
    raw(f"UPDATE {table} SET {column} = 'soon'")
    with pytest.raises(CorruptData) as caught:
        store.workflows.health.get_state(run.id)
    assert (caught.value.table, caught.value.column) == (table, said)


def test_a_lease_that_ends_now_is_alive(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-40, W-97."""
    run = started(store)
    claim = store.workflows.claims.take(run.id, owner="w-1")
    asked: list[str] = []

    def owner_alive(owner: str) -> bool:
        asked.append(owner)
        return True

    def states() -> list[str]:
        health = store.workflows.health
        return [health.get_state(run.id).state, health.get_state(run.id, owner_alive=owner_alive).state]

    frozen_clock.set(claim.lease_expires_at)
    assert (states(), asked) == (["running", "running"], [])
    assert store.workflows.claims.list_claimable().items == ()
    frozen_clock.advance(seconds=0.001)
    assert (states(), asked) == (["stale", "busy"], ["w-1"])
    assert [each.run_id for each in store.workflows.claims.list_claimable()] == [run.id]
    assert store.workflows.health.get_state(run.id).unhealthy == ("lease_expired",)


def test_another_programs_run_is_running_while_it_is_touched(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-49, W-97."""
    raw(
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at)"
        " VALUES ('adopted', 'w', 't', 'p', ?, ?)",
        START - 3600 * SECOND,
        START,
    )
    get_state = store.workflows.health.get_state
    for _ in range(4):
        now = frozen_clock.advance(seconds=10)
        raw("UPDATE workflow_runs SET updated_at = ?", now)
        assert (get_state("adopted").state, get_state("adopted").unhealthy) == ("running", ())
    frozen_clock.advance(seconds=30)
    assert get_state("adopted").state == "running"
    frozen_clock.advance(seconds=0.001)
    assert (get_state("adopted").state, get_state("adopted").unhealthy) == ("stale", ("never_claimed",))


def test_a_run_paused_by_nothing_is_stuck(store: StateStore, raw: Raw) -> None:
    """workflows W-98, case 58; an unknown status is unknown."""
    stuck, strange = started(store), started(store)
    raw("UPDATE workflow_runs SET status = 'paused' WHERE id = ?", stuck.id)
    with unguarded_words(raw.name, raw):
        raw("UPDATE workflow_runs SET status = 'hibernating' WHERE id = ?", strange.id)
    state = store.workflows.health.get_state(stuck.id)
    assert (state.state, state.unhealthy, state.blocked) == ("paused", ("stuck_paused",), None)
    assert store.workflows.health.get_state(strange.id).state == "unknown"


def test_a_heartbeat_of_a_clock_that_goes_ahead_is_a_sign_of_life(store: StateStore, raw: Raw) -> None:
    """workflows W-97, case 58."""
    run = started(store)
    store.workflows.claims.take(run.id, owner="w-1")
    ahead = START + timedelta(days=2)
    raw("UPDATE workflow_runs SET heartbeat_at = ?, lease_expires_at = ?", ahead, ahead + 30 * SECOND)
    state = store.workflows.health.get_state(run.id)
    assert (state.state, state.unhealthy) == ("running", ())


def test_no_run_has_no_state(store: StateStore) -> None:
    """workflows W-13."""
    with pytest.raises(NotFound):
        store.workflows.health.get_state("nobody")


def test_an_overdue_question_and_a_silent_execution_are_unhealthy(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-98; what is expired and unswept is told, and stays as it is."""
    waiting = paused(store, Gate("plan", "Go?", expires_at=START + 10 * SECOND))
    run = started(store)
    old = store.workflows.executions.start("deploy:a", run_id=run.id)
    young = store.workflows.executions.start("deploy:b", run_id=run.id)
    claim = store.workflows.claims.take(run.id, owner="w-1", lease=timedelta(hours=1))
    get_state = store.workflows.health.get_state
    frozen_clock.set(START + 10 * SECOND)
    assert get_state(waiting.run_id).unhealthy == ("gate_expired",)
    frozen_clock.set(START + timedelta(minutes=15))
    store.workflows.executions.update(young.id, claim=claim)
    assert get_state(run.id).unhealthy == ()
    frozen_clock.advance(seconds=0.001)
    assert get_state(run.id).unhealthy == ("execution_silent",)
    store.workflows.executions.finish(old.id, "failed", claim=claim)
    assert get_state(run.id).unhealthy == ()
    assert store.workflows.approvals.expire_due() == (waiting.id,)


def sick_and_well(store: Any, frozen_clock: FrozenClock) -> list[str]:
    """Runs in every condition; the ids of the unhealthy ones, newest first."""
    made: list[str] = []
    for index in range(12):
        frozen_clock.advance(seconds=index % 2)
        if index % 4 == 1:
            paused(store)
        elif index % 4 == 2:
            done = started(store, deadline_at=START)
            store.workflows.runs.finish(done.id, "failed")
        else:
            options: dict[str, Any] = {"deadline_at": START} if index % 4 == 3 else {}
            run = started(store, status="queued" if index > 8 else "running", **options)
            made += [run.id] if options else []
    return made[::-1]


def test_the_unhealthy_among_live_runs_are_listed(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-98: a page looks at so many live runs and no more, and misses none."""
    expected = sick_and_well(store, frozen_clock)
    list_unhealthy = store.workflows.health.list_unhealthy
    for limit in (1, 2):
        assert [each.id for each in all_pages(list_unhealthy, limit=limit)] == expected
    found = list(list_unhealthy())
    assert [each.id for each in found] == expected
    assert {each.state.unhealthy for each in found} == {("deadline_passed",)}
    assert found[0].state == store.workflows.health.get_state(found[0].id)
    assert len(list_unhealthy(limit=2)) <= 2
    with pytest.raises(InvalidValue):
        list_unhealthy(limit=0)


def test_looking_writes_nothing(every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-97."""
    sick_and_well(every_backend, frozen_clock)
    paused(every_backend, Gate("plan", "Go?", expires_at=START + timedelta(hours=1)))
    frozen_clock.advance(seconds=7200)
    tables = ("workflow_runs", "workflow_approvals", "run_transitions", "run_nodes", "executions", "human_requests")

    def stored() -> list[Any]:
        return [sorted(map(str, raw(f"SELECT * FROM {table}"))) for table in tables]

    before = stored()
    with every_backend.view() as view:
        for run in view.workflows.runs.list(limit=500):
            view.workflows.health.get_state(run.id)
        assert all_pages(view.workflows.health.list_unhealthy)
    assert stored() == before


def test_a_state_is_of_one_moment(every_backend: StateStore) -> None:
    """workflows W-97: a run and its gate change together, and are seen together."""
    run, stop = started(every_backend), threading.Event()
    approvals = every_backend.workflows.approvals

    def pause_and_answer() -> None:
        while not stop.is_set():
            approvals.answer(approvals.pause(run.id, PLAN).id, "approved", by="ana")

    writer = threading.Thread(target=pause_and_answer)
    writer.start()
    try:
        seen = [every_backend.workflows.health.get_state(run.id) for _ in range(100)]
    finally:
        stop.set()
        writer.join()
    assert {(state.state, state.unhealthy) for state in seen} <= {
        ("waiting_approval", ()),
        ("offered", ()),
        ("running", ()),
    }


@pytest.mark.parametrize("rows", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_health_reads_what_is_live(database: Database, every_backend: StateStore, raw: Raw, rows: int) -> None:
    """workflows W-98, W-101: ranges of indexes, with statistics and without."""
    ids = ["r-1", "r-2"]
    indexes: list[tuple[Family[Any], str]] = [
        (sql.QUESTIONS[0], "ix_approvals_run (workflow_run_id=?"),
        (sql.QUESTIONS[1], "ix_human_requests_summary (run_id=?"),
        (sql.SILENT, "ix_executions_signs (workflow_run_id=?"),
    ]

    def check() -> None:
        for names in ({}, {"workflow_names": ["deploy"]}):
            chosen: dict[str, Any] = {"statuses": list(LIVE), **names}
            page = plan_of_page(database, every_backend, sql.LIVE, chosen, paged=True)
            # Few runs of a status may be read by another index of it. That of all starts would walk past ended runs.
            assert names or "ix_workflow_runs_live_started" in page.text, page
            assert "idx_workflow_runs_started_at" not in page.text, page
            assert not page.scans_the_table, page
            assert not page.sorts_the_table, page
        for family, on_sqlite in indexes:
            statement, values = family.of(ids)
            plan = plan_of(database, every_backend, statement, values, in_order=True)
            assert (on_sqlite if database.name == "sqlite" else "Index") in plan.text, plan
            assert not plan.scans_the_table, plan

    if database.name == "sqlite":
        check()
    raw.many_runs(rows)
    fill(raw, rows)
    check()


def test_a_page_of_health_costs_four_statements(database: Database, frozen_clock: FrozenClock) -> None:
    """workflows W-102: as one run does, whatever they find."""
    sick_and_well(database.open(), frozen_clock)
    run = started(database.open())
    with recorded(database) as (store, sent):
        for ask in (lambda: store.workflows.health.get_state(run.id), store.workflows.health.list_unhealthy):
            ask()
            sent.clear()
            ask()
            assert len([sql for sql in sent if sql.startswith("SELECT")]) == 4
