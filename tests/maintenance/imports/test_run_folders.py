"""Run folders of another program become conversation sessions, each whole or not at all."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.conversations.talk import history
from support.maintenance.rows import counts, difference
from support.maintenance.run_folders import BEGIN, branch, bytes_of, message, write, write_run

from lastlight_state import AsyncStateStore, InvalidValue
from lastlight_state.conversations import BranchPatch, NewMessage, NewSession, SessionPatch
from lastlight_state.errors import Conflict
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.imports import run_folders
from lastlight_state.maintenance.imports.kinds import KINDS
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """An empty folder for run folders."""
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


def _at(second: float) -> datetime:
    return datetime.fromtimestamp(BEGIN + second, UTC)


def _three(root: Path) -> None:
    shared = message("m1", 1, "system")
    write_run(root, "r1", branch("b1", [shared, message("m2", 2)]), branch("b2", [shared, message("m3", 3)]))
    write_run(root, "r2", branch("b3", [message("m4", 4)]), status="error", kind="Flow", artifact_root="/out")
    (root / "notes").mkdir(parents=True)


def test_run_folders_become_sessions_with_their_own_ids_and_times(store: Any, source: Path) -> None:
    """maintenance OP-35, OP-37, OP-39, case 33: the plan is the truth, the source is only read."""
    _three(source)
    before = bytes_of(source)
    imports = store.maintenance.imports
    assert imports.detect(str(source)) == "lionagi-runs"
    plan = imports.plan(source)
    assert plan.units == {"ignored": 1, "imported": 2}
    assert plan.rows == {"branches": 3, "messages": 4, "progression_links": 5, "sessions": 2}
    assert (plan.receipt, store.receipts.list().items) == (None, ())
    done = imports.run(source, actor="ops")
    assert (done.units, done.rows, done.failures) == (plan.units, plan.rows, ())
    assert (done.receipt.state, done.receipt.scope, done.receipt.actor) == ("done", "lionagi-runs", "ops")
    assert bytes_of(source) == before
    one, two = (store.conversations.sessions.get(name) for name in ("r1", "r2"))
    assert (one.created_at, one.updated_at, one.started_at, one.ended_at) == (_at(0), _at(60), _at(0), _at(60))
    assert (one.last_message_at, one.first_msg_id, one.source_kind) == (_at(3), "m1", "imported_fs")
    assert (two.status, two.invocation_kind, two.artifacts_path) == ("failed", "flow", "/out")
    assert (one.status_reason, one.message_count) == ("legacy.imported", 3)
    assert (history(store, "b1"), history(store, "b2")) == (["m1", "m2"], ["m1", "m3"])
    stored = store.conversations.messages.get("m1")
    assert (stored.created_at_unix, stored.content, stored.role) == (BEGIN + 1, {"text": "m1"}, "system")
    assert store.conversations.branches.get("b1").system_msg_id == "m1"


def test_a_second_import_writes_nothing_and_a_run_that_grew_is_continued(database: Database, source: Path) -> None:
    """maintenance OP-36."""
    store = database.open()
    running = {"status": "running", "ended_at": None}
    write_run(source, "r1", branch("b1", [message("m1", 1)]), **running)
    store.maintenance.imports.run(source)
    before = counts(database)
    again = store.maintenance.imports.run(source)
    assert (again.units, again.rows) == ({"unchanged": 1}, {})
    assert set(difference(before, counts(database))) <= {"maintenance_receipts"}
    write_run(source, "r1", branch("b1", [message("m1", 1), message("m2", 70)]), status="timeout", ended_at=BEGIN + 80)
    grown = store.maintenance.imports.plan(source)
    assert (grown.units, grown.rows) == ({"grown": 1}, {"messages": 1, "progression_links": 1})
    assert store.maintenance.imports.run(source).rows == grown.rows
    session = store.conversations.sessions.get("r1")
    assert (session.status, session.ended_at, session.ended_at_is_approximate) == ("timed_out", _at(80), False)
    assert [one.status for one in store.conversations.lifecycle.history("r1")] == ["timed_out", "running"]
    assert history(store, "b1") == ["m1", "m2"]


def test_an_ended_run_that_was_changed_follows_and_no_time_goes_back(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-37: one that was given another status here stays, and is named."""
    write_run(source, "r1", branch("b1", [message("m1", 1)]))
    imports = store.maintenance.imports
    imports.run(source)
    write_run(source, "r1", branch("b1", [message("m1", 1), message("m2", 2)]), status="failed")
    assert imports.plan(source).noticed == {}
    assert imports.run(source).noticed == {}
    session = store.conversations.sessions.get("r1")
    assert (session.status, session.updated_at, session.last_message_at) == ("failed", _at(60), _at(2))
    store.conversations.lifecycle.reopen("r1", actor="ana")
    store.conversations.lifecycle.transition("r1", "aborted")
    write_run(source, "r1", branch("b1", [message("m1", 1), message("m2", 2)]), status="completed")
    assert imports.plan(source).noticed["status_kept"] == 1
    done = imports.run(source)
    assert (done.noticed["status_kept"], done.conflicts[-1].unit) == (1, "r1")
    assert "session: status" in [one.kept for one in done.conflicts]
    assert store.conversations.sessions.get("r1").status == "aborted"


