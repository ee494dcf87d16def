"""The database of the second original system: its runs with all that belongs to them, each whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.each import with_each
from support.maintenance.node_databases import BEGIN, MIXED, TYPED, at, change, made, put
from support.maintenance.rows import counts, difference
from support.maintenance.run_folders import bytes_of

from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.doctor.check import Finding, Report
from lastlight_state.maintenance.imports import node_databases
from lastlight_state.maintenance.imports.foreign import Foreign, Row
from lastlight_state.testing import Database
from lastlight_state.workflows import NodeRef, WorkflowRun

#: More than a text of a name or a reason may have.
LONG = "x" * 5_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty database in a folder of its own."""
    (tmp_path / "program").mkdir()
    return made(tmp_path / "program" / "smithers.db")


def _review(path: Path) -> None:
    """A run that ended, and one that waits for an approval."""
    run = {"status": "failed", "started_at_ms": BEGIN + 500, "finished_at_ms": BEGIN + 9_000, "config_json": {"a": 1}}
    put(
        path,
        "runs",
        run_id="r1",
        **run,
        error_json={"message": "gave up", "code": "X"},
        vcs_type="jj",
        parent_run_id="r0",
    )
    put(path, "nodes", run_id="r1", node_id="plan", label="Plan", output_table="plans")
    put(path, "nodes", run_id="r1", node_id="build", iteration=2, state="failed", updated_at_ms=BEGIN + 8_000)
    done = {
        "finished_at_ms": BEGIN + 1_750,
        "response_text": "done ✓",
        "meta_json": {"kind": "agent"},
        "jj_pointer": "p",
    }
    put(path, "attempts", run_id="r1", node_id="plan", **done)
    failed = {"state": "failed", "error_json": {"message": "no"}, "finished_at_ms": BEGIN + 8_000, "cached": None}
    put(path, "attempts", run_id="r1", node_id="build", iteration=2, **failed)
    put(path, "ralph", run_id="r1", ralph_id="loop", iteration=2, done=1)
    put(path, "events", run_id="r1", seq=0, payload_json={"nodeId": "plan"})
    put(path, "events", run_id="r1", seq=1, timestamp_ms=BEGIN + 9_001, type="RunFailed")
    put(path, "signals", run_id="r1", seq=0, correlation_id=" c ", payload_json=[1])
    told = {"note": "fine", "decided_by": "ana", "decided_at_ms": BEGIN + 5_000}
    put(path, "approvals", run_id="r1", node_id="plan", status="approved", auto_approved=1, **told)
    put(path, "input", run_id="r1", payload={"text": "x", "n": [1, None]})
    put(path, "runs", run_id="r2", status="waiting-approval", created_at_ms=BEGIN + 100, runtime_owner_id="pid:1")
    asked = {"summary": "Ship it?", "waitAsync": False}
    put(path, "approvals", run_id="r2", node_id="ship", request_json=asked)
    put(path, "nodes", run_id="r2", node_id="ship", state="waiting-approval", updated_at_ms=BEGIN + 3_000)
    put(path, "human_requests", run_id="r2", request_id="h1", node_id="ship", kind="select", options_json=["a", "b"])
    put(path, "input", run_id="r2", payload=None)


def _wrong(report: Report) -> list[Finding]:
    """What an examination finds of the rows; not of the settings of the server."""
    return [one for one in report.findings if one.check != "DOC-03"]


def test_a_database_becomes_runs_with_all_that_belongs_to_them(store: Any, source: Path) -> None:
    """maintenance OP-86, OP-37, case 33: the plan is the truth, the source is only read, and nothing is found wrong."""
    _review(source)
    before, imports = bytes_of(source.parent), store.maintenance.imports
    assert imports.detect(source) == "smithers-db"
    plan = imports.plan(source)
    assert plan.units == {"imported": 2}
    done = imports.run(source)
    assert (done.units, done.rows, done.noticed, done.failures) == (plan.units, plan.rows, plan.noticed, ())
    assert bytes_of(source.parent) == before
    assert done.rows == {
        **dict.fromkeys(("human_requests", "run_loops", "run_signals"), 1),
        **dict.fromkeys(("executions", "run_events", "run_inputs", "run_sequences"), 2),
        "run_nodes": 3,
        "workflow_approvals": 2,
        "workflow_runs": 2,
    }
    one = store.workflows.runs.get("r1")
    assert (one.status, one.error, one.error_detail) == ("failed", "gave up", {"message": "gave up", "code": "X"})
    assert (one.started_at, one.admitted_at, one.finished_at, one.updated_at) == (at(0), at(500), at(9_000), at(9_001))
    assert (one.parent_run_id, one.vcs_type, one.context) == ("r0", "jj", {"config": {"a": 1}})
    assert (one.current_phase, one.trigger_id) == ("build", "r1")
    assert store.workflows.loops.find("r1", "loop").done
    assert _wrong(store.maintenance.doctor.examine()) == []
    assert imports.run(source).units == {"unchanged": 2}


