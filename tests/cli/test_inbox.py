"""What waits for a person, what happened to a run, and lists for operators."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.cli.calls import begun, lastlight_state

from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, NodeRef, Question, Trigger

LONG = "Deploy version 12 of the payment service to all regions at once, although two of them are asleep? " * 3


@pytest.fixture
def waiting(database: Database) -> StateStore:
    """One question of each kind, in this order: a gate with an action, a reply, a choice, a text, a form."""
    store = database.open()
    store.workflows.approvals.pause(begun(store), Gate("deploy", LONG, action={"do": "deploy"}))
    store.workflows.approvals.pause(begun(store), Gate("plan", "Which way?", kind="reply"))
    form = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    for question in (
        Question(NodeRef("region"), "select", "Where?", options=["eu", "us"]),
        Question(NodeRef("name"), "text", "How is it called?"),
        Question(NodeRef("plan"), "form", "How long?", schema=form),
    ):
        store.workflows.human_requests.pause(begun(store), question)
    return store


def test_the_inbox_shows_all_that_waits_with_its_texts(database: Database, waiting: StateStore, typed: Any) -> None:
    """maintenance OP-99: oldest first, gates and requests; the same to a pipe, and as data."""
    piped = lastlight_state("inbox", "--url", database.url).out
    assert [line.split(":")[0] for line in piped.splitlines() if line[:1].isdigit()] == [
        "1. deploy",
        "2. plan",
        "3. region (select)",
        "4. name (text)",
        "5. plan (form)",
    ]
    for text in (LONG.strip(), 'action: {"do":"deploy"}', 'options: ["eu","us"]'):
        assert text in piped
    items = lastlight_state("inbox", "--json", "--url", database.url).data["items"]
    assert [one["asked_at"] for one in items] == sorted(one["asked_at"] for one in items)
    screen = typed("inbox", "--no-color", "--url", database.url).out
    assert max(map(len, screen.splitlines())) <= 100
    assert " ".join(LONG.split()) in " ".join(screen.split())
    one = lastlight_state("inbox", "--run", items[2]["run_id"], "--json", "--url", database.url)
    assert [found["node_id"] for found in one.data["items"]] == ["region"]


def test_the_inbox_is_answered_by_number(database: Database, waiting: StateStore, typed: Any) -> None:
    """maintenance OP-99: what is no answer changes nothing, and what is refused is told, and the rest goes on."""
    said = '9\n1\nmaybe\n1\ny\n2\nLeft.\n3\n7\n3\n1\n4\nAda\n5\n{}\n5\n{"days": 3}\n1\nn\n\n'
    found = typed("inbox", "--no-color", "--by", "ana", "--url", database.url, answer=said)
    assert found.code == 0
    assert "expected a number from 1 to 5" in found.err
    assert "is already answered: approved by ana" in found.err
    assert waiting.workflows.approvals.count_pending() == waiting.workflows.human_requests.count_pending() == 0
    gates = waiting.workflows.approvals.list().items
    assert {gate.answered_by for gate in gates} == {"ana"}
    assert {gate.gate: gate.status for gate in gates} == {"deploy": "approved", "plan": "approved"}
    answers = [waiting.workflows.human_requests.get(id_).response for id_ in _requests(waiting)]
    assert answers == ["eu", "Ada", {"days": 3}]


def _requests(store: StateStore) -> list[str]:
    asked = [store.workflows.human_requests.list_for_run(run.id).items for run in store.workflows.runs.list().items]
    return [request.id for requests in reversed(asked) for request in requests]


def test_an_empty_inbox_says_so(sqlite_database: Database, typed: Any) -> None:
    """maintenance OP-99."""
    assert typed("inbox", "--no-color", "--url", sqlite_database.url).out == "(nothing waits for a person)\n"


def test_an_option_is_given_as_it_is_read(database: Database, waiting: StateStore) -> None:
    """maintenance OP-97: another value names the options."""
    [choice, *_] = waiting.workflows.human_requests.list_pending(order="oldest").items
    for value in ("mars", '"mars"'):
        refused = lastlight_state("answer", choice.id, "--value", value, "--url", database.url)
        assert refused.code == 2
        assert 'the options are ["eu","us"]' in refused.err
    assert lastlight_state("answer", choice.id, "--value", "us", "--url", database.url).code == 0


def test_the_timeline_of_a_run_is_printed_and_followed(database: Database) -> None:
    """maintenance OP-99: a follower is told what has happened, and ends with the run."""
    store = database.open()
    run_id = begun(store)
    store.workflows.runs.cancel(run_id, by="ana", reason="wrong branch")
    told = lastlight_state("timeline", run_id[:-1], "--url", database.url).out
    assert "ana" in told
    assert "cancelled: wrong branch" in told
    followed = lastlight_state("timeline", run_id, "-f", "--url", database.url).out.splitlines()
    assert ["began" in line for line in followed] == [True, False]
    objects = lastlight_state("timeline", run_id, "-f", "--json", "--url", database.url).out.splitlines()
    assert [json.loads(line)["actor"] for line in objects] == [None, "ana"]


def test_lists_are_narrowed_by_workflow_and_repository(database: Database) -> None:
    """maintenance OP-99: a kind that is not listed by a flag refuses it."""
    store = database.open()
    mine = store.workflows.runs.create(
        "review", trigger=Trigger("t", type="cli"), phase="plan", context={"_repo": {"owner": "o", "name": "r"}}
    )
    queued = begun(store, status="queued")

    def listed(*words: str) -> list[str]:
        items = lastlight_state("ls", *words, "--json", "--url", database.url).data["items"]
        return [one.get("id") or one["run_id"] for one in items]

    assert listed("queue") == [queued]
    assert set(listed("runs", "--workflow", "review")) == {mine.id, queued}
    for kind in ("runs", "claimable", "unhealthy"):
        assert listed(kind, "--workflow", "other") == []
    assert lastlight_state("ls", "runs", "--repo", "o/r", "--url", database.url).code == 0
    assert lastlight_state("ls", "crons", "--repo", "o/r", "--url", database.url).code == 2
