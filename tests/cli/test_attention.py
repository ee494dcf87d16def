"""What an operator sees first: `ls` without a kind, and the list of what is switched."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.cli.calls import Said, lastlight_state
from support.each import with_each

from lastlight_state.conversations import NewSession
from lastlight_state.errors import ClaimLost
from lastlight_state.schedules import CronSpec
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Gate, NodeRef, Question, RunOptions, Trigger


@pytest.fixture
def opened(database: Database) -> StateStore:
    return database.open()


def said(database: Database, *words: object) -> Said:
    return lastlight_state(*words, "--url", database.url, "--json")


def begun(store: StateStore, workflow: str = "audit", **given: Any) -> str:
    return store.workflows.runs.create(workflow, trigger=Trigger("t", type="cli"), phase="start", **given).id


def troubled(store: StateStore, clock: FrozenClock) -> dict[str, str]:
    """A gate, a question, an unhealthy run, and what is switched off, by what they are."""
    gate = store.workflows.approvals.pause(begun(store), Gate("ship", "Ship version 12 to all regions?"))
    clock.advance(timedelta(minutes=1))
    asked = store.workflows.human_requests.pause(begun(store), Question(NodeRef("ask"), "confirm", "Really?"))
    lost = begun(store, "crunch", options=RunOptions(max_restarts=0))
    store.workflows.claims.take(lost, owner="gone", lease=timedelta(seconds=1))
    clock.advance(timedelta(minutes=1))
    store.workflows.overrides.put("audit", enabled=False, by="ana", reason="broken since Monday")
    store.workflows.overrides.put("crunch", enabled=True, by="ana")
    store.schedules.crons.put("nightly", CronSpec("0 4 * * *", "deploy"))
    store.schedules.overrides.put("nightly", enabled=False, by="bo")
    return {"gate": gate.id, "asked": asked.id, "lost": lost}


def test_ls_without_a_kind_is_what_needs_attention(
    database: Database, opened: StateStore, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-105: oldest question first, and nothing that is well."""
    ids = troubled(opened, frozen_clock)
    found = said(database, "ls").data
    assert [one["id"] for one in found["questions"]] == [ids["gate"], ids["asked"]]
    assert ids["lost"] in [one["id"] for one in found["unhealthy"]]
    assert [(one["target"], one["name"]) for one in found["switched_off"]] == [
        ("workflow", "audit"),
        ("cron", "nightly"),
    ]
    assert len(said(database, "ls", "--limit", 1).data["questions"]) == 2
    told = lastlight_state("ls", "--url", database.url).out
    assert "Ship version 12 to all regions?" in told
    assert f"answer: {opened.backend.command('inbox')}" in told
    assert "broken since Monday" in told


def test_nothing_that_needs_attention_is_a_sentence(sqlite_database: Database) -> None:
    """maintenance OP-105."""
    store = sqlite_database.open()
    store.workflows.runs.finish(begun(store), "failed")
    assert lastlight_state("ls", "--url", sqlite_database.url).out == "(nothing needs attention)\n"


def test_a_filter_without_a_kind_is_for_sessions(database: Database, opened: StateStore) -> None:
    """maintenance OP-11, OP-105: as the first command of that name had it."""
    opened.conversations.sessions.create(NewSession("a", project="weather"))
    opened.conversations.sessions.create(NewSession("b"))
    assert [one["id"] for one in said(database, "ls", "--project", "weather").data["items"]] == ["a"]
    assert len(said(database, "ls", "--since", "2020-01-01T00:00Z").data["items"]) == 2
    assert said(database, "ls", "--workflow", "audit").code == 2


