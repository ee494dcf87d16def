"""Repairs through the store: which files, where copies go, and what is refused."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.maintenance.threads import logged
from support.run_log.logs import id_of, start

from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.errors import AlreadyExists, BackendUnavailable, Conflict, InvalidValue, NotFound, UnsafePath
from lastlight_state.files.jsonl import repair as line_repair
from lastlight_state.files.run_log import RunLog
from lastlight_state.maintenance import Repair
from lastlight_state.receipts import Receipts
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock


def damaged(path: Path) -> bytes:
    """Tear the file's last line and glue another one to it; what it holds then."""
    data = path.read_bytes()
    path.write_bytes(data + data[:50] + data + b"\0\0\n" + data[:20])
    return path.read_bytes()


def test_a_damaged_log_is_scanned_and_copied_clean(store: Any, state_dir: Path) -> None:
    """agent-log L-111; maintenance OP-65, OP-66."""
    path = logged(state_dir, "s-1", "hi")
    data = damaged(path)
    [scan] = store.maintenance.repair.scan()
    assert (scan.path, scan.size, scan.sound) == (path, len(data), False)
    assert sum(scan.section_bytes.values()) == len(data)
    done = store.maintenance.repair.salvage(path)
    assert done.copy_path == path.with_name("s-1.repaired.jsonl")
    assert done.rejects == path.with_name("s-1.repaired.jsonl.rejects")
    assert path.read_bytes() == data
    assert [found.file.id for found in store.maintenance.agent_sessions.list()] == ["s-1"]


def test_a_replaced_log_keeps_its_damage_under_a_name_with_the_time(
    every_backend: Any, state_dir: Path, frozen_clock: FrozenClock
) -> None:
    """agent-log L-112."""
    path = logged(state_dir, "s-1", "hi")
    data = damaged(path)
    done = every_backend.maintenance.repair.salvage(path, replace=True)
    assert done.damaged.name == f"s-1.jsonl.damaged-{frozen_clock.now():%Y%m%dT%H%M%S}.789Z"
    assert done.damaged.read_bytes() == data
    assert done.copy_path == path
    receipt = every_backend.receipts.get(done.receipt_id)
    assert (receipt.kind, receipt.scope, receipt.state) == ("repair", "s-1.jsonl", "done")
    assert (receipt.policy, receipt.counts) == ({"path": str(path)}, done.scan.sections)
    assert receipt.cursor == {"damaged": done.damaged.name, "rejects": f"{done.damaged.name}.rejects"}
    assert every_backend.agent_log.repair.check("s-1").issue_count == 0
    sound = every_backend.maintenance.repair.salvage(path, replace=True)
    assert (sound.copy_path, sound.receipt_id) == (None, None)
    assert len(every_backend.agent_log.sessions.list()) == 1


def test_a_file_whose_name_is_not_utf_8_is_replaced_with_a_receipt(store: Any, state_dir: Path) -> None:
    """maintenance OP-66: the receipt spells the name as it can."""
    path = logged(state_dir, "s-1", "hi")
    odd = path.rename(path.with_name(os.fsdecode(b"r\xe9.jsonl")))
    damaged(odd)
    done = store.maintenance.repair.salvage(odd, replace=True)
    assert store.receipts.get(done.receipt_id).scope == "r?.jsonl"


