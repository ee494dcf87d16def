"""How many clicks lead from the first page to the cause of a trouble."""

from __future__ import annotations

from datetime import timedelta

import pytest
from inspector.test_pages import Parsed
from starlette.testclient import TestClient
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.inspector import inspector
from lastlight_state.schedules import CronSpec, FireError, FireOutcome
from lastlight_state.testing import Database
from lastlight_state.workflows import Failure, Gate, RunOptions, Trigger

#: What somebody has to find out, a text that says it, and after how many clicks it is read at the latest.
TROUBLES = {
    "a run waits for a person": ("Ship the release?", 0),
    "and what exactly is asked": ("the migration cannot be undone", 1),
    "a run that no worker serves": ("no worker that serves 'reviwe' was seen", 0),
    "and what that run is": ("acme/web#2", 1),
    "a failed run": ("KeyError: 'price'", 0),
    "and where in the program": ("line 7, in total", 1),
    "a run whose worker died": ("its worker is gone", 0),
    "and which worker that was": ("driven by worker-7", 1),
    "a schedule that nobody takes": ("due 3 h ago, and no scheduler has taken it", 0),
    "a schedule that fails": ("its last fire ended failed: the token is too old", 0),
    "and the whole error": ("of the vault", 1),
}


@pytest.fixture
def client(fresh_database: Database) -> TestClient:
    """Return a browser before a store with six troubles."""
    store, clock = fresh_database.open(), fresh_database.clock
    w, crons = store.workflows, store.schedules.crons
    crons.put("nightly", CronSpec("* * * * *", "sweep"))
    crons.put("hourly", CronSpec("* * * * *", "sync"))
    for number, (name, workflow, offered) in enumerate(
        (("asks", "review", False), ("lost", "reviwe", True), ("broke", "bill", False), ("dead", "review", False)), 1
    ):
        trigger = Trigger(f"acme/web#{number}", type="webhook", actor="ana")
        w.runs.create(workflow, trigger=trigger, phase="p", options=RunOptions(id=name, offered=offered))
    lines = "\n".join(f"detail {number}" for number in range(20))
    w.approvals.pause(
        "asks", Gate("ship", f"Ship the release?\n{lines}", action={"note": "the migration cannot be undone"})
    )
    w.runs.finish("broke", "failed", failure=Failure("KeyError: 'price'", detail="line 7, in total"))
    w.claims.take("dead", owner="worker-7", lease=timedelta(minutes=2))
    clock.advance(timedelta(minutes=2))
    error = FireError("the token is too old", detail={"of the vault": True})
    for claim in crons.take_due(owner="s", limit=10):
        if claim.cron_name == "hourly":
            store.schedules.fires.finish(claim, FireOutcome("failed", error=error))
    clock.advance(timedelta(hours=3, minutes=1))
    _serve(store)
    return TestClient(inspector(store, clock=clock))


def _serve(store: StateStore) -> None:
    """Let a scheduler take one of both crons up to now, and a worker serve one of both workflows."""
    store.workflows.workers.announce("worker-8", workflow_names=["review"])
    hourly = store.schedules.crons.get("hourly")
    store.schedules.crons.put("hourly", CronSpec("0 0 1 1 *", "sync"))
    store.schedules.crons.replan("hourly")
    assert store.schedules.crons.get("hourly").next_run_at != hourly.next_run_at


def links(client: TestClient, address: str) -> list[str]:
    """Return where the content of a page leads."""
    content = client.get(address).text.partition("<main")[2].partition("</main>")[0]
    found = [str(attributes["href"]) for tag, attributes in Parsed(content).tags if tag == "a"]
    return [one.partition("#")[0] for one in dict.fromkeys(found) if one.startswith("/")]


def clicks(client: TestClient, text: str, most: int) -> int | None:
    """Return how many clicks lead to a page that says the text; None for more than so many."""
    met, level = {"/"}, ["/"]
    for number in range(most + 1):
        if any(text in Parsed(client.get(address).text).text for address in level):
            return number
        level = [link for address in level for link in links(client, address) if link not in met]
        met.update(level)
    return None


@with_each("trouble", TROUBLES)
def test_a_few_clicks_lead_from_the_first_page_to_the_cause(client: TestClient, trouble: str) -> None:
    """inspector IN-125, IN-126: as many as the table says, and no more."""
    text, most = TROUBLES[trouble]
    assert clicks(client, text, most) == most
