"""The database of the first original system: its runs, gates, overrides and chats, each whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.mailbox.files import sql
from support.maintenance.rows import counts, difference
from support.maintenance.run_folders import bytes_of
from support.maintenance.workflow_databases import change, execution, made, put
from support.migrations.eras import AT, CHAT, ERAS, ERROR, FAILED, LATER, OPEN

from lastlight_state import StateStore
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.errors import Conflict
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.messaging import ConversationKey
from lastlight_state.testing import Database
from lastlight_state.workflows import WorkflowRun

[NEWEST] = [era for era in ERAS if era.stem == "6-v0.21"]
AFTER = "2026-07-01T00:00:00.000Z"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A database of the newest version, in a folder of its own, without rows that have no place here."""
    (tmp_path / "program").mkdir()
    path = made(tmp_path / "program" / "theirs.db", NEWEST)
    sql(path, "DELETE FROM users")
    return path


@pytest.mark.parametrize("era", ERAS, ids=[era.stem for era in ERAS])
def test_a_database_of_any_era_is_imported_by_value(database: Database, tmp_path: Path, era: Path) -> None:
    """maintenance OP-35, OP-37, OP-82, case 33: the plan tells the truth, and the source is not written."""
    (tmp_path / "program").mkdir()
    path = made(tmp_path / "program" / "theirs.db", era)
    before, store = bytes_of(path.parent), database.open()
    assert store.maintenance.imports.detect(path) == "lastlight-db"
    plan = store.maintenance.imports.plan(path)
    done = store.maintenance.imports.run(path)
    assert (done.units, done.rows, done.noticed, done.failures) == (plan.units, plan.rows, plan.noticed, ())
    assert bytes_of(path.parent) == before
    assert done.rows.get("executions", 0) == (0 if era.stem == "7-chat-only" else 2)
    if done.rows.get("workflow_runs"):
        _check_runs(store)
    assert store.workflows.overrides.is_enabled("release") == ("workflow_overrides" not in done.rows)
    if done.rows.get("messaging_messages"):
        assert [one.content for one in store.messaging.messages.history(CHAT)] == ["Why twice? ✓"]
    assert store.maintenance.imports.run(path).rows == {}


def _check_runs(store: StateStore) -> None:
    failed, running = (store.workflows.runs.get(name) for name in (FAILED, OPEN))
    assert (failed.status, failed.phase_count, failed.error) == ("failed", 2, ERROR)
    assert (failed.repo, failed.updated_at, failed.finished_at) == ("weather", parse_time(LATER), parse_time(LATER))
    assert (running.status, running.error, running.transition_seq) == ("running", None, 0)
    assert [gate.id for gate in store.workflows.approvals.list_pending().items] == ["gate-1"]


@pytest.mark.parametrize("context", [None, '["error"]'])
def test_a_run_that_failed_without_an_error_in_its_context_has_none(
    sqlite_database: Database, source: Path, context: str | None
) -> None:
    """maintenance OP-82."""
    store = sqlite_database.open()
    change(source, "workflow_runs", FAILED, context=context)
    assert store.maintenance.imports.run(source).failures == ()
    assert store.workflows.runs.get(FAILED).error is None


def test_a_qualified_repository_is_split_and_an_explicit_owner_wins(store: Any, source: Path) -> None:
    """maintenance OP-82: an owner is not guessed from a URL; columns without a place go to the details."""
    url = "https://github.com/acme/weather/issues/42"
    put(source, "executions", **execution("x-3", trigger_id=url, repo="acme/weather", extension_status="{torn"))
    put(source, "executions", **execution("x-4", trigger_id=url, skills_status='{"status": "on"}'))
    sql(source, "ALTER TABLE executions ADD COLUMN odd")
    for key, told in (("x-5", 7), ("x-6", "12"), ("x-7", '"quoted"')):
        put(source, "executions", **execution(key, odd=told))
    change(source, "workflow_runs", FAILED, repo="other/weather")
    store.maintenance.imports.run(source)
    three, four = (store.workflows.executions.get(name) for name in ("x-3", "x-4"))
    assert (three.owner, three.repo, three.details) == ("acme", "weather", {"extension_status": "{torn"})
    assert (four.owner, four.repo, four.trigger_id) == (None, None, url)
    assert four.details == {"skills_status": {"status": "on"}}
    odd = [store.workflows.executions.get(name).details for name in ("x-5", "x-6", "x-7")]
    assert odd == [{"odd": 7}, {"odd": "12"}, {"odd": '"quoted"'}]
    run = store.workflows.runs.get(FAILED)
    assert (run.owner, run.repo) == ("acme", "weather")


