"""What lies just within a limit of an import is taken, and what lies just behind it is refused, cut or counted."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.mailbox.files import sql
from support.maintenance.homes import state, write_state
from support.maintenance.node_databases import BEGIN, made, put
from support.maintenance.run_folders import branch, message, write_run
from support.maintenance.state_databases import made as made_state_database, put_branch, put_session
from support.maintenance.team_files import letter, write_team

from lastlight_state.files.run_log.states import files
from lastlight_state.maintenance.imports import run_folders
from lastlight_state.maintenance.imports.kinds import KINDS
from lastlight_state.maintenance.imports.node_databases.source_rows import id_of
from lastlight_state.testing import Database

MIB = 1024 * 1024


def test_a_report_names_the_first_500_units_that_failed(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-35: all of them are counted."""
    for i in range(501):
        (tmp_path / "runs" / f"r{i:03}").mkdir(parents=True)
        (tmp_path / "runs" / f"r{i:03}" / "run.json").touch()
    plan = sqlite_database.open().maintenance.imports.plan(tmp_path / "runs")
    assert (plan.units, len(plan.failures)) == ({"failed": 501}, 500)


def test_a_file_of_a_run_has_256_mib_at_most(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-38: the error names the limit, and nothing of the file is read."""
    imports = sqlite_database.open().maintenance.imports
    manifest = write_run(tmp_path / "runs", "r1") / "run.json"
    monkeypatch.setattr(run_folders, "FILE_BYTES", manifest.stat().st_size)
    assert imports.plan(tmp_path / "runs").units == {"imported": 1}
    monkeypatch.undo()
    with manifest.open("r+b") as file:
        file.truncate(256 * MIB + 1)
    [failed] = imports.plan(tmp_path / "runs").failures
    assert (failed.code, str(256 * MIB) in failed.reason) == ("payload_too_large", True)


def test_a_snapshot_of_the_most_bytes_is_imported(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-38, OP-83: of the older layout."""
    file = write_state(tmp_path, state("one"))
    monkeypatch.setattr(files, "MAX_BYTES", file.stat().st_size)
    assert sqlite_database.open().maintenance.imports.plan(tmp_path).units == {"imported": 1}


@pytest.mark.parametrize(("length", "is_whole"), [(143, True), (144, False)])
def test_a_unit_with_a_long_name_is_named_by_its_beginning_and_a_digest(
    sqlite_database: Database, tmp_path: Path, length: int, is_whole: bool
) -> None:
    """maintenance OP-35, OP-85: past 256 bytes, and the same in every version, so that it is known by its name."""
    slug, name = "-" + "a" * 99, f"agent-{'b' * length}.jsonl"
    folder = tmp_path / "projects" / slug
    folder.mkdir(parents=True)
    (folder / name).symlink_to("elsewhere")
    [failed] = sqlite_database.open().maintenance.imports.plan(tmp_path, kind="lastlight-logs").failures
    whole = f"{slug}/{name}"
    assert failed.unit == (whole if is_whole else f"{whole[:180]} {hashlib.sha256(whole.encode()).hexdigest()[:32]}")


@pytest.mark.parametrize(("length", "is_whole"), [(249, True), (250, False)])
def test_an_attempt_is_named_after_its_node_if_that_is_short(
    sqlite_database: Database, tmp_path: Path, length: int, is_whole: bool
) -> None:
    """maintenance OP-86: its id has 256 bytes at most."""
    source, node, store = made(tmp_path / "smithers.db"), "n" * length, sqlite_database.open()
    put(source, "runs", run_id="r1")
    put(source, "attempts", run_id="r1", node_id=node)
    store.maintenance.imports.run(source)
    [found] = store.workflows.executions.list(run_id="r1").items
    assert (found.id == f"r1:{node}:0:1", len(found.id)) == (is_whole, 256 if is_whole else 64)


@with_each(("parts", "is_plain"), [(("n" * 250, 0, 1), True), (("n" * 251, 0, 1), False)])
def test_an_id_that_is_made_of_names_has_256_bytes_at_most(parts: tuple[Any, ...], is_plain: bool) -> None:
    """maintenance OP-86."""
    made_of_them = id_of("r", *parts)
    assert made_of_them == (":".join(map(str, ("r", *parts))) if is_plain else made_of_them[:64])


def test_an_id_of_a_run_with_a_colon_names_no_attempt(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-86: ``a:b`` with the node ``c`` is not ``a`` with the node ``b:c``."""
    source, store = made(tmp_path / "smithers.db"), sqlite_database.open()
    for run_id, node in (("a", "b:c"), ("a:b", "c")):
        put(source, "runs", run_id=run_id)
        put(source, "attempts", run_id=run_id, node_id=node)
    assert store.maintenance.imports.run(source).units == {"imported": 2}
    assert len(store.workflows.executions.list(run_id="a").items) == 1
    assert store.workflows.executions.list(run_id="a").items[0].id == "a:b:c:0:1"


@pytest.mark.parametrize("more", [0, 1])
def test_gates_and_calls_of_nodes_with_long_names_have_a_digest_instead(
    sqlite_database: Database, tmp_path: Path, more: int
) -> None:
    """maintenance OP-86: a gate has 128 bytes at most, a call 256."""
    source, store = made(tmp_path / "smithers.db"), sqlite_database.open()
    gate, node = "g" * (128 + more), "n" * (250 + more)
    put(source, "runs", run_id="r1")
    put(source, "approvals", run_id="r1", node_id=gate)
    put(source, "tool_calls", run_id="r1", node_id=node, seq=1)
    store.maintenance.imports.run(source)
    [asked] = store.workflows.approvals.list_for_run("r1").items
    [call] = store.journal.tool_calls.list("r1").items
    named = [gate, f"{node}:0:1:1"]
    digests = [hashlib.sha256(one.encode()).hexdigest() for one in named]
    assert [asked.gate, store.journal.tool_calls.get("r1", call.seq).call_id] == (digests if more else named)


@pytest.mark.parametrize(("ended", "duration"), [(BEGIN + 91_000, 90_000), (BEGIN, 0), (None, None)])
def test_what_took_long_or_ended_before_it_began_has_a_duration(
    sqlite_database: Database, tmp_path: Path, ended: int | None, duration: int | None
) -> None:
    """maintenance OP-86: in milliseconds; a clock that was set back makes none below zero."""
    source, store = made(tmp_path / "smithers.db"), sqlite_database.open()
    put(source, "runs", run_id="r1")
    put(source, "attempts", run_id="r1", node_id="n", finished_at_ms=ended)
    put(source, "tool_calls", run_id="r1", node_id="n", seq=1, finished_at_ms=ended)
    store.maintenance.imports.run(source)
    assert store.workflows.executions.get("r1:n:0:1").duration_ms == duration
    assert store.journal.tool_calls.get("r1", 0).duration_ms == duration


def test_a_status_that_is_not_known_is_kept_by_its_first_200_characters(
    sqlite_database: Database, tmp_path: Path
) -> None:
    """maintenance OP-39."""
    write_run(tmp_path, "r1", status="y" * 300)
    store = sqlite_database.open()
    store.maintenance.imports.run(tmp_path)
    assert store.conversations.sessions.get("r1").node_metadata == {"imported_status": "y" * 200}


@pytest.mark.parametrize("more", [0, 1])
def test_the_error_of_a_fire_has_15_kib_at_most(sqlite_database: Database, tmp_path: Path, more: int) -> None:
    """maintenance OP-38, OP-82."""
    path = tmp_path / "theirs.db"
    _minimal_executions(path)
    sql(path, "CREATE TABLE cron_runs (id, cron_name, source, started_at, status, error)")
    values = ["f-1", "nightly", "manual", "2026-01-05T10:00:00Z", "failed", "x" * (15 * 1024 + more)]
    sql(path, "INSERT INTO cron_runs VALUES (?, ?, ?, ?, ?, ?)", values)
    assert sqlite_database.open().maintenance.imports.run(path).units == {"failed" if more else "imported": 1}


def _minimal_executions(path: Path) -> None:
    columns = "id, trigger_type, trigger_id, skill, repo, issue_number, started_at, finished_at, success, error"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"CREATE TABLE executions ({columns})")


def test_databases_with_no_more_columns_than_every_version_has_are_known(store: Any, tmp_path: Path) -> None:
    """maintenance OP-82, OP-86."""
    _minimal_executions(tmp_path / "theirs.db")
    sql(
        tmp_path / "theirs.db",
        "INSERT INTO executions (id, trigger_type, trigger_id, skill, started_at) VALUES "
        "('x', 'webhook', 't', 's', '2026-01-05T10:00:00Z')",
    )
    with closing(sqlite3.connect(tmp_path / "smithers.db")) as raw, raw:
        raw.execute("CREATE TABLE _smithers_runs (run_id, workflow_name, status, created_at_ms)")
        raw.execute(f"INSERT INTO _smithers_runs VALUES ('r1', 'w', 'running', {BEGIN})")
    imports = store.maintenance.imports
    found = {name: imports.detect(tmp_path / name) for name in ("theirs.db", "smithers.db")}
    assert found == {"theirs.db": "lastlight-db", "smithers.db": "smithers-db"}
    assert [imports.run(tmp_path / name).units for name in found] == [{"imported": 1}] * 2


@pytest.mark.parametrize("shared", [False, True])
def test_an_order_that_one_session_alone_has_keeps_its_id(store: Any, tmp_path: Path, shared: bool) -> None:
    """maintenance OP-80: one that two have is given to each of them, under another id."""
    path = made_state_database(tmp_path / "state.db")
    put_session(path, "s1", [])
    put_branch(path, "s1", "b1", [], progression_id="order-s1" if shared else "order-b1")
    done = store.maintenance.imports.run(path)
    assert done.noticed == ({"order_shared": 2} if shared else {})
    session, one = store.conversations.sessions.get("s1"), store.conversations.branches.get("b1")
    assert ("order-s1" in (session.progression_id, one.progression_id)) is not shared


@pytest.mark.parametrize(("seconds", "is_told"), [(59, False), (60, True)])
def test_an_import_shows_a_sign_of_life_once_a_minute(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, is_told: bool
) -> None:
    """maintenance OP-7, OP-35: also where nothing is stored."""
    store = database.open()
    for name in ("r1", "r2"):
        write_run(tmp_path / "runs", name)
    store.maintenance.imports.run(tmp_path / "runs")
    known, seen = run_folders.parts, list[bool]()

    def slowly(path: Path) -> Any:
        for part in known(path):
            database.clock.advance(timedelta(seconds=seconds))
            yield part
            [running] = store.receipts.list(state="running").items
            seen.append(store.receipts.get(running.id).updated_at == database.clock.now())

    monkeypatch.setitem(KINDS, "lionagi-runs", replace(run_folders.KIND, parts=slowly))
    store.maintenance.imports.run(tmp_path / "runs")
    assert seen == [is_told, True]


def test_what_a_time_says_before_the_first_message_is_when_a_branch_began(store: Any, tmp_path: Path) -> None:
    """maintenance OP-39: of several messages the earliest, whatever their order; a team is as old as its file says."""
    write_run(tmp_path / "runs", "r1", branch("b1", [message("m2", 9), message("m1", 1)]))
    write_team(tmp_path, "t1", letter("t-m1", 3))
    assert store.maintenance.imports.run(tmp_path / "runs").units == {"imported": 1}
    assert store.maintenance.imports.run(tmp_path, kind="lionagi-teams").units == {"imported": 1}
    made_at = store.conversations.branches.get("b1").created_at
    assert made_at == store.conversations.messages.get("m1").created_at
