"""Logs of agents that go with the records that name them, after both were archived."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shutil import rmtree

import pytest
from support.between import before
from support.maintenance import killed_with_logs
from support.maintenance.old_logs import LINE, RAW_NAME, age, old_log, project, put_old, there
from support.maintenance.rows import insert
from support.preloaded import run_program

from lastlight_state import StateStore
from lastlight_state.conversations import NewSession
from lastlight_state.db.lists import filters
from lastlight_state.errors import BackendUnavailable, InvalidValue
from lastlight_state.files.agent_log import Slug, repair
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune.archived_logs import ArchivedLogs
from lastlight_state.messaging import ConversationKey
from lastlight_state.testing import Database
from lastlight_state.workflows import ExecutionOptions, RunOptions, Trigger

DAY = 86_400
FILES = {"line_files": 3, "line_bytes": 2 * len(LINE) + 13}
PROGRAM = Path(killed_with_logs.__file__)


@pytest.fixture
def policy(tmp_path: Path) -> PrunePolicy:
    """All runs that ended 30 days ago, with their logs."""
    (tmp_path / "archive").mkdir()
    return PrunePolicy("runs", keep_n=0, archive=tmp_path / "archive", with_logs="yes")


def test_a_log_goes_after_its_run_and_comes_back_from_the_bundle(database: Database, policy: PrunePolicy) -> None:
    """maintenance OP-29, OP-30: with its folder; plan and receipt count the same."""
    store = _with_old_runs(database, {"run": "s-1"})
    (project(store) / "s-1/raw/.x.tmp").write_bytes(b"half")
    age(project(store) / "s-1/raw/.x.tmp")
    was = there(store)
    plan = store.maintenance.prune.plan(policy)
    assert there(store) == was
    receipt = store.maintenance.prune.run(policy)
    assert (receipt.counts, there(store)) == (plan.counts, {})
    assert receipt.counts.items() >= FILES.items()
    assert not (project(store) / "s-1").exists()
    (file,) = Path(str(policy.archive)).iterdir()
    store.maintenance.bundles.load(file)
    assert there(store) == {name: data for name, data in was.items() if not name.endswith(".tmp")}
    assert store.maintenance.prune.run(replace(policy, keep_days=60)).counts == {}


def test_a_log_goes_after_its_conversation(database: Database, policy: PrunePolicy) -> None:
    """maintenance OP-30."""
    store = database.open()
    store.conversations.sessions.create(NewSession("talk", "n", agent_session_id="s-1"))
    old_log(store, "s-1")
    put_old(project(store) / "s-1/raw/short.txt", b"1")
    database.clock.advance(seconds=31 * DAY)
    talks = replace(policy, kind="sessions")
    plan = store.maintenance.prune.plan(talks)
    receipt = store.maintenance.prune.run(talks)
    assert (receipt.counts, there(store)) == (plan.counts, {})
    files = {"line_files": FILES["line_files"] + 1, "line_bytes": FILES["line_bytes"] + 1}
    assert receipt.counts.items() >= {"sessions": 1, **files}.items()


def test_a_log_that_is_archived_stays_unless_it_is_to_go(database: Database, policy: PrunePolicy) -> None:
    """maintenance OP-29, OP-30: its run goes alone, and the bundle has the log, too."""
    store = _with_old_runs(database, {"run": "s-1"})
    was = there(store)
    receipt = store.maintenance.prune.run(replace(policy, with_logs="no"))
    assert (receipt.counts["workflow_runs"], "line_files" in receipt.counts, there(store)) == (1, False, was)


def _execution(store: StateStore) -> None:
    store.workflows.executions.start("s", session_id="s-1", trigger=Trigger("t", "chat"))


def _talk(store: StateStore) -> None:
    store.conversations.sessions.create(NewSession("talk", "n", agent_session_id="s-1"))


def _chat(store: StateStore) -> None:
    session = store.messaging.sessions.resume(ConversationKey("slack", "u", "c")).session
    store.messaging.sessions.ensure_agent_session(session.id, "s-1")


@pytest.mark.parametrize("name", [_execution, _talk, _chat])
def test_a_log_that_another_record_names_stays(
    database: Database, policy: PrunePolicy, name: Callable[[StateStore], None]
) -> None:
    """maintenance OP-30: an execution, a conversation, or a chat."""
    store = _with_old_runs(database, {"run": "s-1"})
    name(store)
    was = there(store)
    plan = store.maintenance.prune.plan(policy)
    receipt = store.maintenance.prune.run(policy)
    assert (receipt.counts, there(store)) == (plan.counts, was)
    assert (receipt.counts["workflow_runs"], "line_files" in receipt.counts) == (1, False)


def test_a_log_that_is_named_after_the_removal_of_its_record_stays(
    database: Database, policy: PrunePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-30: an agent's session goes on with another execution."""
    store = _with_old_runs(database, {"run": "s-1"})
    was = there(store)
    happened = before(monkeypatch, ArchivedLogs, "free", lambda: _execution(store))
    receipt = store.maintenance.prune.run(policy)
    assert (happened, receipt.counts["workflow_runs"], there(store)) == (["free"], 1, was)