@pytest.mark.parametrize(
    ("table", "key", "spoilt", "named"),
    [
        ("workflow_runs", OPEN, {"scratch": "{torn"}, "scratch: is not JSON"),
        ("workflow_runs", OPEN, {"phase_history": "{}"}, "phase_history: expected list, got dict"),
        ("workflow_runs", OPEN, {"context": '{"a": NaN}'}, "context: is not JSON"),
        ("workflow_runs", OPEN, {"status": "dancing"}, "status: expected a known word"),
        ("workflow_runs", OPEN, {"started_at": "yesterday"}, "started_at: expected a day and a time"),
        ("workflow_runs", OPEN, {"repo": "https://h/o/r"}, "repo: must be a repository name"),
        ("executions", "x-2", {"success": 7}, "success: must be 0 or 1"),
        ("executions", "x-2", {"cost_usd": float("inf")}, "cost_usd: expected a finite number"),
        ("executions", "x-2", {"error": "x" * 20_000}, "error: 20000 bytes"),
        ("workflow_approvals", "gate-1", {"created_at": ""}, "created_at: expected a day and a time"),
    ],
)
def test_what_cannot_be_stored_fails_its_run_alone(
    sqlite_database: Database, source: Path, table: str, key: str, spoilt: dict[str, Any], named: str
) -> None:
    """maintenance OP-35, OP-38, OP-82, case 29, case 33: nothing of the run is stored; mended, it is imported whole."""
    store, names = sqlite_database.open(), ", ".join(spoilt)
    change(source, table, key, **spoilt)
    done = store.maintenance.imports.run(source)
    assert (done.units["failed"], done.failures[0].unit) == (1, f"workflow_runs/{OPEN}")
    assert f"{table} {key}.{named}" in done.failures[0].reason
    assert [one.id for one in store.workflows.runs.list()] == [FAILED]
    assert [one.id for one in store.workflows.executions.list()] == ["x-1"]
    mended: dict[str, Any] = {
        "scratch": None,
        "context": None,
        "phase_history": [],
        "status": "running",
        "success": None,
    }
    change(source, table, key, **{names: mended.get(names, AT if names.endswith("_at") else None)})
    assert store.maintenance.imports.run(source).units["imported"] == 1
    assert store.workflows.approvals.get("gate-1").run_id == OPEN


_CRON_RUNS = """
    CREATE TABLE cron_runs (
        id TEXT PRIMARY KEY, cron_name TEXT NOT NULL, workflow TEXT, handler TEXT, source TEXT NOT NULL, actor TEXT,
        started_at TEXT NOT NULL, finished_at TEXT, status TEXT NOT NULL DEFAULT 'running', repos_eligible INTEGER,
        repos_scanned INTEGER, discovered INTEGER, dispatched INTEGER, failures INTEGER, error TEXT
    )
"""


def test_the_ledger_of_crons_becomes_fires(store: Any, source: Path) -> None:
    """maintenance OP-82, schedules A-1: one that was running is abandoned; what was pruned here stays away."""
    sql(source, _CRON_RUNS)
    began = "2020-01-01T00:00:00.000Z"
    fired = {"cron_name": "nightly", "source": "schedule", "started_at": began}
    counts = {"repos_eligible": 9, "repos_scanned": 7, "discovered": 3, "dispatched": 0, "failures": 1}
    put(source, "cron_runs", id="f-1", **fired, workflow="wf", status="partial", finished_at=AFTER, **counts)
    by_hand = {**fired, "source": "manual", "actor": "ana", "status": "failed", "finished_at": AFTER}
    put(source, "cron_runs", id="f-2", **by_hand, handler="digest", error="revoked")
    put(source, "cron_runs", id="f-3", **fired, status="running")
    done = store.maintenance.imports.run(source)
    assert (done.rows["cron_fires"], done.noticed["fire_abandoned"], done.failures) == (3, 1, ())
    first, second, third = (store.schedules.fires.get(f"f-{n}") for n in (1, 2, 3))
    assert (first.target_kind, first.target, first.status, first.actor) == ("workflow", "wf", "partial", None)
    assert (first.eligible, first.scanned, first.discovered, first.dispatched, first.failures) == (9, 7, 3, 0, 1)
    assert (first.started_at, first.finished_at) == (parse_time(began), parse_time(AFTER))
    assert (second.target_kind, second.target, second.source, second.actor) == ("handler", "digest", "manual", "ana")
    assert second.error["message"] == "revoked"
    assert (third.status, third.target_kind, third.finished_at) == ("abandoned", None, None)
    pruned = store.maintenance.prune.run(PrunePolicy("fires", keep_days=0)).counts["cron_fires"]
    change(source, "cron_runs", "f-3", status="ok", finished_at=AFTER)
    again = store.maintenance.imports.run(source)
    assert (pruned, again.rows, again.noticed, again.failures) == (2, {}, {"row_kept": 1}, ())


