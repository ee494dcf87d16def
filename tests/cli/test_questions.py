"""`ls questions`: what waits for a person, gates and requests in one list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.workflows.steps import Raw

from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Gate, NodeRef, Question, Trigger


@pytest.fixture
def opened(database: Database) -> StateStore:
    return database.open()


def begun(store: StateStore) -> str:
    return store.workflows.runs.create("audit", trigger=Trigger("t", type="cli"), phase="start").id


def gate(store: StateStore) -> str:
    return store.workflows.approvals.pause(begun(store), Gate("ship", "Ship it?")).id


def request(store: StateStore) -> str:
    return store.workflows.human_requests.pause(begun(store), Question(NodeRef("ask"), "confirm", "Really?")).id


def pages(database: Database, limit: int) -> list[list[str]]:
    """The ids on each page, all damaged rows as one id."""
    found, token = [], ["--limit", str(limit)]
    while True:
        data: Any = lastlight_state("ls", "questions", *token, "--url", database.url, "--json").data
        found.append([one["id"] for one in data["items"]] + ["damaged"] * len(data["damaged"]))
        if data["next_page_token"] is None:
            return found
        token = ["--limit", str(limit), "--page-token", data["next_page_token"]]


@pytest.mark.parametrize("kinds", ["ggrrg", "grgrg", "ggg", "rrr", "rrrrrg", ""])
def test_gates_and_requests_are_one_list(
    database: Database, opened: StateStore, frozen_clock: FrozenClock, kinds: str
) -> None:
    """maintenance OP-99: newest first over all pages, each once, and as many on a page as were asked for."""
    ids: list[str] = []
    for kind in kinds:
        frozen_clock.advance(timedelta(minutes=1))
        ids.insert(0, (gate if kind == "g" else request)(opened))
    for limit in (1, 2, 50):
        found = pages(database, limit)
        assert [one for page in found for one in page] == ids, limit
        expected = [len(ids[at : at + limit]) for at in range(0, len(ids), limit)]
        assert [len(page) for page in found if page] == expected, limit


def test_a_gate_that_cannot_be_read_hides_no_other(
    database: Database, opened: StateStore, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-99: and is named once, on pages of any size."""
    ids = []
    for make in (gate, request, gate, request, gate):
        frozen_clock.advance(timedelta(minutes=1))
        ids.append(make(opened))
    if database.name == "postgresql":  # which keeps no damaged JSON
        Raw(database)("UPDATE workflow_approvals SET expires_at = 'infinity' WHERE id = ?", ids[2])
    else:
        Raw(database)("UPDATE workflow_approvals SET action = '{' WHERE id = ?", ids[2])
    for limit in (1, 2, 50):
        found = [one for page in pages(database, limit) for one in page]
        assert sorted(found) == sorted([*ids[:2], *ids[3:], "damaged"])


def test_the_questions_of_a_run_say_what_they_ask(
    database: Database, opened: StateStore, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-99: a gate by its name, a request by its kind; none that is answered."""
    asked = gate(opened)
    frozen_clock.advance(timedelta(minutes=1))
    request(opened)
    run_id = opened.workflows.approvals.get(asked).run_id
    heading, first, second = lastlight_state("ls", "questions", "--url", database.url).out.splitlines()
    assert heading.split() == ["ID", "RUN", "NODE", "WHAT", "ASKED", "EXPIRES", "TEXT"]
    assert ("confirm" in first, "Really?" in first, "ship" in second, "Ship it?" in second) == (True,) * 4
    on = ("--url", database.url, "--run", run_id, "--json")
    assert [one["gate"] for one in lastlight_state("ls", "questions", *on).data["items"]] == ["ship"]
    opened.workflows.approvals.answer(asked, "rejected", by="ana")
    assert lastlight_state("ls", "questions", *on).data["items"] == []


def test_a_token_of_another_list_is_refused(database: Database, opened: StateStore) -> None:
    """maintenance OP-99."""
    for _ in range(2):
        gate(opened)
    on = ("--url", database.url, "--limit", "1", "--json")
    token = lastlight_state("ls", "approvals", *on).data["next_page_token"]
    assert lastlight_state("ls", "questions", "--page-token", token, *on).code == 2
    token = lastlight_state("ls", "questions", *on).data["next_page_token"]
    assert lastlight_state("ls", "approvals", "--page-token", token, *on).code == 2
    run_id = opened.workflows.runs.list().items[0].id
    assert lastlight_state("ls", "questions", "--run", run_id, "--page-token", token, *on).code == 2