def test_override_alone_lists_what_is_switched(
    database: Database, opened: StateStore, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-106: workflows and crons, on as well as off, with who, when and why."""
    assert lastlight_state("override", "--url", database.url).out == "(nothing is switched)\n"
    troubled(opened, frozen_clock)
    listed = said(database, "override").data["overrides"]
    assert [(one["target"], one["name"], one["enabled"], one["by"]) for one in listed] == [
        ("workflow", "audit", False, "ana"),
        ("workflow", "crunch", True, "ana"),
        ("cron", "nightly", False, "bo"),
    ]
    assert "broken since Monday" in lastlight_state("override", "--url", database.url).out
    assert said(database, "override", "--off").code == 2
    assert said(database, "override", "workflow").code == 2


def test_a_name_alone_says_what_is_in_effect(database: Database, opened: StateStore, frozen_clock: FrozenClock) -> None:
    """maintenance OP-106: and changes nothing."""
    troubled(opened, frozen_clock)
    shown = said(database, "override", "workflow", "audit").data
    assert (shown["override"]["reason"], shown["effective"]) == ("broken since Monday", {"enabled": False})
    assert lastlight_state("override", "workflow", "audit", "--url", database.url).out == "workflow audit: off\n"
    assert lastlight_state("override", "cron", "nightly", "--url", database.url).out == "cron nightly: never\n"
    assert "spelled right" in lastlight_state("override", "workflow", "adit", "--url", database.url).out
    assert opened.workflows.overrides.find("adit") is None


def test_a_run_is_taken_from_a_worker_that_hangs(database: Database, opened: StateStore) -> None:
    """maintenance OP-107: at no restart, in the operator's name, and the worker's writes are refused."""
    run_id = begun(opened)
    assert said(database, "run", run_id, "release").error == "not_held"
    claim = opened.workflows.claims.take(run_id, owner="worker-1")
    done = said(database, "run", run_id, "release", "--by", "ana")
    assert (done.code, done.data["run"]["status"]) == (0, "running")
    assert lastlight_state("run", run_id, "release", "--url", database.url).code == 1
    with pytest.raises(ClaimLost):
        opened.workflows.runs.finish(run_id, "succeeded", claim=claim)
    [taken] = opened.workflows.claims.take_next(owner="worker-2")
    assert (taken.run_id, taken.restart_count) == (run_id, 0)
    assert "ana" in lastlight_state("show", "run", run_id, "--history", "--url", database.url).out


def test_a_run_at_its_limit_is_allowed_more_restarts(
    database: Database, opened: StateStore, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-107: the history says who allowed them, and why."""
    lost = troubled(opened, frozen_clock)["lost"]
    assert opened.workflows.claims.take_next(owner="worker-2") == ()
    assert said(database, "run", lost, "allow-restarts").code == 2
    assert said(database, "run", lost, "cancel", "--max", 3).code == 2
    call = ("run", lost, "allow-restarts", "--max", 2, "--by", "ana", "--reason", "the disk was full")
    told = lastlight_state(*call, "--url", database.url).out
    assert told == f"run {lost}: 0 of 2 restarts used (before: 0)\n"
    [taken] = opened.workflows.claims.take_next(owner="worker-2")
    assert taken.run_id == lost
    assert "the disk was full" in lastlight_state("show", "run", lost, "--history", "--url", database.url).out


def test_a_release_is_asked_about_at_a_terminal(sqlite_database: Database, typed: Any) -> None:
    """maintenance OP-107: with the name of the holder."""
    store = sqlite_database.open()
    run_id = begun(store)
    store.workflows.claims.take(run_id, owner="worker-1")
    asked = typed("run", run_id, "release", "--url", sqlite_database.url, answer="n\n")
    assert asked.code == 1
    assert "worker-1 holds it. Take it away?" in asked.err
    assert typed("run", run_id, "release", "--yes", "--url", sqlite_database.url).code == 0
    assert store.workflows.claims.find(run_id) is None


def test_a_rejection_says_why(database: Database, opened: StateStore) -> None:
    """maintenance OP-108: the run reads it, and the failure of the run has it."""
    run_id = begun(opened)
    gate = opened.workflows.approvals.pause(run_id, Gate("ship", "Ship?"))
    done = said(database, "answer", gate.id, "--reject", "--reason", "the tests are red", "--by", "ana")
    assert (done.code, done.data["answer"]["response"]) == (0, "the tests are red")
    assert "the tests are red" in str(opened.workflows.runs.get(run_id).error)


def test_a_reason_is_refused_where_nothing_keeps_it(database: Database, opened: StateStore) -> None:
    """maintenance OP-108: of requests, and beside a reply."""
    asked = opened.workflows.human_requests.pause(begun(opened), Question(NodeRef("ask"), "confirm", "Really?"))
    gate = opened.workflows.approvals.pause(begun(opened), Gate("plan", "How?", kind="reply"))
    assert said(database, "answer", asked.id, "--approve", "--reason", "x").code == 2
    assert said(database, "answer", gate.id, "--reply", "So.", "--reason", "x").code == 2
    assert opened.workflows.human_requests.get(asked.id).status == "pending"


@with_each("flags", [["--value", "mars"], ["--approve"], ["--reply", "mars"]])
def test_an_answer_that_is_no_option_is_told_the_options(
    database: Database, opened: StateStore, flags: list[str]
) -> None:
    """maintenance OP-108: whichever flag gave it."""
    question = Question(NodeRef("ask"), "select", "Where?", options=["eu", "us"])
    asked = opened.workflows.human_requests.pause(begun(opened), question)
    refused = said(database, "answer", asked.id, *flags)
    assert refused.code == 2
    assert '["eu","us"]' in refused.answer["error"]["message"]