def test_a_run_that_went_on_is_continued(database: Database, source: Path) -> None:
    """maintenance OP-36, OP-82: what ended is ended here too, what is new is added, and the rest stays."""
    store = database.open()
    imports = store.maintenance.imports
    ended: list[WorkflowRun] = []
    imports.run(source)
    before = counts(database)
    assert (imports.run(source).rows, difference(before, counts(database)).keys() - {"maintenance_receipts"}) == (
        {},
        set(),
    )
    store.workflows.on_terminal(ended.append)
    done = {"finished_at": AFTER, "success": 1, "output_text": "done"}
    change(source, "executions", "x-2", **done)
    put(source, "executions", **execution("x-3", workflow_run_id=OPEN))
    change(source, "workflow_approvals", "gate-1", status="approved", responded_by="bo", responded_at=AFTER)
    run = {"status": "failed", "context": {"error": "gave up"}, "finished_at": AFTER, "updated_at": AFTER}
    change(source, "workflow_runs", OPEN, **run, scratch={"n": 2}, current_phase="reviewer")
    plan = imports.plan(source)
    assert (plan.units["grown"], plan.rows, plan.noticed) == (1, {"executions": 1}, {})
    assert imports.run(source).rows == plan.rows
    found = store.workflows.runs.get(OPEN)
    assert (found.status, found.error, found.scratch, found.current_phase) == (
        "failed",
        "gave up",
        {"n": 2},
        "reviewer",
    )
    assert (found.finished_at, found.transition_seq, [one.id for one in ended]) == (parse_time(AFTER), 1, [OPEN])
    assert store.workflows.executions.find_output("x-2") == "done"
    assert store.workflows.approvals.get("gate-1").status == "approved"
    assert imports.run(source).units.keys() == {"unchanged"}


@pytest.mark.parametrize("status", ["paused", "queued"])
def test_a_run_that_waits_there_waits_here(sqlite_database: Database, source: Path, status: str) -> None:
    """maintenance OP-36, OP-82: and goes on when it goes on there."""
    store = sqlite_database.open()
    change(source, "workflow_runs", OPEN, status=status)
    store.maintenance.imports.run(source)
    for then, at in (("running", "01"), (status, "02")):
        change(source, "workflow_runs", OPEN, status=then, updated_at=f"2026-07-{at}T00:00:00.000Z")
        store.maintenance.imports.run(source)
        assert store.workflows.runs.get(OPEN).status == then


def test_a_run_has_the_error_of_its_context_once_it_has_failed(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-82: until then it is what went wrong on the way."""
    store = sqlite_database.open()
    change(source, "workflow_runs", OPEN, context={"error": "on the way"})
    store.maintenance.imports.run(source)
    assert store.workflows.runs.get(OPEN).error is None


def test_a_run_that_was_claimed_here_is_not_changed_by_its_source(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36, OP-82: it goes on here."""
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    sqlite_database.clock.set(parse_time(AFTER))
    store.workflows.claims.take(OPEN, owner="w")
    change(source, "workflow_runs", OPEN, current_phase="reviewer", updated_at="2999-01-01T00:00:00.000Z")
    assert store.maintenance.imports.run(source).noticed == {"row_kept": 1}
    assert store.workflows.runs.get(OPEN).current_phase != "reviewer"


def test_what_went_on_here_is_kept(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-82: a run that was ended here stays so; what its source adds to it is added."""
    store.maintenance.imports.run(source)
    store.workflows.runs.finish(OPEN, "cancelled")
    change(source, "workflow_runs", OPEN, status="succeeded", updated_at=AFTER)
    put(source, "executions", **execution("x-3", workflow_run_id=OPEN))
    done = store.maintenance.imports.run(source)
    assert (done.units["grown"], done.rows) == (1, {"executions": 1})
    assert done.noticed == {"row_kept": 3}
    assert store.workflows.runs.get(OPEN).status == "cancelled"


def test_a_row_that_contradicts_what_is_stored_is_refused(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36, OP-82: and so is a run that was not imported."""
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    change(source, "executions", "x-1", skill="other")
    failed = store.maintenance.imports.run(source).failures
    assert [(one.unit, one.code) for one in failed] == [(f"workflow_runs/{FAILED}", "already_exists")]
    assert "executions 'x-1' is stored already with another skill" in failed[0].reason


def test_rows_of_runs_that_are_gone_and_of_none_are_units_of_their_own(store: Any, source: Path) -> None:
    """maintenance OP-82: a message without its session is named and not stored."""
    put(source, "executions", **execution("x-8", workflow_run_id="gone"))
    put(source, "executions", **execution("x-9", skill="chat", finished_at=LATER, success=1))
    put(source, "messaging_messages", session_id="gone", role="user", content="?", timestamp=AT)
    done = store.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"failed": 1, "imported": 7}, {"run_missing": 1})
    assert done.failures[0].unit == "messaging_messages/gone"
    assert store.workflows.executions.get("x-8").run_id == "gone"
    assert store.workflows.executions.get("x-9").outcome == "succeeded"
    assert store.maintenance.imports.run(source).units == {"failed": 1, "unchanged": 7}


