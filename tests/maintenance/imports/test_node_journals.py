"""What happened in the runs of the second original system: frames, tool calls, sandboxes and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.maintenance.node_databases import BEGIN, at, change, made, put, remove

from lastlight_state.journal import ToolCallFilter
from lastlight_state.testing import Database


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A database with one run."""
    path = made(tmp_path / "smithers.db")
    put(path, "runs", run_id="r1")
    return path


def _element(text: str) -> dict[str, Any]:
    """A tree whose keys are in another order than ours."""
    inner = {"text": text, "kind": "text"}
    return {"kind": "element", "children": [inner], "props": {"id": "a", "b": "é"}, "tag": "Task"}


def _frames(path: Path) -> None:
    """A whole frame, two changes, and a whole one."""
    ids = {"mounted_task_ids_json": ["a"], "task_index_json": [{"nodeId": "a", "ordinal": 0}]}
    put(path, "frames", run_id="r1", frame_no=1, xml_json=_element("one"), encoding="keyframe", note="n", **ids)
    for number, text in ((2, "two"), (3, "three")):
        op = {"op": "set", "path": ["children", 0, "text"], "value": text, "nodeId": "a"}
        put(path, "frames", run_id="r1", frame_no=number, xml_json={"version": 1, "ops": [op]}, encoding="delta")
    put(path, "frames", run_id="r1", frame_no=4, xml_json="null", encoding="full")


def test_frames_keep_their_encoding_and_can_be_read(store: Any, source: Path) -> None:
    """maintenance OP-86: and the next frame gets a new number."""
    _frames(source)
    assert store.maintenance.imports.run(source).rows["run_frames"] == 4
    frames = store.journal.frames
    listed = [(one.frame_no, one.encoding) for one in frames.list("r1").items]
    assert listed == [(4, "full"), (3, "delta"), (2, "delta"), (1, "keyframe")]
    assert frames.verify("r1").broken == ()
    first, third = frames.get("r1", 1), frames.get("r1", 3)
    assert (first.tree, first.mounted_task_ids, first.note) == (_element("one"), ("a",), "n")
    assert first.task_index == {"tasks": [{"nodeId": "a", "ordinal": 0}]}
    assert (third.tree, third.created_at) == (_element("three"), at(5_000))
    assert frames.append("r1", None).frame_no == 5
    assert store.maintenance.imports.run(source).units == {"unchanged": 1}


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"xml_json": "{torn"}, "_smithers_frames 2.xml_json: delta: is no JSON"),
        ({"xml_json": {"version": 1, "ops": [{"op": "set", "path": ["x", "y"], "value": 1}]}}, "path to nowhere"),
        ({"xml_json": "{torn", "encoding": "full"}, "_smithers_frames 2.xml_json: is not JSON"),
        ({"xml_json": {"kind": "odd"}, "encoding": "full"}, "expected an element"),
        ({"frame_no": 7}, "_smithers_frames 3.xml_json: changes a frame that is not there"),
        ({"encoding": "odd"}, "encoding: expected a known word"),
        ({"mounted_task_ids_json": [1]}, "mounted_task_ids_json: must be a list of ids"),
    ],
)
def test_a_frame_that_cannot_be_read_fails_its_run(
    sqlite_database: Database, source: Path, damage: dict[str, Any], named: str
) -> None:
    """maintenance OP-35, OP-38, OP-86: a lenient import leaves it out, with the changes that stand on it."""
    _frames(source)
    put(source, "runs", run_id="r2")
    op = {"op": "set", "path": ["tag"], "value": "Other"}
    remove(source, "frames", "frame_no = 2")
    put(
        source,
        "frames",
        **{"run_id": "r1", "frame_no": 2, "xml_json": {"version": 1, "ops": [op]}, "encoding": "delta"} | damage,
    )
    store = sqlite_database.open()
    done = store.maintenance.imports.run(source)
    assert (done.units, done.failures[0].unit) == ({"failed": 1, "imported": 1}, "runs/r1")
    assert named in done.failures[0].reason
    done = store.maintenance.imports.run(source, lenient=True)
    assert (done.units["imported"], done.noticed["frame_unreadable"] >= 2) == (1, True)
    assert [one.frame_no for one in store.journal.frames.list("r1").items] == [4, 1]
    assert store.journal.frames.verify("r1").broken == ()


