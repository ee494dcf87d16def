"""Workers are seen, and runs that no worker takes are told, with the reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from support.workflows.plans import plan_of

from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Gate, Provenance, RunOptions, Trigger
from lastlight_state.workflows.claims import lists
from lastlight_state.workflows.shared import workers as rules
from lastlight_state.workflows.workers import DRIVEN
from lastlight_state.workflows.workers.waiting import FREE, QUEUED

MINUTE = timedelta(minutes=1)
TRIGGER = Trigger("t", type="cli")


def offered(store: Any, workflow: str = "review", version: str | None = None, **options: Any) -> Any:
    given = {"offered": True, **options}
    made = RunOptions(provenance=Provenance(app_version=version), **given)
    return store.workflows.runs.create(workflow, trigger=TRIGGER, phase="p", options=made).id


def queued(store: Any, workflow: str = "review") -> Any:
    return offered(store, workflow, offered=False, status="queued")


def reasons(store: Any) -> dict[str, tuple[str, int]]:
    return {one.workflow_name: (one.reason, one.runs) for one in store.workflows.workers.list_waiting()}


def test_a_worker_is_listed_with_what_it_said_and_what_it_drives(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-215."""
    w, began = store.workflows, frozen_clock.now()
    w.workers.announce("w-1", workflow_names=["review", "build", "review"], slots=3, app_versions=["2", "1"])
    taken = w.claims.take(offered(store), owner="w-1")
    frozen_clock.advance(timedelta(seconds=20))
    w.workers.announce("w-1", workflow_names=["review", "build"], slots=3, app_versions=["2", "1"])
    [found] = w.workers.list().items
    assert found == w.workers.get("w-1")
    assert (found.workflow_names, found.app_versions, found.slots) == (("build", "review"), ("1", "2"), 3)
    assert (found.run_ids, found.is_gone) == ((taken.run_id,), False)
    assert (found.started_at, found.seen_at) == (began, frozen_clock.now())
    w.claims.release(taken)
    assert w.workers.get("w-1").run_ids == ()