def test_attempts_and_nodes_read_back_as_executions_and_nodes(store: Any, source: Path) -> None:
    """maintenance OP-86: a cell that is NULL where ours must be a bool is false."""
    _review(source)
    store.maintenance.imports.run(source)
    plan, build = (store.workflows.executions.get(f"r1:{name}:1") for name in ("plan:0", "build:2"))
    assert (plan.outcome, plan.success, plan.duration_ms, plan.details) == (
        "succeeded",
        True,
        750,
        {"meta": {"kind": "agent"}},
    )
    assert (plan.started_at, plan.vcs_pointer, plan.skill) == (at(1_000), "p", "plan")
    assert store.workflows.executions.find_output("r1:plan:0:1") == "done ✓"
    assert (build.outcome, build.error, build.cached, build.attempt) == ("failed", "no", False, 1)
    nodes = store.workflows.nodes.list("r1").items
    assert [(one.node_id, one.iteration, one.state, one.output_table, one.label) for one in nodes] == [
        ("build", 2, "failed", None, None),
        ("plan", 0, "finished", "plans", "Plan"),
    ]


def test_the_journal_keeps_its_numbers_and_goes_on_behind_them(store: Any, source: Path) -> None:
    """maintenance OP-86, journal J-1: the next event gets a new number."""
    _review(source)
    store.maintenance.imports.run(source)
    events = store.journal.events.list("r1").items
    assert [(one.seq, one.type, one.node_id, one.occurred_at) for one in events] == [
        (0, "NodeStarted", "plan", at(1_000)),
        (1, "RunFailed", None, at(9_001)),
    ]
    [signal] = store.journal.signals.list("r1").items
    assert (signal.seq, signal.correlation_id, signal.payload, signal.consumed_by) == (0, "c", [1], None)
    assert store.journal.events.append("r1", "Later").seq == 2
    assert store.journal.signals.send("r2", "go", {}).seq == 0


def test_questions_read_back_with_their_answers_and_can_be_answered_here(store: Any, source: Path) -> None:
    """maintenance OP-86."""
    _review(source)
    store.maintenance.imports.run(source)
    approved, asked = (store.workflows.approvals.get(name) for name in ("r1:plan:0", "r2:ship:0"))
    assert (approved.status, approved.answered_via, approved.response) == ("approved", "policy", "fine")
    assert (approved.answered_by, approved.answered_at, approved.summary) == ("ana", at(5_000), "plan")
    assert (asked.status, asked.summary, asked.asked_at, asked.gate) == ("pending", "Ship it?", at(3_000), "ship")
    question = store.workflows.human_requests.get("h1")
    assert (question.kind, question.status, question.options, question.prompt) == (
        "select",
        "pending",
        ["a", "b"],
        "Which?",
    )
    paused = store.workflows.runs.get("r2")
    assert (paused.status, paused.pause_reason, paused.context) == ("paused", "gate", {"runtime_owner_id": "pid:1"})
    store.workflows.human_requests.answer("h1", "a", by="bo")
    store.workflows.approvals.answer("r2:ship:0", "approved", by="bo")
    assert store.workflows.runs.get("r2").status == "running"


def test_the_input_of_a_run_is_its_first_revision(store: Any, source: Path) -> None:
    """maintenance OP-86, case 63: a resume that passes the same arguments finds it; NULL is an empty input."""
    _review(source)
    store.maintenance.imports.run(source)
    given = {"n": [1, None], "text": "x"}
    assert store.outputs.inputs.ensure("r1", given).revision == 0
    assert store.outputs.inputs.get("r1").payload == given
    assert store.outputs.inputs.ensure("r2", {}).revision == 0
    with pytest.raises(AlreadyExists, match="another payload"):
        store.outputs.inputs.ensure("r1", {"text": "y"})