def test_a_run_that_was_pending_goes_on(store: Any, source: Path) -> None:
    """maintenance OP-36: only what has ended keeps its status."""
    for told in ("pending", "running", "success"):
        ended = BEGIN + 60 if told == "success" else None
        write_run(source, "r1", branch("b1", [message("m1", 1)]), status=told, ended_at=ended)
        done = store.maintenance.imports.run(source)
        assert (done.units.get("failed", 0), done.noticed) == (0, {})
    session = store.conversations.sessions.get("r1")
    assert (session.status, session.ended_at) == ("completed", _at(60))
    assert [one.status for one in store.conversations.lifecycle.history("r1")] == ["completed", "running", "pending"]


def test_what_was_named_here_keeps_its_name_when_a_run_grows(store: Any, source: Path) -> None:
    """maintenance OP-36: what is new is appended, and nothing that is stored changes."""
    theirs = {"branches": [{"id": "b1", "name": "theirs"}]}
    write_run(source, "r1", branch("b1", [message("m1", 1)]), **theirs)
    store.maintenance.imports.run(source)
    store.conversations.sessions.update("r1", SessionPatch(name="mine"))
    store.conversations.branches.update("b1", BranchPatch(name="mine"))
    write_run(source, "r1", branch("b1", [message("m1", 1), message("m2", 2)]), **theirs)
    assert store.maintenance.imports.run(source).rows == {"messages": 1, "progression_links": 1}
    assert store.conversations.sessions.get("r1").name == store.conversations.branches.get("b1").name == "mine"