def test_a_worker_that_is_silent_for_ninety_seconds_is_gone(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-215: and a process that takes its name begins anew."""
    w = store.workflows
    w.workers.announce("w-1", workflow_names=["review"])
    frozen_clock.advance(rules.PATIENCE)
    assert not w.workers.get("w-1").is_gone
    frozen_clock.advance(timedelta(milliseconds=1))
    assert w.workers.get("w-1").is_gone
    w.workers.announce("w-1", workflow_names=["review"])
    assert not w.workers.get("w-1").is_gone


def test_a_worker_that_another_process_replaced_began_with_that(database: Database, frozen_clock: FrozenClock) -> None:
    """workflows W-215."""
    store = database.open()
    store.workflows.workers.announce("w-1", workflow_names=["review"])
    database.raw().execute("UPDATE workflow_workers SET pid = -1")
    frozen_clock.advance(MINUTE)
    store.workflows.workers.announce("w-1", workflow_names=["review"])
    assert store.workflows.workers.get("w-1").started_at == frozen_clock.now()


def test_a_worker_is_removed_once(store: Any) -> None:
    """workflows W-215."""
    workers = store.workflows.workers
    workers.announce("w-1", workflow_names=["review"])
    assert [workers.remove("w-1"), workers.remove("w-1")] == [True, False]
    with pytest.raises(NotFound):
        workers.get("w-1")


@with_each(
    "wrong",
    [{"slots": 0}, {"workflow_names": "review"}, {"workflow_names": [""]}, {"app_versions": ["1"] * 51}],
    ids=str,
)
def test_what_no_worker_can_be_is_refused_by_name(store: Any, wrong: dict[str, Any]) -> None:
    """workflows W-215."""
    with pytest.raises(InvalidValue, match=next(iter(wrong))):
        store.workflows.workers.announce("w-1", **{"workflow_names": ["review"], **wrong})
    assert store.workflows.workers.list().items == ()


def test_gone_workers_are_pruned_and_no_others(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-215, maintenance OP-26."""
    workers = store.workflows.workers
    workers.announce("gone", workflow_names=["review"])
    frozen_clock.advance(2 * rules.PATIENCE)
    workers.announce("there", workflow_names=["review"])
    assert store.maintenance.prune.run(PrunePolicy("workers")).counts == {"workflow_workers": 1}
    assert [worker.name for worker in workers.list().items] == ["there"]


def test_runs_of_each_kind_wait_for_a_worker_after_a_minute(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-216: offered, released, due, abandoned, and queued ones; and none that may not be taken."""
    w = store.workflows
    w.workers.announce("w", workflow_names=["held"])
    offered(store, "offered")
    w.claims.release(w.claims.take(offered(store, "released"), owner="w"))
    pausing = w.claims.take(offered(store, "due"), owner="w")
    w.waits.pause(pausing.run_id, until=frozen_clock.now() + timedelta(seconds=1), claim=pausing)
    w.claims.take(offered(store, "abandoned"), owner="w", lease=timedelta(seconds=1))
    w.claims.take(offered(store, "spent", max_restarts=0), owner="w", lease=timedelta(seconds=1))
    w.claims.take(offered(store, "held"), owner="w", lease=timedelta(hours=1))
    asking = offered(store, "asks")
    w.approvals.pause(asking, Gate("ship", "Ship it?"))
    queued(store, "queued")
    w.claims.release(w.claims.take(offered(store, "later"), owner="w"), retry_after=timedelta(hours=1))
    queued(store, "off")
    w.overrides.put("off", enabled=False)
    frozen_clock.advance(MINUTE - timedelta(milliseconds=1))
    assert reasons(store) == {}
    frozen_clock.advance(timedelta(seconds=2))
    waiting = {"offered", "released", "due", "abandoned", "queued"}
    assert reasons(store).keys() == waiting
    states = {run.workflow_name: w.health.get_state(run.id) for run in w.runs.list(limit=50).items}
    told = {name for name, state in states.items() if state.blocked and state.blocked.kind == "worker"}
    assert told - {"spent"} == waiting
    assert {name: states[name].state for name in waiting} == {
        **dict.fromkeys(waiting, "waiting_worker"),
        "abandoned": "stale",
    }


def test_a_run_of_a_workflow_that_nobody_serves_is_unhealthy_and_says_so(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-216."""
    w, run_id = store.workflows, offered(store, "reviwe")
    w.workers.announce("w-1", workflow_names=["review"])
    frozen_clock.advance(2 * MINUTE)
    w.workers.announce("w-1", workflow_names=["review"])
    [one] = w.workers.list_waiting()
    assert (one.reason, one.why, one.runs) == ("unserved", "no worker that serves 'reviwe' was seen", 1)
    assert (one.since, one.run_id) == (frozen_clock.now() - 2 * MINUTE, run_id)
    state = w.health.get_state(run_id)
    assert (state.state, state.unhealthy) == ("waiting_worker", ("no_worker",))
    assert (state.blocked.kind, state.blocked.label, state.blocked.since) == ("worker", one.why, one.since)
    assert [run.id for run in w.health.list_unhealthy().items] == [run_id]
    assert w.health.get_states([run_id, "unknown"]) == {run_id: state}


def test_taken_slots_and_free_ones_are_told_apart(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-216: neither is unhealthy."""
    w = store.workflows
    taken = w.claims.take(offered(store), owner="w-1", lease=timedelta(hours=1))
    run_id = offered(store)
    frozen_clock.advance(2 * MINUTE)
    w.workers.announce("w-1", workflow_names=["review"])
    assert reasons(store) == {"review": ("slots", 1)}
    state = w.health.get_state(run_id)
    assert (state.state, state.unhealthy) == ("waiting_worker", ())
    assert state.blocked.label == "all slots of workers that serve 'review' are taken (1)"
    w.claims.release(taken)
    assert reasons(store) == {"review": ("free", 1)}


def test_the_version_that_no_worker_drives_is_named(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-216: runs without a version are anybody's."""
    w = store.workflows
    run_id = offered(store, version="3")
    offered(store)
    frozen_clock.advance(2 * MINUTE)
    w.workers.announce("w-1", workflow_names=["review"], app_versions=["1", "2"])
    told = {one.reason: one.why for one in w.workers.list_waiting()}
    assert told["version"] == "no worker that serves 'review' drives version '3'"
    assert told.keys() == {"version", "free"}
    assert w.health.get_state(run_id).unhealthy == ("no_worker",)


def test_programs_that_take_claims_themselves_are_not_overlooked(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-216: a service without a Worker has a backlog, and nothing is wrong."""
    w = store.workflows
    w.claims.take(offered(store), owner="a program", lease=timedelta(hours=1))
    run_id, other = offered(store), queued(store, "build")
    frozen_clock.advance(2 * MINUTE)
    assert reasons(store) == {"review": ("programs", 1)}
    state = w.health.get_state(run_id)
    assert (state.state, state.unhealthy) == ("waiting_worker", ())
    assert state.blocked.label == "no worker for it was seen, and other programs hold 1 run of 'review'"
    assert w.health.get_state(other).state == "queued"


def test_a_queued_run_with_a_worker_waits_for_its_turn(store: Any, frozen_clock: FrozenClock) -> None:
    """workflows W-216."""
    w, run_id = store.workflows, queued(store)
    frozen_clock.advance(2 * MINUTE)
    assert (w.health.get_state(run_id).state, reasons(store)) == ("waiting_worker", {"review": ("unserved", 1)})
    w.workers.announce("w-1", workflow_names=["review"])
    assert (w.health.get_state(run_id).state, reasons(store)) == ("queued", {})


def test_looks_for_waiting_runs_keep_to_live_ones(database: Database) -> None:
    """workflows W-216: each statement reads an index of live runs."""
    store, now = database.open(), database.clock.now()
    moment = lists.moment(now)
    free, given = FREE.of({"workflow_name": None}, False, 100)
    driven, names = DRIVEN.of(["w-1"])
    looks: list[tuple[Any, dict[str, Any]]] = [
        (free, {**moment, **given}),
        (rules.HELD, {**moment}),
        (driven, names),
    ]
    for statement, values in looks:
        plan = plan_of(database, store, statement, values, in_order=True)
        assert not plan.scans_the_table, plan
    line = plan_of(database, store, QUEUED, {**moment, "limit": 100}, in_order=True)
    assert "ix_workflow_runs_queue" in line.text


@pytest.mark.parametrize("damaged", ["'x'", "'{}'"])
def test_a_worker_that_cannot_be_read_hides_no_other(
    sqlite_database: Database, damaged: str, frozen_clock: FrozenClock
) -> None:
    """workflows W-215: and a run that only it serves waits for a worker."""
    store: StateStore = sqlite_database.open()
    run_id = offered(store)
    frozen_clock.advance(2 * MINUTE)
    for name in ("bad", "good"):
        store.workflows.workers.announce(name, workflow_names=["review"])
    sqlite_database.raw().execute(f"UPDATE workflow_workers SET workflow_names = {damaged} WHERE name = 'bad'")
    page = store.workflows.workers.list()
    assert ([worker.name for worker in page.items], len(page.damaged)) == (["good"], 1)
    blocked = store.workflows.health.get_state(run_id).blocked
    assert blocked is not None
    assert blocked.label == "slots of workers that serve 'review' are free (1 of 1)"