def test_an_input_of_typed_columns_is_found_by_the_arguments_that_were_passed(store: Any, tmp_path: Path) -> None:
    """maintenance OP-86, case 63: whatever they forget; NULL stays null, and other arguments are refused."""
    path = made(tmp_path / "typed.db", inputs=TYPED)
    put(path, "runs", run_id="r1")
    put(path, "input", run_id="r1", title="5", is_urgent=1, tags='["a"]', depth=None)
    store.maintenance.imports.run(path)
    stored = store.outputs.inputs.get("r1")
    assert (stored.revision, stored.payload) == (0, {"title": "5", "is_urgent": 1, "tags": ["a"], "depth": None})
    passed = {"title": "5", "isUrgent": True, "tags": ["a"]}
    for same in (passed, {**passed, "depth": None}, stored.payload):
        assert store.outputs.inputs.ensure("r1", same) == stored
    for other in ({**passed, "isUrgent": False}, {**passed, "tags": []}, {"title": "5"}, {**passed, "more": 1}):
        with pytest.raises(AlreadyExists, match="another payload"):
            store.outputs.inputs.ensure("r1", other)
    store.outputs.inputs.override("r1", {"title": "6"}, expected_revision=0, reason="changed")
    assert store.outputs.inputs.ensure("r1", passed).payload == {"title": "6"}


