"""Log files of agents and of runs that are pruned by their age."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.maintenance import killed_with_logs
from support.maintenance.old_logs import LINE, RAW_NAME, age, old_log, project, put_old, there
from support.maintenance.rows import insert
from support.preloaded import run_program
from support.run_log.logs import ending, head, header, id_of, put

from lastlight_state import StateStore
from lastlight_state.conversations import NewSession
from lastlight_state.errors import Conflict, InvalidValue, NotFound
from lastlight_state.files.agent_log import Slug, repair
from lastlight_state.files.run_log import RunLog
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune.files import AgentLogs
from lastlight_state.maintenance.prune.sweeping import TOGETHER
from lastlight_state.messaging import ConversationKey
from lastlight_state.testing import Database
from lastlight_state.workflows import ExecutionOptions, RunOptions, Trigger

DAY = 86_400
AGENTS = PrunePolicy("agent-logs", keep_n=0)
RUNS = PrunePolicy("run-logs", keep_n=0)
#: The files of `old_log`.
ONE = {"line_files": 3, "line_bytes": 2 * len(LINE) + 13}


def test_logs_that_did_not_change_for_long_go_with_their_folders(database: Database) -> None:
    """maintenance OP-29, OP-93, agent-log L-121: the plan writes nothing, and a second run removes nothing."""
    store = _with_logs(database, "s-1", "s-2")
    put_old(project(store) / "s-3" / RAW_NAME, b"of no log")
    age(project(store) / "s-3")
    put_old(project(store) / "memory/notes.md", b"no log")
    age(old_log(store, "young", folder=False), 2 * DAY)
    was = there(store)
    plan = store.maintenance.prune.plan(AGENTS)
    assert (there(store), store.receipts.list().items) == (was, ())
    assert plan.counts == {"line_files": 7, "line_bytes": 2 * ONE["line_bytes"] + 9}
    assert (plan.records, set(plan.victims)) == (3, {"s-1", "s-2", "s-3"})
    receipt = store.maintenance.prune.run(AGENTS)
    assert (receipt.state, receipt.counts) == ("done", plan.counts)
    assert set(there(store)) == {"memory/notes.md", "young.jsonl"}
    assert store.maintenance.prune.run(AGENTS).counts == {}


def test_the_newest_logs_stay_and_ids_narrow(database: Database) -> None:
    """maintenance OP-26."""
    store = _with_logs(database, "s-1", "s-2", "s-3")
    for number in range(3):
        age(project(store) / f"s-{number + 1}.jsonl", number)
    assert store.maintenance.prune.plan(replace(AGENTS, keep_n=2)).victims == ("s-1",)
    assert store.maintenance.prune.plan(replace(AGENTS, keep_n=3)).victims == ()
    assert store.maintenance.prune.plan(replace(AGENTS, keep_n=1, ids=["s-2", "s-3"])).victims == ("s-2",)
    assert store.maintenance.prune.run(replace(AGENTS, ids=["s-2"])).counts == ONE
    with pytest.raises(NotFound):
        store.maintenance.prune.plan(replace(AGENTS, ids=["s-2"]))


def _running(store: StateStore) -> None:
    store.workflows.executions.start("s", session_id="s-1", trigger=Trigger("t", "chat"))


def _finished(store: StateStore) -> None:
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    store.workflows.executions.start("s", run_id="run", session_id="s-1", options=ExecutionOptions(id="e"))
    store.workflows.executions.finish("e", "succeeded")


def _chat(store: StateStore) -> None:
    session = store.messaging.sessions.resume(ConversationKey("slack", "c", "u")).session
    store.messaging.sessions.ensure_agent_session(session.id, "s-1")


def _talk(store: StateStore) -> None:
    store.conversations.sessions.create(NewSession("talk", "n", status="running", agent_session_id="s-1"))


def _held(store: StateStore) -> None:
    store.conversations.sessions.create(NewSession("talk", "n", agent_session_id="s-1"))
    store.conversations.lifecycle.transition("talk", "completed")
    store.conversations.sessions.hold("talk", "asked")


USERS = {_running: "unfinished_execution", _finished: "live_run", _chat: "active_chat", _talk: "not_ended"}


@pytest.mark.parametrize(
    ("use", "reason"), {**USERS, _held: "held"}.items(), ids=lambda one: getattr(one, "__name__", "")
)
def test_a_log_that_somebody_needs_stays(database: Database, use: Callable[[StateStore], None], reason: str) -> None:
    """maintenance OP-93, agent-log L-121: whatever its age."""
    store = _with_logs(database, "s-1", "s-2")
    use(store)
    plan = store.maintenance.prune.plan(AGENTS)
    assert (plan.protected, plan.counts) == ({reason: 1}, ONE)
    assert store.maintenance.prune.run(AGENTS).counts == ONE
    assert set(there(store)) == {"s-1.jsonl", f"s-1/{RAW_NAME}", "s-1/subagents/agent-1.jsonl"}


@pytest.mark.parametrize("end", [{"success": 1}, {"finished": 1}], ids=["success", "finished"])
def test_a_log_goes_whose_execution_has_ended_however_that_is_told(database: Database, end: dict[str, int]) -> None:
    """maintenance OP-93: another program may write one of both, its success or when it finished."""
    store, at = _with_logs(database, "s-1"), database.clock.now()
    row = {"id": "e", "session_id": "s-1", "trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": at}
    ended = {"success": "1" if "success" in end else None, "finished_at": at if "finished" in end else None}
    insert(database.raw(), "executions", {**row, **ended})
    assert store.maintenance.prune.run(AGENTS).counts == ONE


def test_a_link_to_a_folder_is_no_log(database: Database) -> None:
    """maintenance OP-93: nor one that stays because it has changed."""
    store = _with_logs(database, "s-1")
    (project(store) / "link").symlink_to(project(store) / "s-1")
    os.utime(project(store) / "link", (0, 0), follow_symlinks=False)
    plan = store.maintenance.prune.plan(AGENTS)
    assert (plan.protected, plan.victims) == ({}, ("s-1",))


@pytest.mark.parametrize("odd", ["young", "of the cutoff", "link"])
def test_a_log_with_a_young_file_or_a_link_in_its_folder_stays(database: Database, odd: str) -> None:
    """maintenance OP-93, agent-log L-121: log and folder go together."""
    store = _with_logs(database, "s-1")
    folder = project(store) / "s-1"
    if odd == "link":
        (folder / "raw/link").symlink_to(folder)
    else:
        age(folder / RAW_NAME, 2 * DAY if odd == "young" else DAY)
    plan = store.maintenance.prune.plan(AGENTS)
    assert (plan.protected, plan.counts, store.maintenance.prune.run(AGENTS).counts) == ({"changed": 1}, {}, {})
    assert len(there(store)) == 3


def test_a_log_that_is_named_or_written_before_it_goes_stays(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-93, agent-log L-121: after the receipt named it."""
    store = _with_logs(database, "s-1", "s-2")

    def act() -> None:
        _running(store)
        with store.agent_log.writer.open(session_id="s-2", place=Slug("-app")) as writer:
            writer.append([{"type": "user"}])

    real, calls = AgentLogs.size, []

    def size(self: AgentLogs, key: str, cutoff: Any) -> Any:
        found = real(self, key, cutoff)
        calls.append(key)
        if len(calls) == 2:
            act()
        return found

    monkeypatch.setattr(AgentLogs, "size", size)
    assert (store.maintenance.prune.run(AGENTS).counts, len(calls)) == ({}, 2)
    assert {"s-1.jsonl", "s-2.jsonl"} < set(there(store))


