"""Words that do not fit together are refused by their name, before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.calls import Target, lastlight_state
from support.each import with_each

from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, NodeRef, Question, Trigger

#: The words, and what the error begins with.
REFUSED = {
    "two answers": (("answer", "q", "--approve", "--reject"), "answer: expected one of"),
    "no answer": (("answer", "q"), "answer: expected one of"),
    "a wait below zero": (("check", "--wait", "-0.5"), "--wait: must be between 0 and 86400"),
    "a wait of more than a day": (("check", "--wait", "86400.5"), "--wait: must be between 0 and 86400"),
    "a lock below zero": (("migrate", "--lock-timeout", "-0.5"), "--lock-timeout: must be between 0 and 86400"),
    "a lock for more than a day": (
        ("migrate", "--lock-timeout", "86400.5"),
        "--lock-timeout: must be between 0 and 86400",
    ),
    "a path for counters": (("repair", "x", "--counters"), "PATH: must not be given with --counters"),
    "sealed and replaced": (
        ("repair", "--seal", "--replace"),
        "--seal, --out, --replace, --counters: give only one at a time",
    ),
    "copied and replaced": (
        ("repair", "--out", "x", "--replace"),
        "--seal, --out, --replace, --counters: give only one",
    ),
    "counters and sealed": (
        ("repair", "--seal", "--counters"),
        "--seal, --out, --replace, --counters: give only one at a time",
    ),
    "unknown target of an override": (("override", "run", "x", "--on"), "workflow|cron: "),
    "an override on and cleared": (("override", "cron", "x", "--on", "--clear"), "override: expected --on"),
    "a schedule of a cleared one": (("override", "cron", "x", "--schedule", "* * * * *", "--clear"), "override: "),
    "the schedule of a workflow": (("override", "workflow", "x", "--schedule", "* * * * *"), "--schedule: only a cron"),
    "the reason of a cron": (("override", "cron", "x", "--on", "--reason", "r"), "--reason: only the override of a w"),
    "a parameter without a value": (("query", "runs", "--param", "x"), "--param: expected NAME=VALUE"),
    "a parameter without a name": (("query", "runs", "--param", "=x"), "--param: expected NAME=VALUE"),
    "a receipt and a status": (
        ("receipts", "x", "--status", "done"),
        "ID: must not be given together with flags of a list",
    ),
    "a receipt and a page": (
        ("receipts", "x", "--page-token", "t"),
        "ID: must not be given together with flags of a list",
    ),
    "a backup verified without logs": (("backup", "x", "--verify", "--no-logs"), "--no-logs: must not be given"),
    "a restore without logs elsewhere": (("restore", "x", "--to", "y", "--no-logs", "--to-state-dir", "z"), "--to-st"),
    "raw events": (("log", "x", "--events", "--raw"), "--raw: must not be given with --events"),
    "the last 0 lines": (("log", "x", "--limit", "0"), "limit: "),
    "unknown action of outputs": (("outputs", "drop", "m:n"), "action: 'drop' is not known"),
    "definitions without a name": (("outputs", "plan", "json"), "MODULE:NAME: expected a module, a colon"),
    "definitions without a module": (("outputs", "plan", ":x"), "MODULE:NAME: expected a module, a colon"),
    "definitions in no module": (("outputs", "plan", "no_such_module:x"), "MODULE:NAME: No module named"),
    "definitions of no such name": (("outputs", "plan", "json:no_such_name"), "MODULE:NAME: module 'json' has no"),
    "definitions that are none": (("outputs", "plan", "json:dumps"), "MODULE:NAME: expected a mapping of keys to mod"),
    "a mailbox without a session": (("mailbox", "show", "group"), "MAILBOX: must be given"),
    "no mailbox": (("mailbox", "verify"), "MAILBOX: must be given"),
    "unknown action of mailboxes": (("mailbox", "drop"), "ACTION: "),
    "unknown kind of bundle": (("export", "thing", "x", "--out", "y.zip"), "KIND: 'thing' is not a kind of bundle"),
    "an export to nowhere": (("export", "run", "x"), "--out: must be given"),
    "an unknown redaction": (("export", "run", "x", "--out", "y.zip", "--redact", "z"), "--redact: 'z' is unknown"),
    "a resumed dry run": (("copy", "--to", "x", "--resume", "--dry-run"), "--resume: must not be given with"),
    "a resumed copy that migrates": (("copy", "--to", "x", "--resume", "--migrate-target"), "--resume: must not be"),
    "no target": (("copy",), "--to: either --to or --to-file must be given"),
    "two targets": (("copy", "--to", "x", "--to-file", "y"), "--to: either --to or --to-file must be given"),
    "an empty target": (("copy", "--to", " "), "--to: must not be empty"),
    "the history of a question": (("show", "approval", "x", "--history"), "--history: only a run has one"),
    "the run of a run": (("show", "run", "x", "--run", "y"), "--run: must not be given"),
    "a part without its run": (("show", "event", "1", "--quiet"), "--run: must be given: event records belong to a"),
    "unknown kind of source": (("import", "x", "--kind", "thing"), "--kind: 'thing' is not a kind of source"),
    "runs of a project": (("ls", "runs", "--project", "x"), "--project: must not be given for runs"),
    "no time": (("ls", "--since", "yesterday"), "--since: expected a time, got 'yesterday'"),
    "no age": (("reap", "--older-than", "soon"), "--older-than: expected an age, got 'soon'"),
    "no end": (("reap", "--to", "completed"), "--to: expected an end, got 'completed'"),
    "unknown verb": (("run", "x", "stop"), "VERB: "),
    **{
        f"a resumed prune with {words[0]}": (("prune", "--resume", "x", "-y", *words), f"{words[0]}: must not be given")
        for words in (
            ("--kind", "runs"),
            ("--keep-days", "1"),
            ("--keep-n", "0"),
            ("--id", "y"),
            ("--archive", "z"),
            ("--with-logs",),
            ("--dry-run",),
        )
    },
}


@with_each("what", REFUSED)
def test_words_that_do_not_fit_are_refused_by_their_name(
    what: str, sqlite_targets: dict[str, Target], tmp_path: Path
) -> None:
    """maintenance OP-70, OP-72, OP-74."""
    words, begins = REFUSED[what]
    said = lastlight_state(*words, "--url", sqlite_targets["populated"].url, "--state-dir", tmp_path)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"lastlight-state: {begins}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", ["0", "86400"])
def test_the_shortest_and_the_longest_wait_are_permitted(seconds: str, sqlite_targets: dict[str, Target]) -> None:
    """maintenance OP-70, OP-72: nobody waits for what is there."""
    url = ("--url", sqlite_targets["empty"].url)
    assert lastlight_state("check", "--wait", seconds, *url).code == 0
    assert lastlight_state("migrate", "--lock-timeout", seconds, *url).code == 0


def test_what_is_refused_for_an_approval_leaves_it_pending(database: Database) -> None:
    """maintenance OP-74: a value is the answer to a request alone."""
    store = database.open()
    run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    asked = store.workflows.approvals.pause(run, Gate("merge", "Merge?"))
    said = lastlight_state("answer", asked.id, "--value", "true", "--url", database.url)
    assert (said.code, "--value: is for requests to a person" in said.err) == (2, True)
    assert store.workflows.approvals.get(asked.id).status == "pending"


def test_a_value_that_is_no_json_answers_nothing(database: Database) -> None:
    """maintenance OP-74."""
    store = database.open()
    run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    asked = store.workflows.human_requests.pause(run, Question(NodeRef("ask"), "text", "How many?"))
    said = lastlight_state("answer", asked.id, "--value", "{", "--url", database.url)
    assert (said.code, "--value: is not JSON" in said.err) == (2, True)
    assert store.workflows.human_requests.get(asked.id).status == "pending"