def test_a_snapshot_tells_how_values_of_typed_columns_were_passed(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-86: one that does not agree with the columns is not believed."""
    path = made(tmp_path / "typed.db", inputs=TYPED)
    for key, title in (("r1", "t"), ("r2", "changed")):
        put(path, "runs", run_id=key)
        put(path, "input", run_id=key, title=title, is_urgent=0, tags=None, depth=3)
        put(path, "snapshots", run_id=key, frame_no=0, input_json='{"title": "t", "isUrgent": false, "depth": 3}')
    store = sqlite_database.open()
    assert store.maintenance.imports.run(path).noticed == {"snapshots_left": 2}
    assert store.outputs.inputs.get("r1").payload == {"title": "t", "isUrgent": False, "depth": 3}
    assert store.outputs.inputs.get("r2").payload == {"title": "changed", "is_urgent": 0, "tags": None, "depth": 3}


@pytest.mark.parametrize("told", ["[]", "null", "5", "torn", "{torn"])
def test_a_snapshot_that_tells_no_object_is_not_believed(sqlite_database: Database, tmp_path: Path, told: str) -> None:
    """maintenance OP-86."""
    path = made(tmp_path / "typed.db", inputs=TYPED)
    put(path, "runs", run_id="r1")
    put(path, "input", run_id="r1", title="t")
    put(path, "snapshots", run_id="r1", frame_no=0, input_json=told)
    store = sqlite_database.open()
    assert store.maintenance.imports.run(path).failures == ()
    assert store.outputs.inputs.get("r1").payload == {"title": "t", "is_urgent": None, "tags": None, "depth": None}


@pytest.mark.parametrize("title", ["{torn", "[torn", "[1]", "{}", ""])
def test_a_text_of_an_input_that_begins_like_json_is_kept(
    sqlite_database: Database, tmp_path: Path, title: str
) -> None:
    """maintenance OP-86: a list or object is one, and any other text is a text."""
    path = made(tmp_path / "typed.db", inputs=TYPED)
    put(path, "runs", run_id="r1")
    put(path, "input", run_id="r1", title=title)
    store = sqlite_database.open()
    store.maintenance.imports.run(path)
    expected = {"[1]": [1], "{}": {}}.get(title, title)
    assert store.outputs.inputs.get("r1").payload["title"] == expected


def test_an_input_may_stand_in_columns_and_in_a_payload(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-86, case 63: as its program reads it."""
    path = made(tmp_path / "mixed.db", inputs=MIXED)
    put(path, "runs", run_id="r1")
    put(path, "input", run_id="r1", payload={"n": 1})
    store = sqlite_database.open()
    store.maintenance.imports.run(path)
    assert store.outputs.inputs.ensure("r1", {"n": 1}).payload == {"n": 1, "title": None}


def test_a_database_of_the_first_version_is_imported(database: Database, tmp_path: Path) -> None:
    """maintenance OP-86, case 33: columns and tables that came later may be absent."""
    path = made(tmp_path / "old.db", is_first=True)
    put(path, "runs", run_id="r1", status="finished", finished_at_ms=BEGIN + 10)
    put(path, "nodes", run_id="r1", node_id="n")
    put(path, "attempts", run_id="r1", node_id="n", finished_at_ms=BEGIN + 1_001)
    put(path, "approvals", run_id="r1", node_id="n", status="denied", requested_at_ms=None, decided_at_ms=BEGIN + 9)
    put(path, "events", run_id="r1", seq=0)
    store = database.open()
    assert store.maintenance.imports.run(path).units == {"imported": 1}
    assert store.workflows.runs.get("r1").status == "succeeded"
    rejected = store.workflows.approvals.get("r1:n:0")
    assert (rejected.status, rejected.asked_at, rejected.answered_via) == ("rejected", at(9), "person")


@pytest.mark.parametrize(
    ("status", "state", "meta", "wait"),
    [
        ("waiting-timer", "waiting-timer", {"timer": {"firesAtMs": BEGIN + 60_000}}, ("timer", at(60_000), None, None)),
        (
            "waiting-event",
            "waiting-event",
            {"waitForEvent": {"signalName": "go", "correlationId": "c"}},
            ("signal", None, "go", "c"),
        ),
        ("waiting-approval", "pending", {}, (None, None, None, None)),
    ],
)
def test_what_a_run_waits_for_is_told_by_its_node(
    sqlite_database: Database, source: Path, status: str, state: str, meta: Any, wait: Any
) -> None:
    """maintenance OP-86."""
    put(source, "runs", run_id="r1", status=status)
    put(source, "nodes", run_id="r1", node_id="n", state=state)
    put(source, "attempts", run_id="r1", node_id="n", state=state, meta_json=meta)
    store = sqlite_database.open()
    assert store.maintenance.imports.run(source).units == {"imported": 1}
    run = store.workflows.runs.get("r1")
    assert (run.status, run.pause_reason, run.wake_at, run.waiting_for, run.correlation_id) == ("paused", *wait)
    assert store.workflows.executions.get("r1:n:0:1").outcome == "running"


@pytest.mark.parametrize(
    ("state", "meta"),
    [("waiting-timer", {"timer": {"kind": "cron"}}), ("in-progress", {"timer": {"firesAtMs": BEGIN + 60_000}})],
    ids=("a timer without a time", "a timer for which it does not wait any more"),
)
def test_a_node_that_waits_for_no_time_has_none(
    sqlite_database: Database, source: Path, state: str, meta: dict[str, Any]
) -> None:
    """maintenance OP-86."""
    put(source, "runs", run_id="r1", status="waiting-timer")
    put(source, "nodes", run_id="r1", node_id="n", state=state)
    put(source, "attempts", run_id="r1", node_id="n", state=state, meta_json=meta)
    store = sqlite_database.open()
    assert store.maintenance.imports.run(source).units == {"imported": 1}
    assert (store.workflows.nodes.get("r1", NodeRef("n")).wake_at, store.workflows.runs.get("r1").wake_at) == (
        None,
        None,
    )


def test_what_is_due_later_is_no_sign_of_life(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-86: a run was last seen when something happened in it."""
    put(source, "runs", run_id="r1", status="waiting-timer")
    timer = {"timer": {"firesAtMs": BEGIN + 90_000}}
    put(source, "nodes", run_id="r1", node_id="n", state="waiting-timer", updated_at_ms=BEGIN + 2_000)
    put(source, "attempts", run_id="r1", node_id="n", state="waiting-timer", meta_json=timer)
    put(source, "human_requests", run_id="r1", request_id="h", node_id="m", timeout_at_ms=BEGIN + 80_000)
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    assert store.workflows.runs.get("r1").updated_at == at(3_000)


@pytest.mark.parametrize(
    ("request_json", "summary", "blocks"),
    [
        ("[1]", "n", True),
        ({"summary": 5, "title": "Ship?"}, "Ship?", True),
        ({"summary": " ", "title": "Ship?"}, "Ship?", True),
        ({"summary": "Go?", "waitAsync": True}, "Go?", False),
        ({"summary": "Go?", "waitAsync": 1}, "Go?", True),
    ],
)
def test_a_gate_says_what_its_request_says(
    sqlite_database: Database, source: Path, request_json: Any, summary: str, blocks: bool
) -> None:
    """maintenance OP-86: or else the name of its node, and it blocks the run unless the request says otherwise."""
    put(source, "runs", run_id="r1", status="waiting-approval")
    put(source, "approvals", run_id="r1", node_id="n", request_json=request_json)
    store = sqlite_database.open()
    assert store.maintenance.imports.run(source).failures == ()
    gate = store.workflows.approvals.get("r1:n:0")
    assert (gate.summary, gate.blocks_run) == (summary, blocks)


def test_the_phase_of_a_run_is_its_last_node_if_a_phase_may_be_called_so(
    sqlite_database: Database, source: Path
) -> None:
    """maintenance OP-86."""
    for key, node in (("r1", "n"), ("r2", "n" * 200)):
        put(source, "runs", run_id=key)
        put(source, "nodes", run_id=key, node_id=node)
    store = sqlite_database.open()
    assert store.maintenance.imports.run(source).units == {"imported": 2}
    assert [store.workflows.runs.get(key).current_phase for key in ("r1", "r2")] == ["n", "imported"]


def test_nodes_of_runs_whose_names_have_colons_are_told_apart(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-86: what has no id in the source gets one of its own."""
    for run, node in (("a", "b:c"), ("a:b", "c")):
        put(source, "runs", run_id=run)
        put(source, "approvals", run_id=run, node_id=node)
    store = sqlite_database.open()
    assert store.maintenance.imports.run(source).units == {"imported": 2}
    gates = [one for run in ("a", "a:b") for one in store.workflows.approvals.list_for_run(run).items]
    assert [one.gate for one in gates] == ["b:c", "c"]


def test_a_value_that_its_source_has_removed_is_removed_here(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36, OP-86: NULL is no JSON."""
    put(source, "runs", run_id="r1")
    put(source, "attempts", run_id="r1", node_id="n", state="in-progress", heartbeat_data_json='{"n": 1}')
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    change(source, "attempts", "r1", heartbeat_data_json=None)
    assert store.maintenance.imports.run(source).units == {"grown": 1}
    [stored] = sqlite_database.raw().execute("SELECT checkpoint FROM executions").fetchall()
    assert stored[0] is None


def test_a_run_that_went_on_is_continued(database: Database, source: Path) -> None:
    """maintenance OP-36, OP-86: what ended is ended here too, what is new is added, and listeners are told."""
    store = database.open()
    imports, ended = store.maintenance.imports, list[WorkflowRun]()
    _review(source)
    imports.run(source)
    before = counts(database)
    assert imports.run(source).rows == {}
    assert difference(before, counts(database)).keys() <= {"maintenance_receipts"}
    store.workflows.on_terminal(ended.append)
    answer = {"status": "approved", "requested_at_ms": None, "decided_at_ms": BEGIN + 20_000, "decided_by": "cy"}
    change(source, "approvals", "r2", **answer)
    change(source, "human_requests", "r2", status="answered", response_json="a", answered_at_ms=BEGIN + 20_000)
    change(source, "nodes", "r2", state="finished", updated_at_ms=BEGIN + 21_000)
    change(source, "runs", "r2", status="finished", finished_at_ms=BEGIN + 22_000)
    put(source, "attempts", run_id="r2", node_id="ship")
    put(source, "events", run_id="r2", seq=0, timestamp_ms=BEGIN + 22_000, type="RunFinished")
    plan = imports.plan(source)
    assert (plan.units, plan.noticed) == ({"failed": 1, "unchanged": 1}, {})  # an answer that is no JSON
    change(source, "human_requests", "r2", response_json='"a"')
    plan = imports.plan(source)
    assert (plan.units, plan.rows) == (
        {"grown": 1, "unchanged": 1},
        {"executions": 1, "run_events": 1, "run_sequences": 1},
    )
    assert imports.run(source).rows == plan.rows
    run = store.workflows.runs.get("r2")
    assert (run.status, run.finished_at, run.pause_reason, [one.id for one in ended]) == (
        "succeeded",
        at(22_000),
        None,
        ["r2"],
    )
    assert store.workflows.approvals.get("r2:ship:0").answered_by == "cy"
    assert store.workflows.human_requests.get("h1").response == "a"
    assert store.workflows.nodes.get("r2", NodeRef("ship")).state == "finished"
    put(source, "events", run_id="r2", seq=1, timestamp_ms=BEGIN + 23_000)
    assert imports.run(source).rows == {"run_events": 1}
    assert store.journal.events.append("r2", "Later").seq == 2


def test_what_went_on_here_is_kept(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-86: a run that was ended here stays so, and what differs is counted."""
    put(source, "runs", run_id="r1")
    put(source, "nodes", run_id="r1", node_id="n", state="in-progress")
    store.maintenance.imports.run(source)
    store.workflows.runs.finish("r1", "cancelled")
    change(source, "runs", "r1", status="finished", finished_at_ms=BEGIN + 5_000)
    change(source, "nodes", "r1", state="finished")
    done = store.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"grown": 1}, {"row_kept": 2})
    assert store.workflows.runs.get("r1").status == "cancelled"


def test_a_number_that_was_given_here_is_not_written_over(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-86: the run fails by its name, and the event of this side stays."""
    put(source, "runs", run_id="r1")
    put(source, "runs", run_id="r2")
    store.maintenance.imports.run(source)
    store.journal.events.append("r1", "Mine")
    put(source, "events", run_id="r1", seq=0)
    done = store.maintenance.imports.run(source)
    assert (done.units, done.failures[0].unit, done.failures[0].code) == (
        {"failed": 1, "unchanged": 1},
        "runs/r1",
        "already_exists",
    )
    assert [one.type for one in store.journal.events.list("r1")] == ["Mine"]


def test_a_question_that_an_ended_run_left_open_is_closed(database: Database, source: Path) -> None:
    """maintenance OP-86: it is counted, and the doctor finds nothing."""
    put(source, "runs", run_id="r1", status="cancelled", finished_at_ms=BEGIN + 9_000)
    put(source, "approvals", run_id="r1", node_id="n")
    put(source, "human_requests", run_id="r1", request_id="h1", node_id="n", timeout_at_ms=BEGIN + 4_000)
    store = database.open()
    assert store.maintenance.imports.run(source).noticed == {"question_closed": 2}
    assert store.workflows.approvals.get("r1:n:0").status == "cancelled"
    assert store.workflows.human_requests.get("h1").closed_reason == "run.ended"
    assert _wrong(store.maintenance.doctor.examine()) == []


@pytest.mark.parametrize(
    ("table", "row", "named"),
    [
        ("runs", {"status": "dancing"}, "_smithers_runs r2.status: expected a known word"),
        ("runs", {"created_at_ms": "soon"}, "created_at_ms: expected a whole number of milliseconds"),
        ("runs", {"created_at_ms": 9e17}, "created_at_ms: must be a time"),
        ("runs", {"config_json": "{torn"}, "config_json: is not JSON"),
        ("runs", {"workflow_name": b"\xff"}, "workflow_name: expected text"),
        ("nodes", {"node_id": "n", "state": "odd"}, "_smithers_nodes n.state: expected a known word"),
        ("nodes", {"node_id": "n", "iteration": -1}, "iteration: must be between 0"),
        ("attempts", {"node_id": "n", "cached": 5}, "cached: must be 0 or 1"),
        ("attempts", {"node_id": "n", "error_json": "plain"}, "error_json: is not JSON"),
        ("events", {"seq": 0, "payload_json": "[1]"}, "_smithers_events 0.payload_json: must be an object"),
        ("events", {"seq": 0, "payload_json": '{"a": NaN}'}, "payload_json: is not JSON"),
        ("events", {"seq": 0, "payload_json": {"a": "x" * 70_000}}, "payload_json: 70008 bytes"),
        ("events", {"seq": 0, "type": "x" * 200}, "type: 200 bytes"),
        ("signals", {"seq": 0, "signal_name": "  "}, "signal_name: must not be blank"),
        ("human_requests", {"request_id": "h", "node_id": "n", "kind": "sing"}, "kind: expected a known word"),
        ("approvals", {"node_id": "n", "status": "maybe"}, "status: expected a known word"),
        ("ralph", {"ralph_id": "l", "done": 3}, "done: must be 0 or 1"),
        ("input", {"payload": "[1]"}, "input.payload: must be an object"),
        ("input", {"payload": "{torn"}, "payload: is not JSON"),
    ],
)
def test_what_cannot_be_stored_fails_its_run_alone(
    sqlite_database: Database, source: Path, table: str, row: Any, named: str
) -> None:
    """maintenance OP-35, OP-38, OP-86: nothing of the run is stored; mended, it is imported whole."""
    for key in ("r1", "r2", "r3"):
        put(source, "runs", run_id=key)
    put(source, table, run_id="r2", **row)
    store = sqlite_database.open()
    done = store.maintenance.imports.run(source)
    assert (done.units, done.failures[0].unit) == ({"failed": 1, "imported": 2}, "runs/r2")
    assert named in done.failures[0].reason
    assert {one.id for one in store.workflows.runs.list()} == {"r1", "r3"}
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute(f"DELETE FROM {'input' if table == 'input' else '_smithers_' + table} WHERE run_id = 'r2'")
    put(source, "runs", run_id="r2")
    assert store.maintenance.imports.run(source).units == {"imported": 1, "unchanged": 2}


def test_a_lenient_import_keeps_what_is_refused_as_text(store: Any, source: Path) -> None:
    """maintenance OP-38, OP-86: beside what the row holds, and counted. States and names stay refused."""
    put(source, "runs", run_id="r1", config_json="{torn", vcs_root="x" * 2_000)
    put(source, "attempts", run_id="r1", node_id="n", error_json="plain", state="odd")
    put(source, "events", run_id="r1", seq=0, payload_json='{"a": NaN}')
    put(source, "events", run_id="r1", seq=1, payload_json="torn")
    put(source, "approvals", run_id="r1", node_id="n", request_json="torn")
    put(source, "runs", run_id="r2", status="odd")
    imports = store.maintenance.imports
    assert imports.plan(source).units == {"failed": 2}
    done = imports.run(source, lenient=True)
    assert (done.units, done.noticed) == ({"failed": 1, "imported": 1}, {"adapted": 7})
    assert store.workflows.runs.get("r1").context == {"adapted": {"config_json": "{torn", "vcs_root": "x" * 2_000}}
    assert store.workflows.executions.get("r1:n:0:1").details == {"adapted": {"state": "odd", "error_json": "plain"}}
    events = [one.payload for one in store.journal.events.list("r1")]
    assert events == [{"a": "NaN"}, {"adapted": {"payload_json": "torn"}}]
    assert store.workflows.approvals.get("r1:n:0").action == {"adapted": {"request_json": "torn"}}
    assert imports.run(source, lenient=True).units == {"failed": 1, "unchanged": 1}


@pytest.mark.parametrize(
    ("table", "row", "stored", "column"),
    [
        ("runs", {"vcs_root": LONG}, "workflow_runs", "context"),
        ("attempts", {"node_id": "n", "jj_cwd": LONG}, "executions", "details"),
        ("events", {"seq": 0, "payload_json": "torn"}, "run_events", "payload"),
        ("approvals", {"node_id": "n", "decision_json": "torn"}, "workflow_approvals", "action"),
        ("sandboxes", {"sandbox_id": "b", "workspace_id": LONG}, "sandboxes", "config"),
        ("scorers", {"id": "s", "node_id": "n", "score": 1, "reason": LONG}, "scores", "meta"),
        ("cron", {"cron_id": "c", "error_json": "torn"}, "cron_schedules", "payload"),
        ("vectors", {"id": "v", "embedding": b"\0" * 8, "metadata_json": "torn"}, "vectors", "chunk_metadata"),
    ],
)
def test_each_row_with_a_place_for_texts_keeps_what_is_refused(
    sqlite_database: Database, source: Path, table: str, row: dict[str, Any], stored: str, column: str
) -> None:
    """maintenance OP-38, OP-86: it is named and refused otherwise."""
    put(source, "runs", run_id="r1")
    put(source, table, **row, **({} if table in ("cron", "vectors") else {"run_id": "r1"}))
    imports = sqlite_database.open().maintenance.imports
    assert imports.plan(source).units["failed"] == 1
    done = imports.run(source, lenient=True)
    assert ("failed" in done.units, done.noticed["adapted"]) == (False, 1)
    [found] = sqlite_database.raw().execute(f"SELECT {column} FROM {stored}").fetchall()
    [refused] = [name for name, value in row.items() if value in (LONG, "torn")]
    assert f'"adapted":{{"{refused}":' in found[0]


@with_each(
    ("table", "row"),
    [
        ("nodes", {"node_id": "n", "label": LONG}),
        ("signals", {"seq": 0, "received_by": LONG}),
        ("human_requests", {"request_id": "h", "node_id": "n", "answered_by": LONG}),
        ("tool_calls", {"node_id": "n", "seq": 1, "input_json": "torn"}),
        ("input", {"payload": "torn"}),
    ],
)
def test_a_row_without_a_place_for_texts_is_refused_by_a_lenient_import_too(
    sqlite_database: Database, source: Path, table: str, row: dict[str, Any]
) -> None:
    """maintenance OP-38, OP-86."""
    put(source, "runs", run_id="r1")
    put(source, table, run_id="r1", **row)
    done = sqlite_database.open().maintenance.imports.run(source, lenient=True)
    assert (done.units, done.rows) == ({"failed": 1}, {})


def test_rows_without_a_place_are_counted_and_rows_without_their_run_are_named(store: Any, source: Path) -> None:
    """maintenance OP-86: nothing is dropped in silence."""
    put(source, "runs", run_id="r1")
    put(source, "alerts", alert_id="a", run_id="r1", policy_name="p", message="m")
    put(source, "memory_facts", namespace="n", key="k", value_json="1")
    put(source, "schema_migrations", id="0001", name="n", applied_at_ms=1)
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("CREATE TABLE plans (run_id TEXT, node_id TEXT, iteration INTEGER, steps TEXT)")
        raw.execute("INSERT INTO plans VALUES ('r1', 'n', 0, '[]')")
    put(source, "events", run_id="gone", seq=0)
    done = store.maintenance.imports.run(source)
    assert (done.units, done.noticed) == (
        {"failed": 1, "imported": 1},
        {"alerts_left": 1, "memory_facts_left": 1, "plans_left": 1},
    )
    assert [one.unit for one in done.failures] == ["missing_runs/gone"]


def test_a_run_that_was_pruned_stays_away(database: Database, source: Path) -> None:
    """maintenance OP-36, OP-37, OP-86: a run of last year is old here, too; `revive` brings it back."""
    _review(source)
    store = database.open()
    imports = store.maintenance.imports
    imports.run(source)
    store.maintenance.prune.run(PrunePolicy(kind="runs", keep_days=1, keep_n=0))
    assert [one.id for one in store.workflows.runs.list()] == ["r2"]
    put(source, "runs", run_id="new")
    assert imports.run(source).units == {"imported": 1, "pruned": 1, "unchanged": 1}
    assert imports.run(source, revive=True).units == {"imported": 1, "unchanged": 2}
    assert store.journal.events.count("r1") == 2


def test_a_database_is_read_while_its_program_writes(database: Database, source: Path) -> None:
    """maintenance OP-86: what is committed is read, with its log, and nobody waits."""
    with closing(sqlite3.connect(source)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute(
            "INSERT INTO _smithers_runs (run_id, workflow_name, status, created_at_ms) VALUES ('r1', 'w', 'running', 1)"
        )
        raw.commit()
        raw.execute(
            "INSERT INTO _smithers_runs (run_id, workflow_name, status, created_at_ms) VALUES ('r2', 'w', 'running', 1)"
        )
        assert database.open().maintenance.imports.run(source).units == {"imported": 1}
        raw.commit()
    assert database.open().maintenance.imports.run(source, limit=1).units == {"imported": 1, "unchanged": 1}


def test_other_databases_are_not_of_that_system(store: Any, sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-35, OP-86: neither ours, also where both are in one file, nor a file that is none."""
    sqlite_database.open()
    (tmp_path / "text").write_text("SQLite format")
    ours = Path(sqlite_database.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(made(tmp_path / "both.db"))) as raw, raw:
        raw.execute(f"CREATE TABLE {VERSION_TABLE} (version_num TEXT)")
    for path in (ours, tmp_path / "text", tmp_path / "both.db"):
        with pytest.raises(Conflict, match="smithers-db: a SQLite file with the table _smithers_runs"):
            store.maintenance.imports.detect(path)
    with pytest.raises(Conflict, match="has not the table _smithers_runs"):
        store.maintenance.imports.plan(ours, kind="smithers-db")


def test_the_command_imports_the_database(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-86, OP-73."""
    _review(source)
    said = lastlight_state("import", source, "--dry-run", "--url", sqlite_database.url, "--json")
    assert (said.code, said.data["kind"], said.data["units"]) == (0, "smithers-db", {"imported": 2})


def test_runs_are_read_as_they_are_imported(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-53: their rows are not held together."""
    read: list[str] = []
    rows = Foreign.rows

    def counted(self: Foreign, table: str, *rest: Any) -> Iterator[Row]:
        for row in rows(self, table, *rest):
            read.append(table)
            yield row

    monkeypatch.setattr(Foreign, "rows", counted)
    for number in range(3):
        put(source, "runs", run_id=f"r{number}")
    with closing(node_databases.parts(source)) as parts:
        next(parts)
        assert read == ["_smithers_runs"]