def test_a_run_that_rendered_a_number_again_is_refused(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36, OP-86: a frame that is stored never changes."""
    _frames(source)
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    put(source, "frames", run_id="r1", frame_no=4, xml_json=_element("again"))
    [failed] = store.maintenance.imports.run(source).failures
    assert (failed.unit, failed.code) == ("runs/r1", "already_exists")
    assert store.journal.frames.get("r1", 4).tree is None


def test_tool_calls_are_numbered_within_the_run_and_keep_their_numbers(store: Any, source: Path) -> None:
    """maintenance OP-86: a call that is told late, and one that is made here, get numbers of their own."""
    put(source, "attempts", run_id="r1", node_id="n")
    told = {"input_json": {"a": 1}, "output_json": '"out"', "finished_at_ms": BEGIN + 1_250}
    put(source, "tool_calls", run_id="r1", node_id="n", seq=1, **told)
    put(source, "tool_calls", run_id="r1", node_id="m", seq=1, started_at_ms=BEGIN + 3_000, status="running")
    imports, calls = store.maintenance.imports, store.journal.tool_calls
    assert imports.run(source).rows["tool_calls"] == 2
    first, second = calls.get("r1", 0), calls.get("r1", 1)
    assert (first.status, first.duration_ms, first.execution_id, first.input) == (
        "succeeded",
        250,
        "r1:n:0:1",
        {"a": 1},
    )
    assert (first.output, second.status, second.execution_id, second.call_id) == ("out", "running", None, "m:0:1:1")
    assert calls.create("r1", "mine").seq == 2
    put(source, "tool_calls", run_id="r1", node_id="a", seq=1, started_at_ms=BEGIN, status="error", error_json={"m": 1})
    change(source, "tool_calls", "r1", finished_at_ms=BEGIN + 9_000, status="error")
    plan = imports.plan(source)
    assert (plan.units, plan.rows, plan.noticed) == ({"grown": 1}, {"tool_calls": 1}, {"row_kept": 1})
    imports.run(source)
    assert [(one.seq, one.tool_name, one.status) for one in calls.list("r1").items] == [
        (3, "bash", "failed"),
        (2, "mine", "running"),
        (1, "bash", "failed"),
        (0, "bash", "succeeded"),
    ]
    assert [one.seq for one in calls.list("r1", where=ToolCallFilter(node_id="n")).items] == [0]
    assert calls.create("r1", "mine").seq == 4


def test_each_run_numbers_its_own_tool_calls(store: Any, source: Path) -> None:
    """maintenance OP-86: from 0 on, whatever the numbers of its events."""
    for key in ("r2", "r3"):
        put(source, "runs", run_id=key)
        put(source, "events", run_id=key, seq=7)
        put(source, "tool_calls", run_id=key, node_id=f"of-{key}", seq=1)
    store.maintenance.imports.run(source)
    for key in ("r2", "r3"):
        put(source, "tool_calls", run_id=key, node_id=f"of-{key}", seq=2)
    store.maintenance.imports.run(source)
    assert [[one.seq for one in store.journal.tool_calls.list(key).items] for key in ("r2", "r3")] == [[1, 0]] * 2
    assert [store.journal.tool_calls.create(key, "mine").seq for key in ("r2", "r3")] == [2, 2]


def test_sandboxes_follow_their_source_until_they_end(store: Any, source: Path) -> None:
    """maintenance OP-86."""
    put(source, "sandboxes", run_id="r1", sandbox_id="b", config_json={"image": "i"}, workspace_id="w")
    store.maintenance.imports.run(source)
    made_at = store.journal.sandboxes.get("r1", "b")
    assert (made_at.status, made_at.config, made_at.workspace_id, made_at.created_at) == (
        *("pending", {"image": "i"}, "w"),
        at(0),
    )
    change(source, "sandboxes", "r1", status="finished", shipped_at_ms=BEGIN + 10, completed_at_ms=BEGIN + 20)
    assert store.maintenance.imports.run(source).units == {"grown": 1}
    ended = store.journal.sandboxes.get("r1", "b")
    assert (ended.status, ended.shipped_at, ended.completed_at, ended.updated_at) == (
        "completed",
        at(10),
        at(20),
        at(20),
    )


def test_of_the_scores_of_one_scorer_the_last_is_in_force(store: Any, source: Path) -> None:
    """maintenance OP-86: also where the later one is told by a later import."""
    put(source, "scorers", id="s1", run_id="r1", node_id="n", score=0.5, reason="so so", meta_json={"a": 1})
    assert store.maintenance.imports.run(source).rows["scores"] == 1
    put(source, "scorers", id="s2", run_id="r1", node_id="n", score=1, scored_at_ms=BEGIN + 7_000)
    assert store.maintenance.imports.run(source).rows == {"scores": 1}
    first, second = (store.journal.scores.get(name) for name in ("s1", "s2"))
    assert (first.score, first.reason, first.meta, first.superseded_at) == (0.5, "so so", {"a": 1}, at(7_000))
    assert (second.score, second.superseded_at) == (1.0, None)
