"""The queue under many hands, and what its statements cost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.between import before
from support.rivals import shut_out
from support.sent import recorded
from support.workflows.crew import Crew
from support.workflows.plans import plan_of, plan_of_page
from support.workflows.steps import Raw, started, together

from lastlight_state import StateStore
from lastlight_state.db.rows.statements import Statement
from lastlight_state.errors import BackendBusy, LostRace
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Claim, WorkflowRun
from lastlight_state.workflows.queue import Queue, statements as sql

WORK = """
import time
from lastlight_state import StateStore

url, me, cap, names = arguments
with StateStore.open(url, migrate=False) as store:
    workflows, looks = store.workflows, []
    ready()
    while any(names is None or run.workflow_name in names for run in workflows.queue.list(limit=500)):
        claims = workflows.queue.admit_next(cap=cap, owner=me, workflow_names=names)
        if not claims:
            time.sleep(0.01)  # as a worker polls; those that do nothing else would keep the writers from the file
        for claim in claims:
            looks.append([claim.run_id, {run.id: run.status for run in workflows.runs.list(limit=500)}])
            workflows.runs.finish(claim.run_id, "succeeded", claim=claim)
result = looks
"""


@pytest.mark.parametrize(
    ("processes", "count"),
    [(6, 10), (16, 32), pytest.param(6, 100, marks=pytest.mark.soak), pytest.param(16, 100, marks=pytest.mark.soak)],
)
def test_processes_admit_in_order_and_below_the_cap(
    fresh_database: Database, crew: Crew, processes: int, count: int
) -> None:
    """workflows W-36: after every admission, at most three run, and who was admitted came first."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    ids = [started(store, status="queued", id=f"r-{index:03}").id for index in range(count)]
    told = crew.race(WORK, *([fresh_database.url, f"p{index}", 3, None] for index in range(processes)))
    looks = [look for process in told for look in process]
    assert sorted(run_id for run_id, _ in looks) == ids
    for run_id, seen in looks:
        statuses = [seen[run_id] for run_id in ids]
        assert seen[run_id] == "running"
        assert statuses.count("running") <= 3
        assert "queued" not in statuses[: count - statuses.count("queued")]
    for run_id in ids:
        raw.check_history(run_id)


def test_services_that_share_a_database_have_a_cap_each(fresh_database: Database, crew: Crew) -> None:
    """workflows W-36: in six processes, beside ten running runs of another service that would fill either cap."""
    store = fresh_database.open()
    for _ in range(10):
        started(store, workflow_name="theirs")
    groups = {"ship": ["ship", "pack"], "mail": ["mail"]}
    ids = {
        name: [started(store, status="queued", workflow_name=names[n % len(names)]).id for n in range(8)]
        for name, names in groups.items()
    }
    members = [(f"{name}-{n}", names) for n in range(3) for name, names in groups.items()]
    told = crew.race(WORK, *([fresh_database.url, me, 2, names] for me, names in members))
    for (me, _), looks in zip(members, told, strict=True):
        ours = ids[me.split("-")[0]]
        for run_id, seen in looks:
            assert run_id in ours
            assert [seen[each] for each in ours].count("running") <= 2
    admitted = [run_id for looks in told for run_id, _ in looks]
    assert sorted(admitted) == sorted(ids["ship"] + ids["mail"])


def test_admissions_at_one_instant_share_the_room(every_backend: StateStore) -> None:
    """workflows W-36."""
    ids = [started(every_backend, status="queued").id for _ in range(10)]
    started(every_backend)
    admit = partial(every_backend.workflows.queue.admit_next, cap=6, limit=2)
    outcomes: list[Any] = together([partial(admit, owner=f"w-{index}") for index in range(8)])
    claims: list[Claim] = [claim for outcome in outcomes for claim in outcome]
    assert sorted(claim.run_id for claim in claims) == ids[:5]
    assert len(every_backend.workflows.runs.list(statuses=["running"])) == 6
    assert every_backend.metrics.retries == 0