def test_a_run_has_the_name_of_its_folder_wherever_it_is_seen_from(
    store: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-39."""
    monkeypatch.chdir(write_run(source, "r1", branch("b1", [message("m1", 1)])) / "branches")
    assert store.maintenance.imports.run("..").units == {"imported": 1}
    assert store.maintenance.imports.run(source).units == {"unchanged": 1}
    assert [one.id for one in store.conversations.sessions.list()] == ["r1"]


def test_no_link_is_followed_and_a_folder_that_vanishes_stops_nothing(
    store: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-35."""
    outside = write_run(source.parent / "elsewhere", "r0", branch("b0", []))
    for name, link, target in (
        ("r1", "run.json", outside / "run.json"),
        ("r2", "branches", outside / "branches"),
    ):
        write_run(source, name)
        place = source / name / link
        place.rmdir() if place.is_dir() else place.unlink()
        place.symlink_to(target)
    write_run(source, "r3")
    listed = run_folders._change_time

    def vanishing(folder: Path) -> float:
        if folder.name == "r3":
            shutil.rmtree(folder)
        return listed(folder)

    monkeypatch.setattr(run_folders, "_change_time", vanishing)
    plan = store.maintenance.imports.plan(source)
    assert {one.unit: one.code for one in plan.failures} == {"r1": "invalid_value", "r2": "invalid_value"}
    assert plan.units == {"failed": 2}


DAMAGED: dict[str, tuple[Any, str]] = {
    "torn": ('{"id": "b", "messages": {"coll', "invalid_value"),
    "a list": ("[1]", "invalid_value"),
    "not a number": ('{"id": "b", "messages": {"collections": [{"id": "x", "content": NaN}]}}', "invalid_value"),
    "messages no list": ({"id": "b", "messages": "none"}, "invalid_value"),
    "a message without an id": (branch("b", [{"role": "user", "content": 1}], []), "invalid_value"),
    "a message without a role": (branch("b", [{"id": "x", "content": 1}]), "invalid_value"),
    "an order of numbers": ({"id": "b", "messages": {"collections": [], "progression": [1]}}, "invalid_value"),
    "two messages of one id": (branch("b", [message("x", 1), message("x", 2)]), "invalid_value"),
    "a long name": (branch("b", [], user="u" * 300), "invalid_value"),
    "a branch of another run": (branch("b1", []), "already_exists"),
    "a message stored otherwise": (branch("b", [message("m1", 1, content="other")]), "already_exists"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_run_leaves_nothing_and_the_others_are_imported(database: Database, source: Path, case: str) -> None:
    """maintenance OP-35, OP-38, case 29: it is named with its reason; mended, it is imported completely."""
    store = database.open()
    bad, code = DAMAGED[case]
    write_run(source, "r1", branch("b1", [message("m1", 1)]))
    write_run(source, "r2", branch("b7", [message("m7", 7)]), bad if isinstance(bad, dict) else {})
    write(source / "r2" / "branches" / "b1.json", bad)
    write_run(source, "r3", branch("b9", [message("m9", 9)]))
    plan = store.maintenance.imports.plan(source)
    assert (plan.units, [(one.unit, one.code) for one in plan.failures]) == (
        {"failed": 1, "imported": 2},
        [("r2", code)],
    )
    done = store.maintenance.imports.run(source)
    assert (done.units, done.rows, done.failures) == (plan.units, plan.rows, plan.failures)
    assert sorted(one.id for one in store.conversations.sessions.list()) == ["r1", "r3"]
    assert counts(database)["branches"] == 2
    write(source / "r2" / "branches" / "b1.json", branch("b8", [message("m8", 8)]))
    assert store.maintenance.imports.run(source).units == {"imported": 1, "unchanged": 2}


def test_hostile_names_and_old_shapes_are_stored_as_they_are(store: Any, source: Path) -> None:
    """maintenance OP-39, case 33: ids are no paths; unknown words and orders without messages are counted."""
    told = {"status": "melted", "kind": "seance", "started_at": "soon", "ended_at": None, "exit_code": 1}
    large = message("large", 5, content={"text": "x" * 1_000_000})
    iso = message("iso", 0, created_at="2026-01-05T10:00:01")
    bare = {**message("bare", 3, created_at=None), "content": None}
    loose = message("loose", 4)
    write_run(source, "r1", branch("../../x", [iso, bare, large, loose], ["iso", "gone", "bare", "large"]), **told)
    write(source / "r1" / "branches" / "plain.json", {"messages": [message("old", 6)], "metadata": {"clone_from": "x"}})
    write(source / "r1" / "branches" / "empty.json", {})
    done = store.maintenance.imports.run(source / "r1", kind="lionagi-runs")
    assert done.units == {"imported": 1}
    assert done.noticed == {
        "content_missing": 1,
        "message_outside_order": 1,
        "order_without_message": 1,
        "started_at_approximate": 1,
        "status_unknown": 1,
    }
    session = store.conversations.sessions.get("r1")
    assert (session.status, session.invocation_kind, session.ended_at_is_approximate) == ("completed", None, True)
    assert session.node_metadata == {"imported_status": "melted", "imported_kind": "seance"}
    assert (session.started_at, session.message_count) == (_at(1), 5)
    assert history(store, "../../x") == ["iso", "bare", "large"]
    assert store.conversations.branches.get("plain").extra == {"metadata": {"clone_from": "x"}}
    assert not (source.parent / "x").exists()


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ({"exit_code": 0}, "completed"),
        ({"exit_code": 1}, "failed"),
        ({"exit_code": 7}, "failed"),
        ({"exit_code": 124}, "timed_out"),
        ({"exit_code": 130}, "aborted"),
        ({"exit_code": 143}, "cancelled"),
        ({"exit_code": "1"}, "failed"),
        ({}, "completed"),
        ({"status": "success"}, "completed"),
        ({"status": "error"}, "failed"),
        ({"status": "timeout"}, "timed_out"),
        ({"status": "Canceled"}, "cancelled"),
        ({"status": "Unknown"}, "completed"),
    ],
)
def test_the_status_is_that_of_the_manifest(
    sqlite_database: Database, source: Path, told: dict[str, Any], status: str
) -> None:
    """maintenance OP-39, case 30."""
    store = sqlite_database.open()
    write_run(source, "r1", **{"status": None, **told})
    store.maintenance.imports.run(source)
    assert store.conversations.sessions.get("r1").status == status


def test_a_kind_that_is_no_text_is_noted_like_one_that_is_not_known(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-39, case 33."""
    write(write_run(source, "r1") / "run.json", {"kind": 5, "name": "n"})
    store = sqlite_database.open()
    assert store.maintenance.imports.run(source).units == {"imported": 1}
    session = store.conversations.sessions.get("r1")
    assert (session.invocation_kind, session.node_metadata) == (None, {"imported_kind": 5})


def test_a_tombstone_of_another_kind_stands_in_nobodys_way(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36: here of a run with the id of a session."""
    store = sqlite_database.open()
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="r1"))
    store.workflows.runs.finish("r1", "succeeded")
    sqlite_database.clock.advance(timedelta(days=2))
    assert store.maintenance.prune.run(PrunePolicy(kind="runs", keep_days=1, keep_n=0)).counts["workflow_runs"] == 1
    write_run(source, "r1")
    assert store.maintenance.imports.run(source).units == {"imported": 1}


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_run_that_grew_and_is_where_it_was_has_no_new_transition(
    sqlite_database: Database, source: Path, status: str
) -> None:
    """maintenance OP-36."""
    store = sqlite_database.open()
    for n in (1, 2):
        messages = [message(f"m{i}", i) for i in range(n)]
        write_run(source, "r1", branch("b1", messages), status=status, ended_at=None)
        assert store.maintenance.imports.run(source).failures == ()
    assert [one.status for one in store.conversations.lifecycle.history("r1")] == [status]


