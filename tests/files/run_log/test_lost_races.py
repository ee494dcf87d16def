"""Somebody changes files after a call has looked and before it writes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.run_log.logs import (
    NOW,
    OTHER_RUN,
    OTHER_SESSION,
    RUN,
    SESSION,
    event,
    files_below,
    head,
    id_of,
    kinds,
    line,
    put,
    read,
    run_log,
    start,
)

from lastlight_state.errors import AlreadyExists, BackendBusy, NotFound, StaleVersion
from lastlight_state.files.jsonl import repair
from lastlight_state.files.jsonl.writer import LineWriter
from lastlight_state.files.run_log import RunLog, SessionState, paths, storage, tree
from lastlight_state.files.run_log.replay import Replay
from lastlight_state.files.run_log.runs import heads


def _state(number: int) -> SessionState:
    return SessionState(session_id=SESSION, messages=(), invoke_seq=number)


def test_a_run_that_another_has_started_meanwhile_is_not_started_again(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-22: rules._link_new is exclusive, and nothing is left behind."""
    with start(log) as first:
        path, data = first.path, first.path.read_bytes()
    path.unlink()
    happened = before(monkeypatch, os, "link", lambda: path.write_bytes(data))
    with pytest.raises(AlreadyExists):
        start(log)
    assert happened
    assert path.read_bytes() == data
    assert [name for name in files_below(path.parent) if name != path.name] == []