def test_of_many_who_admit_one_run_one_does(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-35."""
    run = started(every_backend, status="queued")
    outcomes = together([partial(every_backend.workflows.queue.admit, run.id)] * 8)
    [won] = [outcome for outcome in outcomes if isinstance(outcome, WorkflowRun)]
    assert all(isinstance(outcome, LostRace) for outcome in outcomes if outcome is not won)
    assert len(raw.transitions(run.id)) == 2


def test_who_is_being_cancelled_keeps_nobody_waiting(every_backend: StateStore) -> None:
    """workflows W-36: admission and a cancel of the same runs, in opposite orders, end without a deadlock."""
    workflows = every_backend.workflows
    for round_ in range(5):
        root = started(every_backend, id=f"{round_}-z", status="queued").id
        for index in range(6):
            started(every_backend, id=f"{round_}-{9 - index}", status="queued", parent_run_id=root)
        both: list[Callable[[], object]] = [
            partial(workflows.queue.admit_next, cap=100, owner="w-1", limit=10),
            partial(workflows.runs.cancel, root, by="ana", reason="stop", scope="tree"),
        ]
        outcomes = together(both)
        assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert {run.status for run in workflows.runs.list(limit=7)} == {"cancelled"}
    assert every_backend.metrics.retries == 0


def test_two_sweeps_expire_each_run_once(every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-38."""
    told: list[WorkflowRun] = []
    every_backend.workflows.on_terminal(told.append)
    ids = [started(every_backend, status="queued").id for _ in range(10)]
    frozen_clock.advance(seconds=2)
    sweep = partial(every_backend.workflows.queue.expire, timedelta(seconds=1), reason="late")
    outcomes: list[Any] = together([sweep] * 4)
    assert sorted(run_id for swept in outcomes for run_id in swept) == ids == sorted(run.id for run in told)
    for run_id in ids:
        raw.check_history(run_id)


def test_who_was_requeued_or_admitted_meanwhile_does_not_expire(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-38: looked at again under the lock."""
    queue = every_backend.workflows.queue
    for _ in range(5):
        ids = [started(every_backend, status="queued").id for _ in range(3)]
        frozen_clock.advance(seconds=2)
        works: list[Callable[[], object]] = [
            partial(queue.expire, timedelta(seconds=1), reason="late"),
            *(partial(queue.requeue, run_id, reason="outage") for run_id in ids[:2]),
            partial(queue.admit_next, cap=100, owner="w-1"),
        ]
        expired, *_ = together(works)
        assert isinstance(expired, tuple)
        for run_id in ids:
            assert (every_backend.workflows.runs.get(run_id).status == "cancelled") == (run_id in expired)
        queue.expire(timedelta(0), reason="rest")


def test_who_is_requeued_at_the_moment_of_a_sweep_has_not_waited(
    every_backend: StateStore, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-38: not longer than no time at all."""
    queue = every_backend.workflows.queue
    again, other = (started(every_backend, status="queued").id for _ in range(2))
    frozen_clock.advance(seconds=1)
    before(monkeypatch, Queue, "_expire", lambda: queue.requeue(again, reason="outage"))
    assert queue.expire(timedelta(0), reason="late") == (other,)
    assert every_backend.workflows.runs.get(again).status == "queued"


@pytest.fixture
def long_line(every_backend: StateStore, database: Database, raw: Raw) -> StateStore:
    """2,000 runs of history and 400 in line, of which the first 300 are switched off."""
    raw.many_runs(2_000)
    at = database.clock.now()
    off = "CASE WHEN id IN (SELECT id FROM workflow_runs ORDER BY started_at, id LIMIT 300) THEN 'off' ELSE 'on' END"
    raw(
        "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, status, queued_at, started_at, "
        f"updated_at) SELECT 'q-' || id, {off}, 't', 'plan', 'queued', started_at, ?, ? FROM workflow_runs "
        "ORDER BY started_at, id LIMIT 400",
        at,
        at,
    )
    raw.analyze()
    return every_backend


@pytest.mark.plain_postgres("counts statements, and a chain is two there")
def test_any_number_of_runs_is_admitted_by_the_same_statements(database: Database) -> None:
    """workflows W-102: and one alone by a single statement where the database can."""
    with recorded(database) as (store, sent):
        queue = store.workflows.queue
        runs = [started(store, status="queued") for _ in range(50)]

        def statements(call: Callable[[], object]) -> list[str]:
            sent.clear()
            call()
            return [text.split(None, 1)[0] for text in sent]

        one = statements(lambda: queue.admit_next(cap=100, owner="w-1"))
        looks = ["SELECT", "SELECT", "UPDATE", "INSERT"] if database.name == "sqlite" else ["SELECT", "WITH"]
        assert one == ["BEGIN", *looks, "COMMIT"]
        assert statements(lambda: queue.admit_next(cap=100, owner="w-1", limit=40)) == one
        alone = ["BEGIN", "UPDATE", "INSERT", "COMMIT"] if database.name == "sqlite" else ["WITH"]
        assert statements(lambda: queue.admit(runs[-1].id)) == alone


@pytest.mark.plain_postgres("reads a plan, and Citus has steps of its own")
def test_every_statement_goes_by_what_is_queued(long_line: StateStore, database: Database) -> None:
    """workflows W-36, W-101, W-103: in the order of the line, whatever the history; many who are off cost a look."""
    plan = partial(plan_of, database, long_line, in_order=True)
    at = database.clock.now()
    everyone, _ = sql.NEXT.of({})
    chosen, names = sql.NEXT.of({"of": ["on", "w1"], "full": ["w1"]})
    overdue, of_on = sql.OVERDUE.of({"of": ["on"]})
    first, _ = sql.FIRST.of({"of": ["on"]})
    statements: list[tuple[Statement[Any], Any]] = [
        (everyone, {"at": at, "limit": 1}),
        (chosen, {"at": at, "limit": 1, **names}),
        (overdue, {"cutoff": at, "limit": 500, **of_on}),
        (first, {"at": at, "limit": 1, **of_on}),
    ]
    if database.name == "postgresql":
        admit, of_on = sql.ADMIT.of({"of": ["on"]})
        holder = {"claim_owner": "a", "lease_expires_at": at}
        statements.append((admit, {"at": at, "limit": 1, "cap": 9, **holder, **of_on}))
    plans = [plan(statement, values) for statement, values in statements]
    plans += [plan_of_page(database, long_line, sql.LIST, {}, paged=paged) for paged in (False, True)]
    for each in plans:
        assert "ix_workflow_runs_queue" in each.text, each
        assert not each.sorts_the_table or "CTE taken" in each.text, each  # the few that were admitted are sorted
    for named in (None, ["on", "off"]):
        statement, values = sql.COUNT_RUNNING.of({"of": named})
        counted = plan(statement, {**values, "cap": 10}).text  # Postgres has several indexes that lead to what runs
        indexes = ("ix_workflow_runs_running", "idx_workflow_runs_status", "ix_workflow_runs_live_started")
        assert any(name in counted for name in indexes), counted
    long_line.workflows.overrides.put("off", enabled=False)
    [claim] = long_line.workflows.queue.admit_next(cap=10, owner="w-1")
    assert long_line.workflows.runs.get(claim.run_id).workflow_name == "on"


def test_a_damaged_run_is_not_admitted_in_one_trip(postgres_database: Database) -> None:
    """workflows W-36, Postgres: its time would be read only after it had been admitted."""
    store, raw = postgres_database.open(), Raw(postgres_database)
    damaged, sound = (started(store, status="queued").id for _ in range(2))
    raw("UPDATE workflow_runs SET cancel_requested_at = 'infinity' WHERE id = ?", damaged)
    assert [claim.run_id for claim in store.workflows.queue.admit_next(cap=9, owner="a", limit=5)] == [sound]
    assert raw("SELECT status FROM workflow_runs WHERE id = ?", damaged) == [("queued",)]


def test_an_admission_that_waits_in_vain_for_another_leaves_a_sound_connection(postgres_database: Database) -> None:
    """workflows W-36: the lock, the statement and the commit travel together, and fail together."""
    store, other = postgres_database.open(), shut_out(postgres_database)
    runs = [started(store, status="queued").id for _ in range(2)]
    with store.transaction() as tx:
        [first] = tx.workflows.queue.admit_next(cap=9, owner="a")
        for _ in range(3):
            with pytest.raises(BackendBusy):
                other.workflows.queue.admit_next(cap=9, owner="b")
    [second] = other.workflows.queue.admit_next(cap=9, owner="b")
    assert [first.run_id, second.run_id] == runs
