from __future__ import annotations

import json
import sys
from dataclasses import dataclass

import pytest
from support.cli.calls import Said, lastlight_state
from support.each import with_each
from support.outputs.shapes import Analysis
from support.processes import started as process
from support.workflows.steps import Raw

from lastlight_state.journal import NewScore, SandboxChanges, TaskAttempt, ToolOutcome
from lastlight_state.outputs import CacheKey
from lastlight_state.testing.databases import Database
from lastlight_state.workflows import Trigger

PROGRAM = [sys.executable, "-c", "from lastlight_state.cli import main; main()"]
ESCAPE = "\x1b[2J"


@dataclass(frozen=True)
class Told:
    """A run with two of everything that the journal keeps, and its input."""

    database: Database
    run: str
    score: str

    def __call__(self, *words: object) -> Said:
        return lastlight_state(*words, "--url", self.database.url)


@pytest.fixture
def told(database: Database) -> Told:
    with database.open() as store:
        run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
        journal = store.journal
        for i in range(2):
            journal.events.append(run, "node.finished", {"nodeId": f"n{i}", "said": ESCAPE})
            journal.signals.send(run, f"merged-{i}", {"by": "ana"}, correlation_id="pr-7")
            journal.frames.append(run, {"kind": "text", "text": f"step {i}"}, note=f"note {i}")
            journal.tool_calls.create(run, f"grep-{i}", task=TaskAttempt("plan"), input={"pattern": "x"})
            journal.sandboxes.put(run, f"box-{i}", SandboxChanges(status="running" if i else "failed"))
        journal.signals.try_take(run, "merged-0", consumer="wait/0")
        journal.tool_calls.finish(run, 0, ToolOutcome("failed", error="no such file"))
        judged = [NewScore(run, "plan", "j-1", "Judge", "live", value, meta={"model": "m"}) for value in (0.25, 0.75)]
        score = [journal.scores.record(one) for one in judged][-1]
        store.outputs.inputs.ensure(run, {"issue": 7}, created_by="ana")
        return Told(database, run, score.id)


@with_each(
    ("kind", "more", "shown"),
    [
        ("events", (), ["SEQ", "node.finished", "n1", r"\u001b[2J"]),
        ("signals", (), ["CORRELATION", "merged-1", "pr-7", "wait/0"]),
        ("frames", (), ["STORED", "full", "note 1"]),
        ("tool-calls", (), ["TOOL", "grep-1", "running", "failed"]),
        ("tool-calls", ("--status", "running"), ["grep-1"]),
        ("sandboxes", (), ["RUNTIME", "box-1", "bubblewrap"]),
        ("sandboxes", ("--status", "failed"), ["box-0"]),
        ("scores", (), ["SCORER", "Judge", "0.75"]),
        ("scores", ("--status", "all"), ["0.25", "0.75"]),
        ("inputs", (), ["REVISION", "ana"]),
    ],
)
def test_what_belongs_to_a_run_is_listed(kind: str, more: tuple[str, ...], shown: list[str], told: Told) -> None:
    """maintenance OP-11: newest first, with control characters as escapes."""
    said = told("ls", kind, "--run", told.run, *more)
    assert (said.code, said.err) == (0, "")
    assert [word for word in shown if word not in said.out] == []
    assert ESCAPE not in said.out
    first = told("ls", kind, "--run", told.run, "--limit", 1, "--json").data
    assert len(first["items"]) == 1
    assert first["items"][0]["run_id"] == told.run
    assert told("ls", kind, "--run", "nobody").out.startswith("(no ")


def test_what_all_runs_have_is_listed_without_one(told: Told) -> None:
    """maintenance OP-11: others ask for the run, and each refuses a filter that it has not."""
    for kind, shown in (("sandboxes", "box-1"), ("scores", "Judge"), ("cache", "(no cached"), ("executions", "(no ex")):
        assert shown in told("ls", kind).out
    refused = (
        *((kind,) for kind in ("events", "signals", "frames", "tool-calls", "inputs")),
        ("cache", "--run", told.run),
        ("runs", "--run", told.run),
        ("events", "--run", told.run, "--status", "x"),
        ("frames", "--run", told.run, "--since", "1h"),
        ("scores", "--status", "old"),
        ("sandboxes", "--status", "failed,running"),
    )
    assert [told("ls", *words).code for words in refused] == [2] * len(refused)
    assert told("ls", "events", "--run", told.run, "--since", "2999-01-01T00:00Z").out == "(no events)\n"