def test_a_replacement_is_told_even_if_its_receipt_cannot_be_finished(
    state_store: StateStore, state_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """maintenance OP-66: what was done to the file is not hidden by what the database says."""
    path = logged(state_dir, "s-1", "hi")
    damaged(path)

    def refused(*given: Any, **named: Any) -> Any:
        raise BackendUnavailable("gone")

    monkeypatch.setattr(Receipts, "step", refused)
    done = state_store.maintenance.repair.salvage(path, replace=True)
    assert (done.copy_path, done.damaged.exists() if done.damaged else None) == (path, True)
    assert state_store.receipts.get(str(done.receipt_id)).state == "running"
    assert "could not be finished" in caplog.text


def test_a_replacement_that_fails_leaves_the_file_and_says_so(
    sqlite_database: Database, frozen_clock: FrozenClock
) -> None:
    """maintenance OP-7, OP-66: a store that may only read replaces without a receipt."""
    store = sqlite_database.open()
    path = logged(store.settings.state_dir, "s-1", "hi")
    data = damaged(path)
    taken = path.with_name(f"s-1.jsonl.damaged-{frozen_clock.now():%Y%m%dT%H%M%S}.789Z")
    taken.write_bytes(b"theirs")
    with pytest.raises(AlreadyExists):
        store.maintenance.repair.salvage(path, replace=True)
    [left] = store.receipts.list(kind="repair").items
    assert (left.state, path.read_bytes(), taken.read_bytes()) == ("interrupted", data, b"theirs")
    taken.unlink()
    with sqlite_database.open(read_only=True) as reading:
        assert reading.maintenance.repair.salvage(path, replace=True).receipt_id is None


@pytest.mark.parametrize("way", ["link", "dots", "unknown"])
def test_a_log_whose_writer_may_live_is_not_replaced(
    repair: Repair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """maintenance OP-66, case 84: by whatever path, and where nobody can tell whether it lives."""
    with start(RunLog.open(tmp_path), id_of(1)) as writer:
        damaged(writer.path)
        day = writer.path.parent
        (tmp_path / "link").symlink_to(day)
        folder = {"link": tmp_path / "link", "dots": day / ".." / day.name}.get(way, day)
        if way == "unknown":
            monkeypatch.setattr(fcntl, "flock", unsupported)
        with pytest.raises(Conflict, match="living writer") as refused:
            repair.salvage(folder / writer.path.name, replace=True)
        monkeypatch.undo()
        assert refused.value.code == "run_open"
        assert [path.name for path in day.iterdir()] == [writer.path.name]
    assert repair.salvage(folder / writer.path.name, replace=True).copy_path == writer.path


@pytest.mark.parametrize("way", ["link", "relative"])
def test_a_log_whose_writer_lives_is_sealed_by_its_writer(
    repair: Repair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """maintenance OP-66; run-log RL-95: nobody waits for the lock that the writer keeps until it is closed."""
    with start(RunLog.open(tmp_path), id_of(1)) as writer:
        writer.context(50)
        day = writer.path.parent
        (tmp_path / "link").symlink_to(day)
        monkeypatch.chdir(day if way == "relative" else tmp_path)
        path = Path("link" if way == "link" else ".", writer.path.name)
        data = damaged(writer.path)
        assert repair.seal(path) is False
        assert path.read_bytes() == data
        writer.context(40)
        whole = path.read_bytes()
        assert (whole[: len(data) + 2], whole[-1:]) == (data + b"\n{", b"\n")
        path.write_bytes(whole + b"{")
    assert (repair.seal(path), repair.seal(path)) == (True, False)
    assert path.read_bytes() == whole + b"{\n"


def unsupported(*_: Any) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.fixture
def repair(tmp_path: Path) -> Repair:
    """Repairs of the logs below a directory, without any database."""
    return Repair([tmp_path / "agent-sessions", tmp_path / "sessions"], SYSTEM_CLOCK)


def test_a_tree_is_scanned_in_order_without_copies_links_and_temporary_files(repair: Repair, tmp_path: Path) -> None:
    """maintenance OP-65."""
    first = logged(tmp_path, "b", "hi", cwd="/a")
    second = logged(tmp_path, "a", "hi", cwd="/b")
    agent = first.with_name("agent-1.jsonl")
    agent.write_bytes(first.read_bytes())
    first.with_name("link.jsonl").symlink_to(first)
    for name in ("b.repaired.jsonl", ".b.jsonl.tmp", "b.jsonl.damaged-x", ".hidden.jsonl"):
        first.with_name(name).write_bytes(b"x")
    found = repair.scan(tmp_path)
    assert [scan.path for scan in found] == [agent, first, second]
    assert all(scan.sound for scan in found)
    assert repair.scan(first) == (found[1],)


def test_an_odd_file_is_told_and_passed(repair: Repair, tmp_path: Path) -> None:
    """maintenance OP-65, agent-log L-15: a FIFO, a socket; a link to a device and a directory are no line files."""
    sound = logged(tmp_path, "s-1", "hi")
    folder = sound.parent
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "device.jsonl").symlink_to("/dev/zero")
    (folder / "directory.jsonl").mkdir()
    with socket.socket(socket.AF_UNIX) as place, contextlib.chdir(folder):  # a socket's path is short
        place.bind("socket.jsonl")
    found = {scan.path.name: scan.problem for scan in repair.scan(tmp_path)}
    assert found == {
        "pipe.jsonl": "expected a regular file, found a FIFO",
        "s-1.jsonl": None,
        "socket.jsonl": "expected a regular file, found a socket",
    }


def test_a_file_that_cannot_be_read_is_told_and_passed(
    repair: Repair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-65: but for the only one that is asked for."""
    bad, sound = logged(tmp_path, "a", "hi"), logged(tmp_path, "b", "hi")
    scan = line_repair.scan

    def on_a_bad_disk(path: Path, accepts: Any) -> Any:
        if path == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scan(path, accepts)

    monkeypatch.setattr(line_repair, "scan", on_a_bad_disk)
    found = {scan.path: scan.problem for scan in repair.scan(tmp_path)}
    assert found[sound] is None
    assert os.strerror(errno.EIO) in str(found[bad])
    with pytest.raises(BackendUnavailable):
        repair.scan(bad)


def test_a_folder_that_cannot_be_read_is_told_and_passed(
    repair: Repair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-65: what is in it may be damaged."""
    sound, locked, scandir = logged(tmp_path, "a", "hi"), tmp_path / "locked", os.scandir
    locked.mkdir()

    def refusing(path: Any) -> Any:
        if Path(path) == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = {scan.path: scan.problem for scan in repair.scan(tmp_path)}
    assert found == {sound: None, locked: os.strerror(errno.EACCES)}


def test_a_file_that_becomes_a_link_is_told_and_passed(
    repair: Repair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-65: after it was found, and before it is opened."""
    first, second = logged(tmp_path, "a", "hi"), logged(tmp_path, "b", "hi")

    def swapped() -> None:
        first.unlink()
        first.symlink_to(second)

    happened = before(monkeypatch, line_repair, "scan", swapped)
    found = {scan.path: scan.problem for scan in repair.scan(tmp_path)}
    assert (happened, list(found), found[second]) == (["scan"], [first, second], None)
    assert "a symbolic link" in str(found[first])


def test_the_first_parts_of_a_very_damaged_file_are_told(repair: Repair, tmp_path: Path) -> None:
    """maintenance OP-65."""
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"x\n" * 3_000)
    [scan] = repair.scan(path)
    assert (scan.sections, scan.section_bytes) == ({"bad_json": 3_000}, {"bad_json": 6_000})
    assert [(part.offset, part.length, part.kind) for part in scan.samples[:2]] == [
        (0, 2, "bad_json"),
        (2, 2, "bad_json"),
    ]
    assert len(scan.samples) == 20


def test_what_cannot_be_repaired_is_refused_and_left_alone(repair: Repair, tmp_path: Path) -> None:
    """maintenance OP-66, OP-74."""
    path = logged(tmp_path, "s-1", "hi")
    data = damaged(path)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    for call in (repair.scan, repair.seal, repair.salvage):
        with pytest.raises(NotFound):
            call(tmp_path / "unknown.jsonl")
        with pytest.raises(UnsafePath):
            call(link)
    with pytest.raises(NotFound):
        repair.seal(tmp_path)
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UnsafePath):
        repair.seal(tmp_path / "gone.jsonl")
    with pytest.raises(InvalidValue):
        repair.salvage(path, to=tmp_path / "x", replace=True)
    with pytest.raises(AlreadyExists):
        repair.salvage(path, to=path)
    with pytest.raises(BackendUnavailable):
        repair.salvage(path, to=path / "below" / "x")
    assert path.read_bytes() == data
    assert link.is_symlink()


def test_a_copy_goes_where_it_is_told_to(repair: Repair, tmp_path: Path) -> None:
    """maintenance OP-66: in directories of its own."""
    path = logged(tmp_path, "s-1", "hi")
    damaged(path)
    done = repair.salvage(path, to=tmp_path / "new" / "place" / "clean")
    assert done.copy_path == tmp_path / "new" / "place" / "clean"
    assert repair.scan(done.copy_path)[0].sound
    assert repair.seal(path) is True
    assert repair.seal(str(path)) is False
