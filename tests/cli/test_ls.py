from __future__ import annotations

from datetime import timedelta

import pytest
from support.cli.calls import Target, fill, lastlight_state
from support.each import with_each
from support.workflows.asking import WHO

from lastlight_state.conversations import NewSession
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.schedules import CronSpec
from lastlight_state.testing.clock import START
from lastlight_state.testing.databases import Database
from lastlight_state.workflows import Trigger


def test_pages_show_each_run_once_although_all_began_at_the_same_time(database: Database) -> None:
    """maintenance OP-11."""
    with database.open() as store:
        made = {store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id for _ in range(120)}
    seen: list[str] = []
    token: list[str] = []
    while True:
        data = lastlight_state("ls", "runs", "--url", database.url, "--limit", "50", *token, "--json").data
        seen += [item["id"] for item in data["items"]]
        if data["next_page_token"] is None:
            break
        token = ["--page-token", data["next_page_token"]]
    assert len(seen) == 120
    assert set(seen) == made


def test_the_last_line_names_the_next_page(database: Database) -> None:
    """maintenance OP-11."""
    with database.open() as store:
        for _ in range(2):
            store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p")
    lines = lastlight_state("ls", "runs", "--url", database.url, "--limit", "1").out.splitlines()
    assert len(lines) == 3
    more, flag, token = lines[-1].split()
    assert (more, flag) == ("more:", "--page-token")
    assert len(lastlight_state("ls", "runs", "--url", database.url, flag, token, "--json").data["items"]) == 1


@with_each(
    ("kind", "sentence"),
    [
        ("sessions", "(no sessions)"),
        ("runs", "(no runs)"),
        ("executions", "(no executions)"),
        ("approvals", "(no approvals)"),
        ("messaging", "(no chat sessions)"),
        ("questions", "(nothing waits for a person)"),
        ("crons", "(no crons)"),
        ("mailboxes", "(no mailboxes)"),
    ],
)
def test_an_empty_list_is_a_sentence_and_done(kind: str, sentence: str, sqlite_targets: dict[str, Target]) -> None:
    """maintenance OP-11."""
    said = lastlight_state("ls", kind, "--url", sqlite_targets["empty"].url)
    assert (said.code, said.out) == (0, f"{sentence}\n")


