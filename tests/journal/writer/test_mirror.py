from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.workflows.steps import started

from lastlight_state import StateStore
from lastlight_state.errors import BackendUnavailable, InvalidValue, UnsafePath
from lastlight_state.journal import Event, LineFileMirror, NewEvent

LINE = {"run_id", "seq", "type", "payload", "occurred_at", "node_id", "event_id"}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def seqs(path: Path) -> list[int]:
    return [line["seq"] for line in lines(path)]


def test_stored_events_are_lines_of_their_runs_file(every_backend: StateStore, tmp_path: Path) -> None:
    """journal W-11, W-18: in order, with their numbers; direct appends come before those that follow them."""
    ids = [started(every_backend).id for _ in range(2)]
    events = every_backend.journal.events
    events.append(ids[0], "direct")
    mirror = LineFileMirror(events, tmp_path / "log" / "runs")
    with every_backend.journal.writer(mirrors=[mirror]) as writer:
        for i in range(10):
            writer.append(ids[i % 2], "queued", {"i": i}, node_id="build", event_id=f"k{i}")
            if i == 5:
                writer.flush()
        writer.append(ids[0], "queued", {"i": 8}, node_id="build", event_id="k8")
    for run_id in ids:
        found = lines(mirror.path_of(run_id))
        stored = list(events.list(run_id))
        assert [line["seq"] for line in found] == [event.seq for event in stored] == list(range(len(stored)))
        assert [line["payload"] for line in found] == [event.payload for event in stored]
        assert {frozenset(line) for line in found} == {frozenset(LINE)}
    assert (mirror.path_of(ids[0]).stat().st_mode & 0o777, mirror.directory.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_file_is_caught_up_with_wherever_it_ends(every_backend: StateStore, run_id: str, tmp_path: Path) -> None:
    """journal W-18: whole pages, a torn last line, and nothing to do."""
    events = every_backend.journal.events
    mirror = LineFileMirror(events, tmp_path / "log")
    assert mirror.catch_up(run_id) == mirror.catch_up("nobody") == 0
    assert not mirror.directory.exists()
    events.append_many(run_id, [NewEvent("a")] * 600)
    assert mirror.catch_up(run_id) == 600
    path = mirror.path_of(run_id)
    assert seqs(path) == list(range(600))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)
    assert (mirror.catch_up(run_id), mirror.catch_up(run_id)) == (1, 0)
    torn, last = path.read_text().splitlines()[-2:]
    assert (json.loads(last)["seq"], torn) == (599, last[: len(torn)])
    mirror([events.get(run_id, 5)])
    assert len(path.read_text().splitlines()) == 601


def test_a_file_that_cannot_be_read_gets_no_line_twice(
    state_store: StateStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """journal W-18: where it ends is not known, so nothing is appended."""
    run_id = started(state_store).id
    state_store.journal.events.append_many(run_id, [NewEvent("a")] * 3)
    mirror = LineFileMirror(state_store.journal.events, tmp_path / "log")
    assert mirror.catch_up(run_id) == 3
    state_store.journal.events.append(run_id, "b")
    opened = os.open

    def unreadable(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if str(path).endswith(".jsonl") and not flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, flags, *args, **options)

    with monkeypatch.context() as denied:
        denied.setattr(os, "open", unreadable)
        with pytest.raises(BackendUnavailable, match="Permission denied"):
            mirror.catch_up(run_id)
    assert seqs(mirror.path_of(run_id)) == [0, 1, 2]
    assert mirror.catch_up(run_id) == 1
    assert seqs(mirror.path_of(run_id)) == [0, 1, 2, 3]


@pytest.mark.logs("further failures of it are only counted")
def test_a_mirror_that_fails_undoes_and_stops_nothing(
    every_backend: StateStore, run_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """journal W-11: it is counted, logged once, and the others get their events."""
    got: list[Event] = []
    events = every_backend.journal.events
    (tmp_path / "a file").touch()
    unwritable = LineFileMirror(events, tmp_path / "a file")
    with every_backend.journal.writer(mirrors=[unwritable, got.extend]) as writer:
        for number in (1, 2):
            writer.append(run_id, "a")
            writer.flush()
            assert writer.stats().mirror_failures == number
        assert "a file" in str(writer.stats().last_mirror_error)
    assert [event.seq for event in got] == [0, 1]
    assert events.count(run_id) == 2
    assert len([record for record in caplog.records if "mirror" in record.message]) == 1


def test_a_run_whose_id_is_no_file_name_harms_no_other(every_backend: StateStore, tmp_path: Path) -> None:
    """journal W-18, W-11."""
    good, bad = started(every_backend).id, started(every_backend, id="../elsewhere").id
    mirror = LineFileMirror(every_backend.journal.events, tmp_path / "log")
    with every_backend.journal.writer(mirrors=[mirror]) as writer:
        writer.append(bad, "a")
        writer.append(good, "a")
        writer.flush()
        assert writer.stats().mirror_failures == 1
    assert [path.name for path in (tmp_path / "log").iterdir()] == [f"{good}.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix) == []
    for name in ("../x", ".hidden", "x" * 250):
        with pytest.raises(UnsafePath):
            mirror.catch_up(name)


def test_what_is_no_log_file_of_the_run_is_left_alone(state_store: StateStore, tmp_path: Path) -> None:
    """journal W-18: other lines, a link, a FIFO."""
    run_id = started(state_store).id
    state_store.journal.events.append(run_id, "a")
    mirror = LineFileMirror(state_store.journal.events, tmp_path)
    path = mirror.path_of(run_id)
    foreign: list[dict[str, Any]] = [{"seq": 3, "run_id": "another"}, {"run_id": run_id}, {"seq": 3}]
    for line in (*foreign, {"seq": "3", "run_id": run_id}, {"seq": True, "run_id": run_id}):
        path.write_text(json.dumps(line) + "\n")
        with pytest.raises(InvalidValue):
            mirror.catch_up(run_id)
        assert lines(path) == [line]
    path.write_bytes(b"")
    assert mirror.catch_up(run_id) == 1
    path.unlink()
    target = tmp_path / "target"
    target.touch()
    path.symlink_to(target)
    with pytest.raises(UnsafePath):
        mirror.catch_up(run_id)
    assert target.read_bytes() == b""
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Exception, match="expected a regular file, found"):
        mirror.catch_up(run_id)
    for bad in (None, state_store.journal):
        with pytest.raises(InvalidValue):
            LineFileMirror(bad, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue):
        LineFileMirror(state_store.journal.events, 7)  # type: ignore[arg-type]
