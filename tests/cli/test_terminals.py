"""What people see on a terminal: tables that fit, ids that can be typed, questions that can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import product
from operator import itemgetter
from typing import Any

import pytest
from rich.cells import cell_len
from support.cli.calls import Terminal, begun, lastlight_state
from support.each import with_each
from support.filled_store import scene
from support.stored_words import unguarded_words

from lastlight_state.cli.arguments import since
from lastlight_state.cli.screen import Column, Screen, shortest
from lastlight_state.cli.views.kinds import KINDS
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, NodeRef, Question

LONG = "Deploy version 12 of the payment service to all regions at once, although two of them are asleep? " * 3
ITEM = {name: name * 12 for name in "abcd"}
NOW = datetime(2026, 2, 3, 12, tzinfo=UTC)


@pytest.mark.slow
def test_every_list_fits_the_terminal(database: Database, typed: Any) -> None:
    """maintenance OP-95: also with long values everywhere. The token of the next page is to be copied whole."""
    scene(database)
    with database.open() as store:
        run_id = store.workflows.runs.list(limit=1).items[0].id
        store.workflows.approvals.pause(begun(store), Gate("deploy", LONG))
    wider: list[tuple[str, int, str]] = []
    for kind, width in product(KINDS, (80, 100, 140)):
        of_run = ["--run", run_id] if kind in ("nodes", "events", "signals", "frames", "tool-calls", "inputs") else []
        found = typed("ls", kind, "--no-color", "--url", database.url, *of_run, width=width)
        assert found.code == 0, (kind, width)
        lines = [line for line in found.out.splitlines() if not line.startswith("more: ")]
        wider += [(kind, width, line) for line in lines if cell_len(line) > width]
    assert wider == []


def test_a_question_is_whole_below_its_row(sqlite_database: Database, typed: Any) -> None:
    """maintenance OP-95."""
    store = sqlite_database.open()
    store.workflows.approvals.pause(begun(store), Gate("deploy", LONG))
    store.workflows.human_requests.pause(begun(store), Question(NodeRef("ask"), "confirm", LONG))
    for kind, count in {"approvals": 1, "questions": 2}.items():
        out = typed("ls", kind, "--no-color", "--url", sqlite_database.url).out
        assert " ".join(out.split()).count(LONG.strip()) == count


def test_columns_leave_by_their_rank_and_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-95: what never leaves makes a block of lines of each item instead."""
    columns = [Column(name, itemgetter(name), keep=True, rank=rank) for rank, name in enumerate("abcd")]

    def drawn(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        screen = Screen(stream := Terminal(), colour=False)
        for line in screen.table(columns, [ITEM]):
            screen.write(line)
        return stream.getvalue().splitlines()

    assert drawn(60)[-1] == "a" * 12 + "  " + "b" * 12 + "  " + "c" * 12 + "  " + "d" * 12
    assert drawn(40) == [
        "a             b             c",
        "aaaaaaaaaaaa  bbbbbbbbbbbb  cccccccccccc",
        "(no room for d: a wider terminal, a pipe",
        "or --json has them)",
    ]
    narrow = drawn(12)
    assert narrow[1] == "a" * 12
    assert " ".join(narrow[2:]) == "(no room for b, c, d: a wider terminal, a pipe or --json has them)"
    assert drawn(11)[:3] == ["-- 1 --", "a  aaaaaaaaaaaa", "b  bbbbbbbbbbbb"]


@with_each(
    ("texts", "short"),
    [
        (["0123456789abcdef"], ["0123456789abc"]),
        (["0123456789abcdef", "0123456789abcdff"], ["0123456789abcde", "0123456789abcdf"]),
        (["same-id-twice-over"] * 2, ["same-id-twice"] * 2),
        (["a", "ab"], ["a", "ab"]),
        ([], []),
    ],
)
def test_ids_are_as_short_as_a_page_allows(texts: list[str], short: list[str]) -> None:
    """maintenance OP-95."""
    assert [shortest(texts)[text] for text in texts] == short


@with_each(
    ("ago", "text"),
    [
        (timedelta(), "0s ago"),
        (timedelta(seconds=99), "99s ago"),
        (timedelta(seconds=100), "1m ago"),
        (timedelta(hours=47), "47h ago"),
        (timedelta(days=59), "59d ago"),
        (timedelta(days=60), "2025-12-05"),
        (timedelta(seconds=-30), "in 30s"),
        (timedelta(days=-3), "in 3d"),
    ],
)
def test_times_in_tables_are_relative(ago: timedelta, text: str) -> None:
    """maintenance OP-95."""
    assert since(NOW - ago, NOW) == text


def test_wide_results_of_a_query_are_blocks_of_lines(sqlite_database: Database, typed: Any) -> None:
    """maintenance OP-95."""
    run_id = begun(sqlite_database.open())
    sql = "SELECT * FROM workflow_runs"
    lines = typed("query", sql, "--no-color", "--url", sqlite_database.url).out.splitlines()
    assert lines[0] == "-- 1 --"
    assert lines[1].split() == ["id", run_id]
    assert max(map(len, lines)) <= 80
    piped = lastlight_state("query", sql, "--jsonl", "--url", sqlite_database.url)
    assert json.loads(piped.out)["id"] == run_id


def test_the_beginning_of_an_id_is_enough(database: Database) -> None:
    """maintenance OP-96."""
    store = database.open()
    run_id = begun(store)
    gate = store.workflows.approvals.pause(run_id, Gate("deploy", "Now?"))

    def shown(*words: object) -> Any:
        return lastlight_state("show", *words, "--json", "--url", database.url)

    short = shortest([run_id, gate.id])[run_id]
    for words in (("run", run_id), ("run", short), ("run", "last"), (short,), (run_id,), ("last",)):
        assert shown(*words).data["record"]["id"] == run_id, words
    both = shown(run_id[:8])
    assert (both.code, both.error) == (1, "ambiguous_id")
    assert set(both.answer["error"]["details"]["ids"]) == {run_id, gate.id}
    assert run_id in both.answer["error"]["message"]
    assert shown("run", "absent").error == shown("absent").error == "not_found"
    assert shown("run").code == 2
    assert shown(gate.id).data["record"]["gate"] == "deploy"
    acted = lastlight_state("answer", gate.id[:-1], "--approve", "--json", "--url", database.url)
    assert acted.data["answer"]["id"] == gate.id
    listed = lastlight_state("ls", "executions", "--run", short, "--json", "--url", database.url)
    assert listed.code == 0
    assert lastlight_state("run", short, "cancel", "--json", "--url", database.url).data["run"]["id"] == run_id


def test_a_whole_id_is_that_record_though_others_begin_with_it(database: Database) -> None:
    """maintenance OP-96."""
    store = database.open()
    for run_id in ("job", "job-1", "job-2"):
        begun(store, id=run_id)
    found = lastlight_state("show", "job", "--json", "--url", database.url)
    assert found.data["record"]["id"] == "job"
    assert lastlight_state("show", "run", "job-", "--json", "--url", database.url).error == "ambiguous_id"


def test_an_action_is_shown_and_confirmed_at_a_terminal(database: Database, typed: Any) -> None:
    """maintenance OP-97: no digest is copied by hand."""
    store = database.open()
    gate = store.workflows.approvals.pause(begun(store), Gate("deploy", "Go ahead?", action={"do": "deploy"}))
    words = ("answer", gate.id, "--approve", "--by", "ana", "--url", database.url)
    refused = typed(*words, answer="n\n")
    assert (refused.code, store.workflows.approvals.get(gate.id).status) == (1, "pending")
    assert 'action: {"do":"deploy"}' in refused.err
    assert typed(*words, answer="y\n").code == 0
    late = typed("answer", gate.id, "--reject", "--by", "bob", "--url", database.url)
    assert late.code == 1
    assert "approved by ana" in late.err


def test_the_cancel_of_a_held_run_is_confirmed_at_a_terminal(database: Database, typed: Any) -> None:
    """maintenance OP-97: a script is not asked. A cancel that comes second says so."""
    store = database.open()
    run_id = begun(store, offered=True)
    store.workflows.claims.take(run_id, owner="worker-7")
    words = ("run", run_id, "cancel", "--url", database.url)
    refused = typed(*words, answer="n\n")
    assert (refused.code, store.workflows.runs.get(run_id).status) == (1, "running")
    assert "worker-7 holds it" in refused.err
    assert typed(*words, "--yes").out == f"run {run_id}: running -> cancelled\n"
    assert typed(*words).out == f"run {run_id}: was cancelled already\n"


def test_what_is_switched_off_can_be_listed(database: Database) -> None:
    """maintenance OP-97."""
    lastlight_state(
        "override", "workflow", "review", "--off", "--by", "ana", "--reason", "flaky", "--url", database.url
    )
    [stored] = lastlight_state("ls", "overrides", "--json", "--url", database.url).data["items"]
    assert (stored["name"], stored["enabled"], stored["updated_by"], stored["reason"]) == (
        "review",
        False,
        "ana",
        "flaky",
    )


@with_each("words", [["-h"], ["help"], ["show", "-h"], ["help", "show"]])
def test_help_is_asked_for_in_every_usual_way(words: list[str]) -> None:
    """maintenance OP-98."""
    found = lastlight_state(*words)
    assert found.code == 0
    assert found.out.startswith("Usage: lastlight-state")


@pytest.mark.slow
def test_the_package_is_the_program(sqlite_database: Database) -> None:
    """maintenance OP-98."""
    program = [sys.executable, "-m", "lastlight_state", "ls", "runs", "--url", sqlite_database.url]
    assert subprocess.run(program, check=True, capture_output=True, text=True).stdout == "(no runs)\n"


@pytest.mark.slow
@with_each(("line", "found"), [("mig", "migrate"), ("show sess", "session"), ("ls --st", "--status")])
def test_a_shell_completes_commands_kinds_and_flags(line: str, found: str) -> None:
    """maintenance OP-98."""
    words = f"lastlight-state {line}"
    asked = {
        "_LASTLIGHT_STATE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    program = [sys.executable, "-m", "lastlight_state"]
    told = subprocess.run(program, check=False, capture_output=True, text=True, env={**os.environ, **asked}).stdout
    assert f"plain,{found}" in told.splitlines()


def test_an_unknown_variable_of_the_environment_is_named(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-98."""
    monkeypatch.setenv("LASTLIGHT_STATE_POOL_SIZ", "9")
    monkeypatch.setenv("LASTLIGHT_STATE_LIMITS__CONTEXT", "1000")
    found = lastlight_state("ls", "runs", "--json", "--url", sqlite_database.url)
    told = (
        "the environment variable LASTLIGHT_STATE_POOL_SIZ is no setting, and nothing reads it: did you mean"
        " LASTLIGHT_STATE_POOL_SIZE?"
    )
    assert found.answer["warnings"] == [told]


def test_without_a_terminal_nothing_is_shortened(sqlite_database: Database) -> None:
    """maintenance OP-95."""
    store = sqlite_database.open()
    gate = store.workflows.approvals.pause(begun(store), Gate("deploy", LONG))
    [_, row] = lastlight_state("ls", "approvals", "--url", sqlite_database.url).out.splitlines()
    assert gate.id in row
    assert LONG.strip() in row


def test_the_doctor_tells_the_worst_first_and_names_few(sqlite_database: Database, typed: Any) -> None:
    """maintenance OP-95: a pipe gets all samples."""
    store = sqlite_database.open()
    for _ in range(5):
        store.workflows.claims.take(begun(store), owner="w", lease=timedelta(milliseconds=1))
    raw = sqlite_database.raw()
    with unguarded_words("sqlite", raw.execute):
        raw.execute("UPDATE workflow_runs SET status = 'odd' WHERE id = (SELECT max(id) FROM workflow_runs)")
    words = ("doctor", "--no-color", "--only", "DOC-13", "--only", "DOC-15", "--url", sqlite_database.url)
    lines = typed(*words).out.splitlines()
    assert max(map(len, lines)) <= 80
    shown = [line.split()[1] for line in lines if line.startswith("DOC-") and "skipped" not in line]
    assert shown == sorted(shown, key=("error", "warning", "info").index)
    assert "and 1 more" in " ".join(lines)
    assert "and 1 more" not in lastlight_state(*words).out