def test_a_log_is_not_counted_that_somebody_else_removed_who_needs_its_name(
    database: Database, policy: PrunePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-30."""
    store = _with_old_runs(database, {"run": "s-1"})

    def began_anew() -> None:
        _execution(store)
        rmtree(project(store))

    before(monkeypatch, ArchivedLogs, "free", began_anew)
    assert "line_files" not in store.maintenance.prune.run(policy).counts


def test_a_log_that_several_runs_share_goes_with_the_last_of_them(database: Database, policy: PrunePolicy) -> None:
    """maintenance OP-29, OP-30: it is in both bundles, and counted once."""
    store = _with_old_runs(database, {"one": "s-1", "two": "s-1"})
    single = replace(policy, batch_rows=1)
    plan = store.maintenance.prune.plan(single)
    receipt = store.maintenance.prune.run(single)
    assert (receipt.counts, there(store)) == (plan.counts, {})
    assert receipt.counts.items() >= FILES.items()


def test_logs_are_counted_once_however_many_there_are(
    database: Database, policy: PrunePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-29, OP-30: also where one statement does not name all of them."""
    monkeypatch.setattr(filters, "_KEYS", 1)
    store = _with_old_runs(database, {"one": "s-1", "two": "s-2"})
    plan, receipt = store.maintenance.prune.plan(policy), store.maintenance.prune.run(policy)
    assert (receipt.counts, receipt.counts["line_files"], there(store)) == (plan.counts, 6, {})


@pytest.mark.parametrize("odd", ["young", "of the cutoff", "foreign", "nested", "empty", "torn", "link"])
def test_a_log_with_a_file_that_must_not_be_lost_stays_whole(database: Database, policy: PrunePolicy, odd: str) -> None:
    """maintenance OP-30: changed since the cutoff, in no bundle, with a torn end, or a link."""
    store = _with_old_runs(database, {"run": "s-1", "other": "s-2"})
    folder = project(store) / "s-1"
    if odd == "young":
        age(folder / RAW_NAME, 2 * DAY)
    elif odd == "of the cutoff":
        age(folder / RAW_NAME, DAY)
    elif odd == "foreign":
        put_old(folder / "notes/own.txt", b"mine")
    elif odd == "nested":
        put_old(folder / "raw/notes/own.txt", b"mine")
    elif odd == "empty":
        put_old(folder / "raw/own.txt", b"")
    elif odd == "torn":
        put_old(project(store) / "s-1.jsonl", LINE + b'{"type"')
    else:
        (folder / "raw/link").symlink_to(project(store) / "s-2.jsonl")
    was = {name: data for name, data in there(store).items() if name.startswith("s-1") and not name.endswith("link")}
    plan = store.maintenance.prune.plan(policy)
    receipt = store.maintenance.prune.run(policy)
    assert (receipt.counts, there(store)) == (plan.counts, was)
    assert receipt.counts.items() >= FILES.items()


@pytest.mark.parametrize("kind", ["runs", "sessions"])
def test_a_record_that_names_no_log_stands_in_no_others_way(database: Database, policy: PrunePolicy, kind: str) -> None:
    """maintenance OP-29, OP-30: executions without a session, and conversations that no agent has."""
    store = _with_old_runs(database, {"run": "s-1"} if kind == "runs" else {})
    at = database.clock.now() - timedelta(days=31)
    if kind == "runs":
        row = {"trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": at, "finished_at": at}
        insert(database.raw(), "executions", {"id": "silent", "workflow_run_id": "run", **row})
    else:
        old_log(store, "s-1")
        for name, agent in (("talk", "s-1"), ("silent", None)):
            store.conversations.sessions.create(NewSession(name, "n", agent_session_id=agent))
        database.clock.advance(seconds=31 * DAY)
    given = replace(policy, kind=kind)
    plan = store.maintenance.prune.plan(given)
    assert plan.counts.items() >= FILES.items()
    assert (store.maintenance.prune.run(given).counts, there(store)) == (plan.counts, {})


def test_a_line_that_is_appended_before_the_log_goes_keeps_it(
    database: Database, policy: PrunePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-30: also where the file looks as old as before."""
    store = _with_old_runs(database, {"run": "s-1"})

    def append() -> None:
        with store.agent_log.writer.open(session_id="s-1", place=Slug("-app")) as writer:
            writer.append([{"type": "user", "late": True}])
        age(project(store) / "s-1.jsonl")

    happened = before(monkeypatch, repair, "remove", append)
    receipt = store.maintenance.prune.run(policy)
    assert (happened, receipt.state, "line_files" in receipt.counts) == (["remove"], "done", False)
    assert b'"late":true' in there(store)["s-1.jsonl"]


@pytest.mark.parametrize("place", ["archived", "committed", "half"])
def test_a_prune_with_logs_that_is_killed_goes_on_as_if_nothing_had_happened(
    fresh_database: Database, policy: PrunePolicy, place: str
) -> None:
    """maintenance OP-30, OP-31: before the rows went, after them, and amid the files of a log."""
    store = _with_old_runs(fresh_database, {"run": "s-1"})
    plan, was = store.maintenance.prune.plan(policy), there(store)
    given = fresh_database.url, store.settings.state_dir, fresh_database.clock.now().isoformat(), place, policy.archive
    died = run_program([sys.executable, PROGRAM, *map(str, given)], capture_output=True, check=False)
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")
    [killed] = store.receipts.list()
    assert len(store.workflows.runs.list()) == (place == "archived")
    assert (len(there(store)), len(was)) == (1 if place == "half" else 3, 3)
    fresh_database.clock.advance(seconds=660)
    receipt = store.maintenance.prune.resume(killed.id)
    assert (receipt.state, receipt.counts, there(store)) == ("done", plan.counts, {})
    assert len(list(Path(str(policy.archive)).iterdir())) == 1


def test_logs_without_an_archive_or_where_no_logs_are_are_refused(database: Database, policy: PrunePolicy) -> None:
    """maintenance OP-25, OP-30: before there is a receipt."""
    store = _with_old_runs(database, {"run": "s-1"})
    prune = store.maintenance.prune
    for wrong in (replace(policy, archive=None), replace(policy, with_logs="maybe")):  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match="with_logs"):
            prune.run(wrong)
    rmtree(store.settings.agent_sessions)
    with pytest.raises(InvalidValue, match="on this machine"):
        prune.run(policy)
    assert store.receipts.list().items == ()


def test_logs_that_may_not_be_looked_at_are_no_error_of_the_operating_system(
    database: Database, policy: PrunePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-30: and not said to be on another machine."""
    store, looked = _with_old_runs(database, {"run": "s-1"}), Path.stat

    def closed(path: Path, **how: bool) -> os.stat_result:
        if path == store.settings.agent_sessions:
            raise PermissionError(errno.EACCES, "Permission denied")
        return looked(path, **how)

    monkeypatch.setattr(Path, "stat", closed)
    with pytest.raises(BackendUnavailable, match="agent-sessions: Permission denied"):
        store.maintenance.prune.run(policy)


def test_a_prune_with_logs_goes_on_only_where_the_logs_are(
    database: Database, policy: PrunePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-30: a machine that has the database alone takes nothing over."""
    store = _with_old_runs(database, {"run": "s-1"})
    before(monkeypatch, repair, "remove", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.maintenance.prune.run(policy)
    [receipt] = store.receipts.list()
    folder = store.settings.agent_sessions
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(InvalidValue, match="with_logs"):
        store.maintenance.prune.resume(receipt.id)
    assert store.receipts.get(receipt.id).state == "interrupted"
    folder.with_name("elsewhere").rename(folder)
    assert store.maintenance.prune.resume(receipt.id).counts["line_files"] == 3
    assert there(store) == {}


def _interrupted() -> None:
    raise KeyboardInterrupt


def _with_old_runs(database: Database, sessions: dict[str, str]) -> StateStore:
    """Runs that ended a month ago, each with an execution that names this agent's session."""
    store = database.open(migrate=True)
    for run_id, session_id in sessions.items():
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=run_id))
        options = ExecutionOptions(id=f"{run_id}-ex")
        store.workflows.executions.start("wf:p", run_id=run_id, session_id=session_id, options=options)
        store.workflows.executions.finish(f"{run_id}-ex", "succeeded")
        store.workflows.runs.finish(run_id, "succeeded")
        old_log(store, session_id)
    database.clock.advance(seconds=31 * DAY)
    return store
