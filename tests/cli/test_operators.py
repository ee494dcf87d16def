"""What operators do from the command line: runs, answers and overrides."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import Any

import pytest
from support.cli.calls import Said, lastlight_state
from support.each import with_each

from lastlight_state.cli import arguments
from lastlight_state.schedules import CronSpec
from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, NodeRef, Question, Trigger


@pytest.fixture
def opened(database: Database) -> StateStore:
    return database.open()


def said(database: Database, *words: object) -> Said:
    return lastlight_state(*words, "--url", database.url, "--json")


def begun(store: StateStore) -> str:
    return store.workflows.runs.create("audit", trigger=Trigger("t", type="cli"), phase="start").id


def test_a_run_is_paused_resumed_cancelled_and_restarted(database: Database, opened: StateStore) -> None:
    """maintenance OP-81: the history names who did it, and why."""
    run_id = begun(opened)
    for verb, before, after in (
        ("pause", "running", "paused"),
        ("resume", "paused", "running"),
        ("cancel", "running", "cancelled"),
        ("restart", "cancelled", "running"),
    ):
        done = said(database, "run", run_id, verb, "--by", "ana", "--reason", "because")
        assert (done.code, done.data["before"], done.data["run"]["status"]) == (0, before, after)
        last = opened.workflows.lookups.list_transitions(run_id).items[0]
        assert (last.to_status, last.source, last.actor, last.detail) == (after, "operator", "ana", "because")
    refused = said(database, "run", run_id, "resume")
    assert (refused.code, refused.error) == (1, "run_status")
    assert said(database, "run", run_id, "stop").code == 2
    assert said(database, "run", "absent", "cancel").error == "not_found"
    told = lastlight_state("run", run_id, "cancel", "--url", database.url)
    assert told.out == f"run {run_id}: running -> cancelled\n"


@pytest.mark.parametrize(
    ("kind", "flags", "status"),
    [
        ("approve", ["--approve"], "approved"),
        ("approve", ["--reject"], "rejected"),
        ("reply", ["--reply", "Smaller, please."], "approved"),
    ],
)
def test_a_gate_is_answered_once(
    database: Database, opened: StateStore, kind: Any, flags: list[str], status: str
) -> None:
    """maintenance OP-81, case 54: who comes second is told the winner."""
    gate = opened.workflows.approvals.pause(begun(opened), Gate("plan", "Go ahead?", kind=kind))
    done = said(database, "answer", gate.id, *flags, "--by", "ana")
    assert (done.code, done.data["answer"]["status"], done.data["repeated"]) == (0, status, False)
    assert done.data["run"]["id"] == gate.run_id
    other = ["--reply", "No."] if kind == "reply" else ["--reject" if status == "approved" else "--approve"]
    late = said(database, "answer", gate.id, *other, "--by", "bob")
    assert (late.code, late.error) == (1, "already_answered")
    assert late.answer["error"]["details"]["winner"]["status"] == status
    assert said(database, "answer", gate.id, "--value", "1").code == 2


def test_an_action_is_approved_by_its_digest(database: Database, opened: StateStore) -> None:
    """maintenance OP-81: nobody approves what was not seen."""
    gate = opened.workflows.approvals.pause(begun(opened), Gate("plan", "Go ahead?", action={"do": "deploy"}))
    assert said(database, "answer", gate.id, "--approve").code != 0
    done = said(database, "answer", gate.id, "--approve", "--digest", gate.action_digest)
    assert (done.code, done.data["answer"]["status"]) == (0, "approved")


@pytest.mark.parametrize(
    ("kind", "flags", "response"),
    [
        ("confirm", ["--approve"], True),
        ("confirm", ["--reject"], False),
        ("text", ["--reply", "Blue."], "Blue."),
        ("select", ["--value", '"blue"'], "blue"),
    ],
)
def test_a_request_to_a_person_is_answered(
    database: Database, opened: StateStore, kind: Any, flags: list[str], response: Any
) -> None:
    """maintenance OP-81."""
    asked = opened.workflows.human_requests.pause(
        begun(opened), Question(NodeRef("ask"), kind, "What?", options=["red", "blue"] if kind == "select" else None)
    )
    assert said(database, "answer", asked.id, *flags).data["answer"]["response"] == response


@pytest.mark.parametrize("flags", [[], ["--approve", "--reject"], ["--approve", "--reply", "x"], ["--value", "{torn"]])
def test_an_answer_is_one_flag(database: Database, opened: StateStore, flags: list[str]) -> None:
    """maintenance OP-81: anything else is wrong usage, and nothing happens."""
    asked = opened.workflows.human_requests.pause(begun(opened), Question(NodeRef("ask"), "confirm", "Really?"))
    assert said(database, "answer", asked.id, *flags).code == 2
    assert opened.workflows.human_requests.get(asked.id).status == "pending"


def test_a_workflow_is_switched_off_and_on_and_left_to_its_program(database: Database, opened: StateStore) -> None:
    """maintenance OP-81."""
    call = ("override", "workflow", "audit")
    off = said(database, *call, "--off", "--by", "ana", "--reason", "broken")
    assert (off.data["override"]["reason"], off.data["effective"]) == ("broken", {"enabled": False})
    assert opened.workflows.overrides.is_enabled("audit") is False
    assert said(database, *call, "--on").data["effective"] == {"enabled": True}
    cleared = {"override": None, "effective": {"enabled": True}, "has_runs": False}
    assert said(database, *call, "--clear").data == cleared
    [typed] = lastlight_state(*call, "--off", "--url", database.url).out.splitlines()
    assert typed == "workflow audit: off (no run of this name is stored: is it spelled right?)"
    lastlight_state(*call, "--on", "--url", database.url)
    opened.workflows.runs.create("audit", trigger=Trigger("t"), phase="look")
    assert lastlight_state(*call, "--off", "--url", database.url).out == "workflow audit: off\n"


def test_the_history_of_a_run_says_why_it_was_cancelled(database: Database, opened: StateStore) -> None:
    """maintenance OP-13, OP-81: in the words of who did it."""
    run_id = begun(opened)
    why = "wrong branch, see ticket 12"
    assert said(database, "run", run_id, "cancel", "--by", "ana", "--reason", why).code == 0
    shown = lastlight_state("show", "run", run_id, "--history", "--url", database.url).out
    assert f"cancelled: {why}" in shown


def test_a_cron_gets_another_schedule(database: Database, opened: StateStore) -> None:
    """maintenance OP-81: it is planned again at once."""
    call = ("override", "cron", "nightly")
    assert lastlight_state(*call, "--off", "--url", database.url).out.startswith("cron nightly: overridden")
    assert lastlight_state(*call, "--clear", "--url", database.url).out == "cron nightly: -\n"
    opened.schedules.crons.put("nightly", CronSpec("0 4 * * *", "deploy"))
    done = said(database, *call, "--schedule", "0 5 * * *", "--by", "ana")
    assert done.data["override"]["schedule"] == "0 5 * * *"
    assert done.data["effective"]["next_run_at"][11:16] == "05:00"
    assert lastlight_state(*call, "--off", "--url", database.url).out == "cron nightly: never\n"
    assert lastlight_state(*call, "--clear", "--url", database.url).out.startswith("cron nightly: next at ")


@pytest.mark.parametrize(
    "words",
    [
        ["workflow", "audit", "--reason", "x"],
        ["workflow", "audit", "--on", "--clear"],
        ["workflow", "audit", "--schedule", "0 5 * * *"],
        ["cron", "audit", "--on", "--reason", "x"],
        ["cron", "audit", "--clear", "--schedule", "0 5 * * *"],
        ["other", "audit", "--on"],
    ],
)
def test_an_override_says_one_thing(sqlite_database: Database, words: list[str]) -> None:
    """maintenance OP-81."""
    assert said(sqlite_database, "override", *words).code == 2


@with_each("error", [OSError, KeyError])
def test_a_user_without_a_name_is_the_operator(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """maintenance OP-81: as in a container without a list of users, in whichever way a version of Python says so."""
    monkeypatch.setattr(getpass, "getuser", _raising(error))
    assert arguments.acting_person("ana") == "ana"
    assert arguments.acting_person(None) == "operator"


def test_a_defect_makes_nobody_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-81."""
    monkeypatch.setattr(getpass, "getuser", _raising(RuntimeError))
    with pytest.raises(RuntimeError):
        arguments.acting_person(None)


def _raising(error: type[Exception]) -> Callable[[], str]:
    def unknown() -> str:
        raise error("no such user")

    return unknown