@with_each(
    ("kind", "key", "shown"),
    [
        ("event", "1", ["node.finished", '"nodeId":"n1"', r"\u001b[2J"]),
        ("signal", "0", ["merged-0", "wait/0"]),
        ("frame", "1", ["step 1", "note 1"]),
        ("tool-call", "0", ["no such file", '"pattern":"x"']),
        ("sandbox", "box-0", ["failed", "bubblewrap"]),
    ],
)
def test_one_of_a_run_is_shown_by_its_number_or_name(kind: str, key: str, shown: list[str], told: Told) -> None:
    """maintenance OP-11."""
    said = told("show", kind, key, "--run", told.run)
    assert (said.code, said.err) == (0, "")
    assert [word for word in shown if word not in said.out] == []
    assert ESCAPE not in said.out
    assert told("show", kind, key, "--run", told.run, "--json").data["record"]["run_id"] == told.run
    assert told("show", kind, "99", "--run", told.run).code == 1
    assert told("show", kind, key).code == 2


def test_a_score_and_an_input_are_shown_by_their_own_keys(told: Told) -> None:
    """maintenance OP-11."""
    assert '{"model":"m"}' in told("show", "score", told.score).out
    assert "revisions (1)" in told("show", "input", told.run).out
    assert told("show", "score", told.score, "--run", told.run).code == 2
    assert told("show", "event", "one", "--run", told.run).code == 2
    assert told("show", "cache", "x").code == 2
    assert told("show", "score", "none").code == 1


def test_a_row_that_cannot_be_read_is_named_and_hides_no_other(told: Told) -> None:
    """maintenance OP-11: in lists, and in the log."""
    if told.database.name == "postgresql":  # which keeps no damaged JSON
        return
    raw = Raw(told.database)
    with raw.without_guard("run_events_no_update"):
        raw("UPDATE run_events SET payload = '{' WHERE seq = 0")
    said = told("ls", "events", "--run", told.run)
    assert said.code == 0
    assert "cannot be read: run_events.payload" in said.out
    assert [row["column"] for row in told("ls", "events", "--run", told.run, "--json").data["damaged"]] == ["payload"]
    logged = told("log", told.run, "--events")
    assert (len(logged.out.splitlines()), logged.err) == (1, "1 events could not be read\n")


def test_the_events_of_a_run_are_its_log(told: Told) -> None:
    """maintenance OP-72: one line each, oldest first, chosen by type, the last ones, or as objects."""
    lines = told("log", told.run, "--events").out.splitlines()
    assert [line.split()[1:3] for line in lines] == [["0", "node.finished"], ["1", "node.finished"]]
    assert r"\u001b[2J" in lines[0]
    *events, last = [json.loads(line) for line in told("log", told.run, "--events", "--json").out.splitlines()]
    assert [event["event"]["seq"] for event in events] == [0, 1]
    assert last == {"records": 2, "skipped": 0, "files": []}
    assert len(told("log", told.run, "--events", "--limit", 1).out.splitlines()) == 1
    none = told("log", told.run, "--events", "--type", "other")
    assert (none.code, none.out, none.err) == (0, "", "(no records)\n")
    assert told("log", "nobody", "--events").code == 1
    assert told("log", told.run, "--events", "--raw").code == 2


def test_following_the_events_of_a_run_ends_with_it(told: Told) -> None:
    """maintenance OP-72."""
    command = [*PROGRAM, "log", told.run, "--events", "--follow", "--limit", "1", "--json", "--url", told.database.url]
    with told.database.open() as store, process(command, stderr=None) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["event"]["seq"] == 1
        store.journal.events.append(told.run, "run.finished")
        store.workflows.runs.finish(told.run, "succeeded")
        rest = [json.loads(line) for line in program.stdout]
    assert program.returncode == 0
    assert [line.get("event", {}).get("type") for line in rest] == ["run.finished", None]


def test_statuses_of_the_journal_and_of_outputs_are_counted(told: Told) -> None:
    """maintenance OP-10."""
    statuses = told("stats", "--json").data["statuses"]
    counted = {table: {row["status"]: row["rows"] for row in rows} for table, rows in statuses.items() if rows}
    assert counted["run_signals"] == {"pending": 1, "taken": 1}
    assert counted["tool_calls"] == {"failed": 1, "running": 1}
    assert counted["sandboxes"] == {"failed": 1, "running": 1}
    assert counted["scores"] == {"current": 1, "superseded": 1}


def test_cached_results_and_output_tables_are_listed_and_counted(fresh_database: Database) -> None:
    """maintenance OP-10, OP-11."""
    with fresh_database.open(migrate=True) as store:
        table = store.outputs.define("analysis", Analysis)
        for prompt in ("p", "q"):
            store.outputs.cache.ensure(CacheKey("wf", "plan", {"prompt": prompt}), table, {"summary": "s"})
    on = ("--url", fresh_database.url)
    lines = lastlight_state("ls", "cache", *on).out.splitlines()
    assert [line.split()[1:4] for line in lines] == [["WORKFLOW", "NODE", "OUTPUT"], *[["wf", "plan", "analysis"]] * 2]
    statuses = lastlight_state("stats", *on, "--json").data["statuses"]
    assert statuses["output_tables"] == [{"status": "columns", "rows": 1}]