def test_without_links_a_run_that_another_has_started_meanwhile_is_not_overwritten(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-22: storage.write_new."""
    with start(log) as first:
        path, data = first.path, first.path.read_bytes()
    path.unlink()

    def link(*given: Any, **named: Any) -> None:
        path.write_bytes(data)
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(AlreadyExists):
        start(log)
    assert path.read_bytes() == data


def test_a_snapshot_put_while_another_waited_for_the_lock_is_compared_with(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-71: files.replace and files.remove run under the lock, which is taken before the look."""
    log.states.put(_state(1))
    happened = before(monkeypatch, storage, "acquire", lambda: log.states.put(_state(5)))
    with pytest.raises(StaleVersion):
        log.states.put(_state(2))
    assert happened
    assert log.states.get(SESSION).invoke_seq == 5


def test_an_update_changes_what_was_put_while_it_waited(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-73: files.replace."""
    log.states.put(_state(1))
    happened = before(monkeypatch, storage, "acquire", lambda: log.states.put(_state(5)))
    changed = log.states.update(SESSION, lambda stored: stored.model_copy(update={"meta": {"seen": stored.invoke_seq}}))
    assert happened
    assert (changed.invoke_seq, changed.meta) == (5, {"seen": 5})


def test_a_damaged_snapshot_that_was_mended_meanwhile_is_not_set_aside(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-71: files.set_aside follows a look under the lock."""
    log.states.put(_state(1))
    path = log.root / "sessions" / "state" / f"{SESSION}.json"
    whole = path.read_bytes()
    path.write_bytes(b"{")
    happened = before(monkeypatch, storage, "acquire", lambda: path.write_bytes(whole))
    log.states.put(_state(2), force=True)
    assert happened
    assert files_below(path.parent) == [path.name]


def test_a_lock_file_that_was_removed_before_it_was_locked_is_no_lock(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-22: storage.acquire looks whether the path still names the file."""
    path = log.root / "one.lock"
    happened = before(monkeypatch, fcntl, "flock", path.unlink)
    with storage.acquire(path, 1):
        assert happened
        assert path.exists()
        assert storage.try_acquire(path) is None
    assert not path.exists()


def test_releasing_removes_no_lock_file_of_anothers(log: RunLog) -> None:
    """run-log RL-22: LockFile.release."""
    path = log.root / "one.lock"
    mine = storage.acquire(path, 1)
    path.unlink()
    with storage.acquire(path, 1):
        mine.release()
        mine.release()  # does nothing
        assert storage.liveness(path) == "held"


def test_a_run_whose_header_another_is_about_to_write_is_not_started(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-22."""
    monkeypatch.setattr(storage, "_LOOKING", 0)
    with (
        storage.acquire(log.root / "sessions" / ".locks" / RUN, 1),
        pytest.raises(AlreadyExists, match="being written"),
    ):
        start(log)
    assert files_below(log.root) == []


def test_a_forked_child_keeps_no_lock_of_its_parents(log: RunLog) -> None:
    """run-log RL-22: LockFile.after_fork; a worker that lives on would keep the run locked when its parent is gone."""
    lock = storage.acquire(log.root / "one.lock", 1)
    held = lock._descriptor
    lock.after_fork()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


def test_a_run_reopened_after_another_wrote_counts_on(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-21: RunLog.reopen reads under the run's lock."""
    start(log).close()

    def write() -> None:
        with log.runs.reopen(RUN) as other:
            other.event({"type": "text"})

    happened = before(monkeypatch, storage, "try_acquire", write)
    with log.runs.reopen(RUN) as writer:
        assert writer.event({"type": "text"}) == 1
    assert happened
    assert len(read(log)[0]) == 3


def _ended(log: RunLog) -> None:
    with start(log) as writer:
        writer.end("completed")


def _late(log: RunLog, ts: datetime) -> None:
    with log.runs.reopen(RUN) as writer:
        writer.tool_output("bash", tool_call_id="c", result_raw="late", ts=ts)


def test_a_record_that_came_late_before_the_lock_is_packed_too(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-82: Upkeep._pack reads under the run's lock."""
    _ended(log)
    happened = before(monkeypatch, storage, "try_acquire", lambda: _late(log, NOW))
    assert log.runs.pack(RUN)
    assert happened
    assert kinds(read(log)[0])[-2:] == ["run.end", "tool.output"]


def test_a_run_that_another_packed_meanwhile_is_not_packed_again(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-82: Upkeep._pack."""
    _ended(log)
    happened = before(monkeypatch, storage, "try_acquire", lambda: log.runs.pack(RUN))
    assert not log.runs.pack(RUN)
    assert happened
    assert kinds(read(log)[0])[-1] == "run.end"


def test_a_run_to_which_a_record_came_late_is_not_removed(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-82: Upkeep.remove looks again under the run's lock."""
    _ended(log)
    limit = NOW + timedelta(seconds=1)
    happened = before(monkeypatch, storage, "try_acquire", lambda: _late(log, limit))
    done = log.runs.prune(ended_before=limit, dry_run=False)
    assert happened
    assert (done.run_ids, done.skipped) == ((), 1)
    assert kinds(read(log)[0])[-1] == "tool.output"


@with_each("was_listed", [False, True])
@with_each(("is_link", "skipped"), [(False, 0), (True, 2)])
def test_runs_that_go_while_they_are_listed_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_listed: bool, is_link: bool, skipped: int
) -> None:
    """run-log RL-62: one that is gone is passed over, and one that cannot be opened any more is counted."""
    log = run_log(tmp_path)
    days = {RUN: "2026/02/03", OTHER_RUN: "2026/02/03", id_of(1): "2026/02/02"}
    asked = {"type": "text", "text": "go"}
    paths = [put(log, [head(run), line("run.start", run, input=asked)], run, day) for run, day in days.items()][:2]
    if was_listed:
        log.runs.list()

    def go() -> None:
        for path in paths:
            path.unlink()
            if is_link:
                path.symlink_to(path.name)

    happened = before(monkeypatch, heads, "open_run", go)
    page = log.runs.list()
    assert happened
    assert ([entry.run_id for entry in page], page.skipped) == ([id_of(1)], skipped)


def test_a_run_that_goes_while_a_history_is_made_has_no_events_in_it(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-42: those of the others are there."""
    older, newer = (
        put(log, [head(run, session_id=SESSION), event(0, run_id=run)], run, day)
        for run, day in ((RUN, "2026/02/02"), (OTHER_RUN, "2026/02/03"))
    )
    happened = before(monkeypatch, Replay, "_run_reading", older.unlink)
    history = log.replay.history(SESSION)
    assert happened
    assert newer.exists()
    assert [found.run_id for found in history.events] == [OTHER_RUN]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_run_is_looked_for_behind_a_day_that_goes_meanwhile(
    log: RunLog, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    """run-log RL-05: also where a file takes the place of its directory."""
    newer, older = (put(log, [head()], day=day) for day in ("2026/02/04", "2026/02/03"))

    def go() -> None:
        shutil.rmtree(newer.parent)
        if is_replaced:
            newer.parent.touch()

    happened = before(monkeypatch, tree, "_inode", go)
    assert log.runs.path(RUN) == older
    assert happened


def test_a_log_that_goes_before_it_is_copied_is_not_found(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-51."""
    happened = before(monkeypatch, repair, "salvage", put(log, b"?\n").unlink)
    with pytest.raises(NotFound):
        log.checks.salvage(RUN, to=tmp_path / "copy")
    assert happened


def test_a_snapshot_that_goes_while_snapshots_are_listed_is_left_out(
    log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-75."""
    log.states.put(_state(1))
    log.states.put(SessionState(session_id=OTHER_SESSION, messages=()))
    gone = log.root / "sessions" / "state" / f"{SESSION}.json"
    happened = before(monkeypatch, paths, "session_of", gone.unlink)
    assert [entry.session_id for entry in log.states.list()] == [OTHER_SESSION]
    assert happened


@pytest.mark.parametrize("name", ["put", "update", "clear"])
def test_a_snapshot_is_left_alone_while_another_holds_its_lock(tmp_path: Path, name: str) -> None:
    """run-log RL-71, RL-73, RL-76."""
    log = run_log(tmp_path, lock_timeout=0)
    log.states.put(_state(1))
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: log.states.put(_state(2)),
        "update": lambda: log.states.update(SESSION, lambda _: _state(2)),
        "clear": lambda: log.states.clear(SESSION),
    }
    with storage.acquire(log.root / "sessions" / "state" / ".locks" / SESSION, 1), pytest.raises(BackendBusy):
        calls[name]()
    assert log.states.get(SESSION).invoke_seq == 1


def test_a_log_to_which_another_program_appends_is_not_packed(tmp_path: Path) -> None:
    """run-log RL-82: one that takes the lock of appends and none of the run."""
    log = run_log(tmp_path, lock_timeout=0)
    _ended(log)
    path = log.runs.path(RUN)
    with LineWriter(path) as other, other.hold_lock(), pytest.raises(BackendBusy):
        log.runs.pack(RUN)
    assert files_below(log.root / "sessions" / "2026") == [f"02/03/{RUN}.jsonl"]
