"""What an operator sees of workers, and of runs that wait for one."""

from __future__ import annotations

from datetime import timedelta

from support.cli.calls import Said, lastlight_state

from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import RunOptions, Trigger

WHY = "no worker that serves 'review' was seen"


def said(database: Database, *words: object) -> Said:
    return lastlight_state(*words, "--url", database.url, "--json")


def offered(store: StateStore) -> str:
    options = RunOptions(offered=True)
    return store.workflows.runs.create("review", trigger=Trigger("t"), phase="p", options=options).id


def test_workers_are_listed_and_shown_with_what_they_drive(database: Database) -> None:
    """workflows W-215, maintenance OP-11."""
    store = database.open()
    store.workflows.workers.announce("w-1", workflow_names=["review", "build"], slots=4, app_versions=["7"])
    run_id = store.workflows.claims.take(offered(store), owner="w-1").run_id
    [listed] = said(database, "ls", "workers").data["items"]
    shown = said(database, "show", "worker", "w-1").data["record"]
    assert listed == shown
    assert (shown["run_ids"], shown["workflow_names"], shown["slots"]) == ([run_id], ["build", "review"], 4)
    told = lastlight_state("ls", "workers", "--url", database.url).out
    assert "1 of 4" in told
    assert "build, review" in told
    assert said(database, "ls", "workers", "--status", "gone").code == 2


def test_runs_that_no_worker_takes_are_told_wherever_runs_are(database: Database, frozen_clock: FrozenClock) -> None:
    """workflows W-216, maintenance OP-105: by workflow in the overview, which names each such run once."""
    store = database.open()
    run_id = offered(store)
    frozen_clock.advance(timedelta(minutes=2))
    found = said(database, "ls").data
    assert [(one["workflow_name"], one["runs"], one["why"]) for one in found["waiting"]] == [("review", 1, WHY)]
    assert found["unhealthy"] == []
    [listed] = said(database, "ls", "runs").data["items"]
    assert (listed["status"], listed["waits_because"]) == ("running", WHY)
    shown = said(database, "show", "run", run_id).data["state"]
    assert (shown["state"], shown["blocked"]["label"]) == ("waiting_worker", WHY)
    for words in (("ls",), ("ls", "runs"), ("show", run_id)):
        told = lastlight_state(*words, "--url", database.url).out
        assert "waits for a worker" in told
    store.workflows.runs.finish(run_id, "cancelled")
    [ended] = said(database, "ls", "runs").data["items"]
    assert ended["waits_because"] is None


def test_a_queue_that_nobody_admits_is_told(database: Database, frozen_clock: FrozenClock) -> None:
    """workflows W-216."""
    store = database.open()
    options = RunOptions(status="queued")
    store.workflows.runs.create("review", trigger=Trigger("t"), phase="p", options=options)
    frozen_clock.advance(timedelta(minutes=2))
    [listed] = said(database, "ls", "queue").data["items"]
    assert (listed["status"], listed["waits_because"]) == ("queued", WHY)
