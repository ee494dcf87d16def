"""The first page shows workers, what each drives, and workflows that no worker serves."""

from __future__ import annotations

from datetime import timedelta

from starlette.testclient import TestClient

from lastlight_state.inspector import inspector
from lastlight_state.testing import Database
from lastlight_state.workflows import RunOptions, Trigger


def test_the_first_page_shows_workers_and_what_waits_for_one(fresh_database: Database) -> None:
    """workflows W-215, W-216."""
    store, clock = fresh_database.open(), fresh_database.clock
    w = store.workflows
    client = TestClient(inspector(store, clock=clock))
    assert "No worker was seen." in client.get("/").text
    for run_id, workflow in (("taken", "review"), ("free", "reviwe")):
        options = RunOptions(id=run_id, offered=True)
        w.runs.create(workflow, trigger=Trigger("t"), phase="p", options=options)
    w.workers.announce("gone", workflow_names=["review"])
    clock.advance(timedelta(minutes=3))
    w.workers.announce("w-1", workflow_names=["review"], slots=4)
    w.claims.take("taken", owner="w-1")
    page = client.get("/").text
    for text in ("w-1", "1 of 4", "gone", "no worker that serves &#39;reviwe&#39; was seen", "Needs a worker"):
        assert text in page, text
    data = client.get("/", headers={"accept": "application/json"}).json()
    assert [one["name"] for one in data["workers"]["items"]] == ["gone", "w-1"]
    assert [(one["workflow_name"], one["run_id"]) for one in data["waiting"]] == [("reviwe", "free")]
    for address in ("/runs/free", "/runs"):
        assert "no worker that serves" in client.get(address).text, address
    listed = client.get("/runs", headers={"accept": "application/json"}).json()["runs"]["items"]
    assert [one["id"] for one in listed if one["waits"] == "worker"] == ["free"]