@pytest.mark.parametrize("call", ["removable_files", "remove"])
def test_logs_whose_project_becomes_a_link_stay(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """maintenance OP-93: nothing is removed through it, and the prune ends."""
    store = _with_logs(database, "s-1")
    before_that, elsewhere = there(store), tmp_path / "elsewhere"

    def swapped() -> None:
        project(store).rename(elsewhere)
        project(store).symlink_to(elsewhere)

    happened = before(monkeypatch, repair, call, swapped)
    done = store.maintenance.prune.run(AGENTS)
    assert (happened, done.state, done.counts, len(before_that)) == ([call], "done", {}, 3)
    assert sum(path.is_file() for path in elsewhere.rglob("*")) == 3


@pytest.mark.parametrize("after", [False, True])
def test_a_prune_of_logs_that_is_interrupted_goes_on_and_counts_all(
    database: Database, monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> None:
    """maintenance OP-31, OP-93, agent-log L-121: before the second log, or when it has just gone."""
    store = _with_logs(database, "s-1", "s-2", "s-3")
    plan = store.maintenance.prune.plan(AGENTS)
    real, calls = repair.remove, []

    def remove(log: Path, *given: Any, **named: Any) -> bool:
        calls.append(log)
        if after or len(calls) != 2:
            real(log, *given, **named)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(repair, "remove", remove)
    with pytest.raises(KeyboardInterrupt):
        store.maintenance.prune.run(AGENTS)
    monkeypatch.setattr(repair, "remove", real)
    [receipt] = store.receipts.list()
    assert (receipt.state, len(there(store))) == ("interrupted", 3 if after else 6)
    done = store.maintenance.prune.resume(receipt.id)
    assert (done.state, done.counts, there(store)) == ("done", plan.counts, {})


@pytest.mark.parametrize(("place", "left"), [("committed", 6), ("half", 4)])
def test_a_prune_of_logs_that_is_killed_is_taken_over_and_counts_all(
    fresh_database: Database, place: str, left: int
) -> None:
    """maintenance OP-31, OP-93, agent-log L-121: before the first log, or when its folder is gone."""
    store = _with_logs(fresh_database, "s-1", "s-2")
    plan = store.maintenance.prune.plan(AGENTS)
    given = fresh_database.url, store.settings.state_dir, fresh_database.clock.now().isoformat(), place
    program = [sys.executable, killed_with_logs.__file__, *map(str, given)]
    died = run_program(program, capture_output=True, check=False)
    assert (died.returncode, died.stderr, len(there(store))) == (-signal.SIGKILL, "", left)
    [killed] = store.receipts.list()
    fresh_database.clock.advance(seconds=660)
    done = store.maintenance.prune.resume(killed.id)
    assert (done.state, done.counts, there(store)) == ("done", plan.counts, {})


def test_a_machine_without_the_logs_removes_none_and_says_so(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """maintenance OP-25, OP-93, agent-log L-121: before there is a receipt; and it takes over no work on others."""
    store = database.open()
    for policy in (AGENTS, RUNS):
        with pytest.raises(InvalidValue, match="on this machine"):
            store.maintenance.prune.run(policy)
        with pytest.raises(InvalidValue, match="archive"):
            store.maintenance.prune.plan(replace(policy, archive=tmp_path))
    assert store.receipts.list().items == ()
    store = _with_logs(database, "s-1")
    before(monkeypatch, repair, "remove", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.maintenance.prune.run(AGENTS)
    [receipt] = store.receipts.list()
    (tmp_path / "agent-sessions").mkdir()
    elsewhere = database.open(state_dir=tmp_path)
    with pytest.raises(InvalidValue, match="the prune is of the logs in"):
        elsewhere.maintenance.prune.resume(receipt.id)
    assert store.maintenance.prune.resume(receipt.id).counts == ONE


def test_a_log_that_was_pruned_is_not_told_as_lost(database: Database) -> None:
    """maintenance OP-93, DOC-09, DOC-10: its execution and its conversation still name it."""
    store = database.open()
    options = ExecutionOptions(id="e")
    store.workflows.executions.start("s", session_id="s-1", trigger=Trigger("t", "chat"), options=options)
    store.workflows.executions.finish("e", "succeeded")
    store.conversations.sessions.create(NewSession("talk", "n", agent_session_id="s-1"))
    store.conversations.lifecycle.transition("talk", "completed")
    old_log(store, "s-1")
    database.clock.advance(seconds=31 * DAY)
    assert store.maintenance.prune.run(AGENTS).counts == ONE
    told = [one for one in store.maintenance.doctor.examine().findings if one.check in ("DOC-09", "DOC-10")]
    assert told == []


def test_two_prunes_of_logs_at_once_are_one_conflict(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-31, OP-7."""
    store, other = _with_logs(database, "s-1"), database.open()

    def second() -> None:
        with pytest.raises(Conflict) as caught:
            other.maintenance.prune.run(AGENTS)
        assert caught.value.code == "already_running"

    happened = before(monkeypatch, repair, "remove", second)
    assert (store.maintenance.prune.run(AGENTS).counts, happened) == (ONE, ["remove"])


def test_logs_of_runs_that_ended_long_ago_go(database: Database) -> None:
    """maintenance OP-29, OP-93, run-log RL-82: packed ones, too; open ones and those that are written stay."""
    store = database.open()
    log = store.run_log
    for number in range(3):
        _ended(log, id_of(number))
        database.clock.advance(seconds=1)
    log.runs.pack(id_of(1))
    log.runs.start(header(id_of(3), started_at=database.clock.now())).close()
    database.clock.advance(seconds=30 * DAY)
    assert store.maintenance.prune.plan(RUNS).protected == {}, "open since the cutoff, to the moment"
    database.clock.advance(seconds=DAY)
    _ended(log, id_of(4), started_at=database.clock.now())
    plan = store.maintenance.prune.plan(replace(RUNS, keep_n=3))
    assert (plan.victims, plan.protected) == ((id_of(0),), {"not_ended": 1})
    plan = store.maintenance.prune.plan(RUNS)
    size = sum(log.runs.path(id_of(number)).stat().st_size for number in range(3))
    assert (plan.counts, plan.records) == ({"line_files": 3, "line_bytes": size}, 3)
    receipt = store.maintenance.prune.run(RUNS)
    assert (receipt.state, receipt.counts) == ("done", plan.counts)
    assert {run.run_id for run in log.runs.list()} == {id_of(3), id_of(4)}
    assert store.maintenance.prune.run(RUNS).counts == {}


def test_the_log_of_a_run_whose_writer_lives_stays(database: Database) -> None:
    """maintenance OP-93, run-log RL-82: late records may still come."""
    store = database.open()
    with store.run_log.runs.start(header(id_of(0), started_at=database.clock.now())) as writer:
        writer.end("completed")
        database.clock.advance(seconds=31 * DAY)
        assert store.maintenance.prune.run(RUNS).counts == {}
    assert store.maintenance.prune.run(RUNS).counts["line_files"] == 1


def test_the_log_of_a_run_whose_end_tells_no_time_stays(database: Database) -> None:
    """maintenance OP-93: it is counted with those that have not ended."""
    store = database.open()
    for number, at in enumerate([None, "once", None]):
        end = {**ending(), "run_id": id_of(number)}
        put(store.run_log, [head(id_of(number)), {**end, "ts": at} if at else end], id_of(number))
    database.clock.advance(seconds=60 * DAY)
    plan = store.maintenance.prune.plan(RUNS)
    assert (plan.victims, plan.protected) == ((id_of(0), id_of(2)), {"not_ended": 1})


def _interrupted() -> None:
    raise KeyboardInterrupt


def _ended(log: RunLog, run_id: str, **fields: Any) -> None:
    with log.runs.start(header(run_id, **fields)) as writer:
        writer.end("completed")


def _with_logs(database: Database, *sessions: str) -> StateStore:
    """Logs that nobody has written to for a month."""
    store = database.open()
    for session_id in sessions:
        old_log(store, session_id)
    database.clock.advance(seconds=31 * DAY)
    return store


@pytest.mark.parametrize("name", [b"bad\xff", b"x" * 253])
def test_a_folder_whose_name_no_log_can_have_stays(name: bytes, database: Database) -> None:
    """maintenance OP-93: the logs beside it go."""
    store = _with_logs(database, "s-1")
    folder = project(store) / os.fsdecode(name)
    put_old(folder / RAW_NAME, b"of no log")
    age(folder)
    assert store.maintenance.prune.plan(AGENTS).counts == ONE
    assert store.maintenance.prune.run(AGENTS).counts == ONE
    assert os.listdir(project(store)) == [folder.name]  # noqa: PTH208 - a name, not a path


def test_many_logs_with_the_longest_names_fit_a_receipt(database: Database) -> None:
    """maintenance OP-93: JSON writes a control character as six."""
    store = database.open()
    folder = store.settings.agent_sessions / "projects" / ("\1" * 250)
    for number in range(TOGETHER + 1):
        put_old(folder / (chr(1) * 245 + f"{number:03}.jsonl"), LINE)
    database.clock.advance(seconds=31 * DAY)
    assert store.maintenance.prune.run(AGENTS).counts["line_files"] == TOGETHER + 1
