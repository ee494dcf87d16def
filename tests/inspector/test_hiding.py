"""What is personal by the schema, and what people wrote elsewhere, is hidden wherever a page shows it."""

from __future__ import annotations

from typing import Any

import pytest
from inspector.test_acting import HERE
from inspector.test_pages import JSON
from starlette.testclient import TestClient
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewSession
from lastlight_state.db.schema.declarations import is_personal
from lastlight_state.inspector import inspector
from lastlight_state.inspector.pages import PAGES
from lastlight_state.inspector.rendering import PERSONAL
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, RunOptions, Trigger

#: Columns that no page shows under their names, and the phases of a run, of which the parts are hidden.
ELSEWHERE = {"error_json", "last_key", "output_text", "phase_history", "value"}
#: Something that somebody wrote.
WROTE = "zoe-wrote-this"


def test_every_column_that_the_schema_calls_personal_is_hidden() -> None:
    """inspector IN-7: a new column is hidden, or this test fails."""
    personal = {column.name for table in METADATA.sorted_tables for column in table.columns if is_personal(column)}
    hidden = PERSONAL.union(*(page.personal for page in PAGES))
    assert personal - hidden == ELSEWHERE


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """Return a store with what somebody wrote in names, reasons, frames and actions."""
    store = fresh_database.open()
    w = store.workflows
    w.runs.create("w", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id="r"))
    w.approvals.create("r", Gate("ship", "Ship?", id="cancelled"))
    w.approvals.cancel("cancelled", by="zoe", reason=WROTE)
    w.approvals.create("r", Gate("ship", "Ship?", id="open", action={"say": WROTE}))
    w.runs.cancel("r", by="zoe", reason=WROTE)
    store.conversations.sessions.create(NewSession("talk", WROTE))
    store.conversations.branches.create("talk", NewBranch(id="main", name=WROTE))
    return store


@with_each(
    "address",
    [
        "/runs/r",
        "/inbox",
        "/inbox/gates/cancelled",
        "/inbox/gates/open",
        "/conversations",
        "/conversations/talk",
        "/conversations/branches/main",
    ],
)
@with_each("headers", [{}, JSON], ids=["html", "json"])
def test_what_somebody_wrote_is_hidden(store: StateStore, address: str, headers: dict[str, str]) -> None:
    """inspector IN-7: reasons, names of conversations, actions, and titles of windows."""
    shown, hidden = TestClient(inspector(store)), TestClient(inspector(store, hide_personal=True))
    if address != "/inbox":
        assert WROTE in shown.get(address, headers=headers).text
    assert WROTE not in hidden.get(address, headers=headers).text


def test_outputs_and_frames_are_hidden(filled: StateStore, fresh_database: Database) -> None:
    """inspector IN-7."""
    hidden = TestClient(inspector(filled, hide_personal=True, clock=fresh_database.clock))
    assert hidden.get("/runs/home", headers=JSON).json()["outputs"]["report"]["items"][0]["data"] == "(hidden)"
    assert hidden.get("/runs/home/frames/1", headers=JSON).json()["changes"] == "(hidden)"


def test_usage_by_person_names_nobody(fresh_database: Database) -> None:
    """inspector IN-7: on the page, as JSON and as CSV; the amounts stay."""
    store = fresh_database.open()
    trigger = Trigger("t", type="cli", actor="zoe")
    store.workflows.executions.start("w:s", trigger=trigger)
    clock = fresh_database.clock
    shown, hidden = (TestClient(inspector(store, clock=clock, hide_personal=hide)) for hide in (False, True))
    for address in ("/cost?by=triggered_by", "/cost/groups.csv?by=triggered_by"):
        for headers in ({}, JSON):
            assert "zoe" in shown.get(address, headers=headers).text
            assert "zoe" not in hidden.get(address, headers=headers).text
    [group] = hidden.get("/cost?by=triggered_by", headers=JSON).json()["groups"]
    assert (group["triggered_by"], group["executions"]) == ("(hidden)", 1)


def test_what_is_refused_is_shown_while_personal_data_is_hidden(fresh_database: Database) -> None:
    """inspector IN-7, IN-31: with its code; its text may name somebody."""
    store = fresh_database.open()
    store.workflows.runs.create("w", trigger=Trigger("t", type="cli"), phase="p", options=RunOptions(id="r"))
    store.workflows.approvals.create("r", Gate("ship", "Ship it?", id="g"))
    store.workflows.approvals.answer("g", "rejected", by="zoe")
    client = TestClient(inspector(store, acting=True, person="ana", hosts={"testserver"}, hide_personal=True))
    client.get("/")
    form = {"form_token": client.cookies["lastlight_form"], "decision": "approved"}
    page = client.post("/inbox/gates/g", data=form, headers=HERE)
    assert page.status_code == 409
    assert "already_answered: (hidden)" in page.text
    data: Any = client.post("/inbox/gates/g", data=form, headers=HERE | JSON).json()
    assert data["problem"] == {"code": "already_answered", "text": "(hidden)"}