def test_an_override_follows_the_newer_side_and_a_deleted_one_stays_away(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-82, M-121: also one that was set again there, until it is asked for."""
    store.maintenance.imports.run(source)
    store.schedules.overrides.clear("nightly")
    change(source, "workflow_overrides", "release", enabled=1, updated_at=AFTER)
    assert store.maintenance.imports.run(source).units == {"grown": 1, "pruned": 1, "unchanged": 3}
    assert store.workflows.overrides.is_enabled("release")
    assert store.schedules.overrides.find("nightly") is None
    change(source, "workflow_overrides", "release", enabled=0)
    assert store.maintenance.imports.run(source).noticed == {"row_kept": 1}
    change(source, "cron_overrides", "nightly", enabled=1, updated_at=AFTER)
    assert store.maintenance.imports.run(source).rows == {}
    assert store.maintenance.imports.run(source, revive=["cron_overrides/nightly"]).rows == {"cron_overrides": 1}
    assert store.schedules.overrides.find("nightly").enabled


KEY = ConversationKey("slack", "C07", "U1", "T1")


def test_a_chat_is_continued_and_its_messages_keep_their_numbers_where_they_are_free(
    database: Database, source: Path
) -> None:
    """maintenance OP-36, OP-82: others get the next ones, in the same order."""
    store = database.open()
    store.maintenance.imports.run(source)
    assert [one.id for one in store.messaging.messages.history(CHAT)] == [1]
    other = store.messaging.sessions.resume(ConversationKey("test", "place", "ana")).session
    taken = store.messaging.messages.append(other.id, role="user", content="mine").message.id
    for number, text in ((taken, "second"), (taken + 1, "third")):
        put(source, "messaging_messages", id=number, session_id=CHAT, role="user", content=text, timestamp=LATER)
    change(source, "messaging_sessions", CHAT, last_activity_at=AFTER, message_count=3)
    done = store.maintenance.imports.run(source)
    assert (done.units["grown"], done.rows) == (1, {"messaging_messages": 2})
    assert [one.content for one in store.messaging.messages.history(CHAT)] == ["Why twice? ✓", "second", "third"]
    session = store.messaging.sessions.get(CHAT)
    assert store.messaging.sessions.get(other.id).message_count == 1
    assert (session.message_count, session.last_activity_at, session.active) == (3, parse_time(AFTER), True)
    store.messaging.messages.append(CHAT, role="assistant", content="said here")
    row = {"session_id": CHAT, "role": "user", "content": "said there", "timestamp": AFTER}
    put(source, "messaging_messages", id=90, **row)
    assert [one.code for one in store.maintenance.imports.run(source).failures] == ["stale_version"]


def test_of_active_chats_in_one_place_one_stays_active(store: Any, source: Path) -> None:
    """maintenance OP-82: the one that is active here, or else the last of the source."""
    row = {"platform": "slack", "channel_id": "C", "user_id": "U", "created_at": AT, "active": 1}
    for key, at in (("former", AT), ("latter", LATER)):  # the former is imported first
        put(source, "messaging_sessions", id=key, last_activity_at=at, **row)
    here = store.messaging.sessions.resume(KEY).session
    done = store.maintenance.imports.run(source)
    assert done.noticed == {"active_retired": 2}
    found = {name: store.messaging.sessions.get(name) for name in ("former", "latter", CHAT)}
    assert {name: one.active for name, one in found.items()} == {"former": False, "latter": True, CHAT: False}
    assert found["former"].deactivated_reason == "duplicate"
    put(source, "messaging_messages", id=70, session_id=CHAT, role="user", content="more", timestamp=LATER)
    done = store.maintenance.imports.run(source)
    assert (done.units["grown"], done.noticed) == (1, {}), "it was retired before"
    assert store.messaging.sessions.get(here.id).active


@pytest.mark.parametrize("other", [{"platform": "web"}, {"channel_id": "C"}, {"user_id": "U"}, {"thread_id": None}])
def test_a_chat_in_another_place_ends_none_that_is_imported(
    sqlite_database: Database, source: Path, other: dict[str, Any]
) -> None:
    """maintenance OP-82."""
    store = sqlite_database.open()
    store.messaging.sessions.resume(replace(KEY, **other))
    assert store.maintenance.imports.run(source).noticed == {}
    assert store.messaging.sessions.get(CHAT).active


def test_a_chat_that_ended_there_is_not_ended_again_by_one_that_is_active_here(store: Any, source: Path) -> None:
    """maintenance OP-82."""
    change(source, "messaging_sessions", CHAT, active=0)
    here = store.messaging.sessions.resume(KEY).session
    assert store.maintenance.imports.run(source).noticed == {}
    assert store.messaging.sessions.get(CHAT).deactivated_reason is None
    assert store.messaging.sessions.get(here.id).active


def test_messages_that_come_later_stand_behind_those_that_are_stored(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-82: also where their own numbers are free, and smaller than those given here."""
    other = store.messaging.sessions.resume(ConversationKey("test", "place", "ana")).session
    taken = store.messaging.messages.append(other.id, role="user", content="mine").message.id
    sql(source, "UPDATE messaging_messages SET id = ?", [taken])
    for number, key in ((taken + 90, "high"), (taken + 91, "also")):
        row = {"platform": "slack", "channel_id": key, "user_id": "U", "created_at": "2020-01-01T00:00:00.000Z"}
        put(source, "messaging_sessions", id=key, last_activity_at=AT, active=1, **row)
        put(source, "messaging_messages", id=number, session_id=key, role="user", content=key, timestamp=AT)
    store.maintenance.imports.run(source)
    assert store.messaging.messages.history(CHAT)[0].id > taken + 91
    row = {"session_id": CHAT, "role": "user", "content": "second", "timestamp": LATER}
    put(source, "messaging_messages", id=taken + 5, **row)
    assert store.maintenance.imports.run(source).rows == {"messaging_messages": 1}
    assert [one.content for one in store.messaging.messages.history(CHAT)] == ["Why twice? ✓", "second"]
    assert [one.content for one in store.messaging.messages.history("also")] == ["also"]


def test_a_chat_that_was_closed_here_ends_none_that_is_imported(store: Any, source: Path) -> None:
    """maintenance OP-82."""
    store.messaging.sessions.close(store.messaging.sessions.resume(KEY).session.id)
    assert store.maintenance.imports.run(source).noticed == {}
    assert store.messaging.sessions.get(CHAT).active


def test_other_databases_are_not_of_that_system(store: Any, sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-35, OP-82: neither ours, nor one with a table of that name, nor a file that is none."""
    sqlite_database.open()
    (tmp_path / "text").write_text("SQLite format")
    sql(tmp_path / "other.db", "CREATE TABLE executions (id TEXT, skill TEXT)")
    for path in (Path(sqlite_database.url.removeprefix("sqlite:///")), tmp_path / "text", tmp_path / "other.db"):
        with pytest.raises(Conflict, match="lastlight-db: a SQLite file with the tables executions"):
            store.maintenance.imports.detect(path)
    with pytest.raises(Conflict, match="has not the tables executions"):
        store.maintenance.imports.plan(Path(sqlite_database.url.removeprefix("sqlite:///")), kind="lastlight-db")


def test_the_command_imports_the_database(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-82, OP-73."""
    said = lastlight_state("import", source, "--dry-run", "--url", sqlite_database.url, "--json")
    assert (said.code, said.data["kind"], said.data["units"]) == (0, "lastlight-db", {"imported": 5})


def test_a_run_with_a_time_finer_than_ours_follows_its_source(postgres_database: Database, source: Path) -> None:
    """maintenance M-99: another program wrote it here."""
    store = postgres_database.open()
    store.maintenance.imports.run(source)
    postgres_database.raw().execute("UPDATE workflow_runs SET updated_at = updated_at + interval '7 microseconds'")
    change(source, "workflow_runs", OPEN, current_phase="next", updated_at=AFTER)
    assert store.maintenance.imports.run(source).units["grown"] == 1
    assert store.workflows.runs.get(OPEN).current_phase == "next"