@with_each(
    ("words", "rows"),
    [
        (("runs", "--status", "paused"), 1),
        (("runs", "--status", "running,queued"), 0),
        (("runs", "--status", "running", "--status", "paused"), 1),
        (("executions", "--status", "succeeded"), 1),
        (("executions", "--status", "failed"), 0),
        (("approvals", "--status", "pending"), 1),
        (("approvals", "--status", "approved"), 0),
        (("messaging", "--status", "active"), 1),
        (("messaging", "--status", "inactive"), 0),
        (("messaging", "--status", "inactive,active"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_list_is_filtered_by_status(words: tuple[str, ...], rows: int, targets: dict[str, Target]) -> None:
    """maintenance OP-11."""
    assert len(lastlight_state("ls", *words, "--url", targets["populated"].url, "--json").data["items"]) == rows


@pytest.mark.parametrize("kind", ["runs", "executions"])
def test_a_list_begins_where_since_says(kind: str, database: Database) -> None:
    """maintenance OP-11."""
    with database.open() as store:
        fill(store)
    begin = database.clock.now()
    later = begin + timedelta(milliseconds=1)
    words = ("ls", kind, "--url", database.url, "--json", "--since")
    assert len(lastlight_state(*words, begin.isoformat()).data["items"]) == 1
    assert len(lastlight_state(*words, later.isoformat()).data["items"]) == 0
    assert len(lastlight_state(*words, "5200w").data["items"]) == 1
    assert len(lastlight_state(*words, "1s").data["items"]) == 0


def test_runs_are_listed_by_who_triggered_them_and_until_a_time(database: Database) -> None:
    """maintenance OP-11, workflows W-212: no other kind is."""
    with database.open() as store:
        fill(store)
        [run] = store.workflows.runs.list()
    begin = database.clock.now()
    words = ("ls", "runs", "--url", database.url, "--json")
    assert len(lastlight_state(*words, "--until", begin.isoformat()).data["items"]) == 0
    assert len(lastlight_state(*words, "--until", (begin + timedelta(milliseconds=1)).isoformat()).data["items"]) == 1
    assert len(lastlight_state(*words, "--by", "nobody").data["items"]) == 0
    assert len(lastlight_state(*words, "--by", str(run.triggered_by)).data["items"]) == 1
    assert lastlight_state("ls", "crons", "--url", database.url, "--until", "1h").code == 2
    assert lastlight_state(*words, "--until", "soon").code == 2


def test_people_see_ids_whole_and_amounts_exact(targets: dict[str, Target]) -> None:
    """maintenance OP-11, OP-71."""
    target = targets["populated"]
    heading, row = lastlight_state("ls", "runs", "--url", target.url).out.splitlines()
    assert heading.split() == ["ID", "WORKFLOW", "STATUS", "PHASE", "TRIGGER", "UPDATED", "COST", "WHY"]
    assert row.split()[0] == target.ids.run
    assert " 0.12  waits for an answer to *post_architect*" in row
    assert row == row.rstrip()


def test_crons_are_listed_by_what_is_in_effect_and_shown_with_their_fires(database: Database) -> None:
    """maintenance OP-11; schedules C-18."""
    with database.open() as store:
        store.schedules.crons.put("tidy", CronSpec("@daily", "tidy-up"), next_run_at=START)
        store.schedules.crons.put("report", CronSpec("@daily", "report"))
        store.schedules.crons.put("old", CronSpec("@daily", "old"))
        store.schedules.crons.retire("old")
        store.schedules.overrides.put("report", enabled=False)
        store.schedules.crons.take_due(owner="loop")
    on = ("--url", database.url)
    found = {
        status: [
            item["name"] for item in lastlight_state("ls", "crons", *on, "--status", status, "--json").data["items"]
        ]
        for status in ("enabled", "disabled", "retired")
    }
    assert found == {"enabled": ["tidy"], "disabled": ["report"], "retired": ["old"]}
    assert "tidy-up" in lastlight_state("ls", "crons", *on).out
    assert "fires (1)" in lastlight_state("show", "cron", "tidy", *on).out
    for refused in (("--status", "paused"), ("--status", "enabled,retired"), ("--since", "1h")):
        assert lastlight_state("ls", "crons", *on, *refused).code == 2


def test_sessions_are_listed_and_those_of_a_project(database: Database) -> None:
    """maintenance OP-11."""
    with database.open() as store:
        store.conversations.sessions.create(NewSession("a", project="weather"))
        store.conversations.sessions.create(NewSession("b"))
    on = ("--url", database.url, "--json")
    assert {item["id"] for item in lastlight_state("ls", "sessions", *on).data["items"]} == {"a", "b"}
    assert [item["id"] for item in lastlight_state("ls", "sessions", "--project", "weather", *on).data["items"]] == [
        "a"
    ]
    assert lastlight_state("ls", "runs", "--project", "weather", *on).code == 2


def test_open_questions_are_listed_until_they_are_answered_and_shown_with_their_run(database: Database) -> None:
    """maintenance OP-11."""
    with database.open() as store:
        run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p")
        asked = store.workflows.human_requests.create(run.id, WHO)
    on = ("--url", database.url)
    heading, row = lastlight_state("ls", "questions", *on).out.splitlines()
    assert heading.split() == ["ID", "RUN", "NODE", "WHAT", "ASKED", "EXPIRES", "TEXT"]
    assert row.startswith(f"{asked.id}  {run.id}  who ")
    assert len(lastlight_state("ls", "questions", "--run", run.id, "--status", "pending", *on).out.splitlines()) == 2
    assert lastlight_state("ls", "questions", "--status", "answered", *on).code == 2
    assert "Who reviews this?" in lastlight_state("show", "question", asked.id, *on).out
    assert lastlight_state("answer", asked.id, "--reply", "Maria", *on).code == 0
    [sentence] = lastlight_state("ls", "questions", *on).out.splitlines()
    assert sentence == "(nothing waits for a person)"
    assert "questions (1)" in lastlight_state("show", "run", run.id, *on).out


def test_mailboxes_are_listed_with_the_size_of_their_files(database: Database) -> None:
    """maintenance OP-11."""
    with database.open() as store:
        store.mailbox.ensure("team", "talk")
    state = ("--state-dir", database.state_dir)
    listed = lastlight_state("ls", "mailboxes", "--url", database.url, *state)
    heading, row = listed.out.splitlines()
    assert heading.split() == ["GROUP", "SESSION", "INBOUND", "OUTBOUND", "HEARTBEAT"]
    assert row.split()[:2] == ["team", "talk"]
    assert lastlight_state("ls", "mailboxes", "--status", "open", "--url", database.url, *state).code == 2


def test_receipts_are_listed_and_one_is_shown_whole(database: Database) -> None:
    """maintenance OP-70."""
    with database.open() as store:
        done = store.maintenance.prune.run(PrunePolicy(kind="runs"))
    on = ("--url", database.url, "--json")
    assert lastlight_state("receipts", *on).data == lastlight_state("ls", "receipts", *on).data
    assert [item["id"] for item in lastlight_state("receipts", "--status", "done", *on).data["items"]] == [done.id]
    assert lastlight_state("receipts", done.id, *on).data["record"]["policy"]["kind"] == "runs"
    assert lastlight_state("receipts", "other", *on).code == 1
    assert lastlight_state("receipts", done.id, "--status", "done", *on).code == 2