def test_a_run_that_grew_leaves_the_times_and_counts_of_others(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36: and an end that has not changed is no end that was kept."""
    store = sqlite_database.open()
    write_run(source, "r0", branch("b0", [message("m0", 1)]))
    write_run(source, "r1", branch("b1", [message("m1", 1)]))
    store.maintenance.imports.run(source)
    other = store.conversations.sessions.get("r0")
    write_run(source, "r1", branch("b1", [message("m1", 1), message("m2", 900)]))
    assert store.maintenance.imports.run(source).noticed == {}
    assert (store.conversations.sessions.get("r0"), store.conversations.sessions.get("r1").updated_at) == (
        other,
        _at(900),
    )


def test_a_manifest_that_is_no_object_fails_and_a_missing_one_is_ignored(
    sqlite_database: Database, source: Path
) -> None:
    """maintenance OP-39, case 30."""
    for name, text in (("torn", "{"), ("list", "[]")):
        write(write_run(source, name) / "run.json", text)
    (write_run(source, "none") / "run.json").unlink()
    done = sqlite_database.open().maintenance.imports.run(source)
    assert (done.units, {one.unit for one in done.failures}) == ({"failed": 2, "ignored": 1}, {"torn", "list"})


def test_an_old_run_is_an_old_session_and_a_prune_takes_it(database: Database, source: Path) -> None:
    """maintenance OP-37."""
    store = database.open()
    database.clock.set(_at(0) + timedelta(days=365))
    write_run(source, "r1", branch("b1", [message("m1", 1)]))
    store.maintenance.imports.run(source)
    assert store.conversations.sessions.get("r1").updated_at == _at(60)
    assert store.maintenance.prune.run(PrunePolicy("sessions", keep_days=30, keep_n=0)).counts["sessions"] == 1


def test_what_was_pruned_stays_away_unless_it_is_revived(database: Database, source: Path) -> None:
    """maintenance OP-36."""
    store = database.open()
    database.clock.set(_at(0) + timedelta(days=100))
    _three(source)
    store.maintenance.imports.run(source)
    store.maintenance.prune.run(PrunePolicy(kind="sessions", keep_days=1, keep_n=0))
    assert counts(database)["messages"] == 0
    assert store.maintenance.imports.plan(source).units == {"ignored": 1, "pruned": 2}
    assert store.maintenance.imports.plan(source, revive=True).units == {"ignored": 1, "imported": 2}
    assert store.maintenance.imports.run(source).units == {"ignored": 1, "pruned": 2}
    back = store.maintenance.imports.run(source, revive=True)
    assert (back.units, back.rows["messages"]) == ({"ignored": 1, "imported": 2}, 4)
    assert store.maintenance.imports.run(source).units == {"ignored": 1, "unchanged": 2}


def test_what_is_stored_already_is_never_changed(store: Any, source: Path) -> None:
    """maintenance OP-36: sessions from elsewhere are refused, and orders that were continued here stay, by name."""
    store.conversations.sessions.create(NewSession("mine"))
    write_run(source, "mine")
    write_run(source, "r1", branch("b1", [message("m1", 1)]))
    first = store.maintenance.imports.run(source)
    assert [(one.unit, one.code) for one in first.failures] == [("mine", "already_exists")]
    store.conversations.branches.append("b1", [NewMessage("user", "here")])
    write_run(source, "r1", branch("b1", [message("m1", 1), message("m2", 2)]))
    done = store.maintenance.imports.run(source)
    assert [(one.unit, one.code) for one in done.failures] == [("mine", "already_exists")]
    assert [(one.unit, one.kept) for one in done.conflicts] == [("r1", "branch b1: order of messages")]


def test_two_runs_of_a_source_that_contradict_one_another_fail_in_the_plan_too(store: Any, source: Path) -> None:
    """maintenance OP-29, OP-39: a plan counts what is shared once."""
    write_run(source, "a", branch("b", [message("m", 1)]))
    write_run(source, "b", branch("b", [message("m", 1)]))
    write_run(source, "c", branch("c", [message("m", 1, content="other")]))
    write_run(source, "d", branch("d", [message("m", 1)]))
    plan = store.maintenance.imports.plan(source)
    done = store.maintenance.imports.run(source)
    assert (
        (plan.units, plan.rows)
        == (done.units, done.rows)
        == (
            {"failed": 2, "imported": 2},
            {"branches": 2, "messages": 1, "progression_links": 2, "sessions": 2},
        )
    )
    assert [one.unit for one in plan.failures] == [one.unit for one in done.failures] == ["b", "c"]


def test_wrong_sources_and_a_second_import_are_refused(database: Database, source: Path) -> None:
    """maintenance OP-7, OP-35, OP-74; coroutines have the same calls."""
    store = database.open()
    with pytest.raises(Conflict, match=r"lionagi-runs: folders with run\.json"):
        store.maintenance.imports.detect(source)
    wrong: Any = "tapes"
    with pytest.raises(InvalidValue):
        store.maintenance.imports.plan(source, kind=wrong)
    write_run(source, "fifo")
    (source / "fifo" / "run.json").unlink()
    os.mkfifo(source / "fifo" / "run.json")
    (source / "gone").mkdir()
    (source / "gone" / "run.json").symlink_to("nowhere")
    assert {one.unit: one.code for one in store.maintenance.imports.plan(source).failures} == {
        "fifo": "invalid_value",
        "gone": "invalid_value",
    }
    other = store.receipts.begin("import", scope="lionagi-runs", owner="other", policy={})
    with pytest.raises(Conflict, match="import of lionagi-runs is running"):
        store.maintenance.imports.run(source)
    store.receipts.finish(other)

    async def work() -> Any:
        settings: dict[str, Any] = {"schema": store.settings.schema_name, "clock": database.clock}
        async with await AsyncStateStore.open(database.url, **settings) as awaited:
            imports = awaited.maintenance.imports
            return await imports.detect(source), (await imports.run(source)).units

    assert asyncio.run(work()) == ("lionagi-runs", {"failed": 2})


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "nowhere"])
def test_a_path_that_no_file_can_have_is_no_source(sqlite_database: Database, path: str) -> None:
    """maintenance OP-35."""
    with pytest.raises(Conflict, match="no known source") as caught:
        sqlite_database.open().maintenance.imports.detect(path)
    assert caught.value.code == "unknown_source"


@pytest.mark.parametrize(
    "told", ["soon", [], {}, True, 1e300, 2**60, -(2**60), float("1e16"), "0001-01-01T00:00:00+14:00"]
)
def test_a_time_that_is_none_is_counted_and_told_from_elsewhere(
    sqlite_database: Database, source: Path, told: Any
) -> None:
    """maintenance OP-39: the first message tells when the run began."""
    write_run(source, "r1", branch("b1", [message("m1", 3)]), started_at=told)
    store = sqlite_database.open()
    done = store.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"imported": 1}, {"started_at_approximate": 1})
    assert store.conversations.sessions.get("r1").started_at == _at(3)


def test_an_import_that_finds_nothing_new_is_no_dead_one(
    database: Database, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-7, OP-35: an hour of unchanged runs, and nobody takes the work over."""
    store, other = database.open(), database.open()
    for name in ("r1", "r2", "r3"):
        write_run(source, name)
    store.maintenance.imports.run(source)
    known = run_folders.parts

    def slowly(path: Path) -> Any:
        for i, part in enumerate(known(path)):
            if i:
                with pytest.raises(Conflict, match="is running"):
                    other.maintenance.imports.run(source)
            database.clock.advance(timedelta(minutes=9))
            yield part

    monkeypatch.setitem(KINDS, "lionagi-runs", replace(run_folders.KIND, parts=slowly))
    assert store.maintenance.imports.run(source).units == {"unchanged": 3}


def test_a_file_past_the_limit_fails_its_run(store: Any, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-38."""
    write_run(source, "r1", branch("b1", [message("m1", 1)]))
    monkeypatch.setattr(run_folders, "FILE_BYTES", 150)
    assert store.maintenance.imports.plan(source).failures[0].code == "payload_too_large"


def test_the_command_says_what_was_imported_and_what_failed(database: Database, source: Path) -> None:
    """maintenance OP-35, OP-72, OP-73: the dry run is the truth, and exit code 1 means that a run failed."""
    database.open()
    _three(source)
    url = ("--url", database.url)
    assert lastlight_state("import", str(source), "--dry-run", *url).out.startswith("dry run: nothing")
    said = lastlight_state("import", str(source), *url, "--json")
    assert (said.code, said.data["units"], said.data["receipt"]["state"]) == (0, {"ignored": 1, "imported": 2}, "done")
    write_run(source, "r3", branch("b1", []))
    failed = lastlight_state("import", str(source), *url)
    assert (failed.code, "r3" in failed.out, "already_exists" in failed.out) == (1, True, True)
    assert lastlight_state("import", str(source), "--kind", "tapes", *url).code == 2
    assert lastlight_state("import", str(source / "nowhere"), *url).code == 1
