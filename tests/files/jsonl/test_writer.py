"""LineWriter: whole lines or recognisably torn ones, whoever writes, whatever fails."""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections import defaultdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.jsonl.lines import (
    KIND,
    SPAWN,
    append_large,
    append_many,
    append_until_killed,
    child,
    counted,
    opened,
    read,
    record,
)
from support.open_files import open_below
from support.preloaded import run_program

from lastlight_state.codec import dump_line
from lastlight_state.errors import (
    BackendBusy,
    BackendUnavailable,
    InvalidValue,
    PayloadTooLarge,
    StoreClosed,
    UnsafePath,
)
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.reader import LineReader
from lastlight_state.files.jsonl.writer import LineWriter, SyncWord

SOAK = pytest.mark.soak


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def one(n: int, **parts: Any) -> list[bytes]:
    return [dump_line(record(n, **parts))]


# ---- sealing -------------------------------------------------------------------------------------------------------


def test_a_file_torn_at_any_byte_of_its_last_record_loses_that_record_alone(path: Path) -> None:
    """agent-log L-2, L-22."""
    first, last = dump_line(record(0)), dump_line(record(1, text="é"))
    for kept in range(1, len(last) - 1):
        path.write_bytes(first + last[:kept])
        with LineWriter(path, sync="os") as writer:
            writer.append(one(2))
        seen = read(path)
        assert (seen.numbers, seen.reasons) == ([0, 2], ["torn"]), kept


def test_a_torn_tail_gets_exactly_one_newline_and_no_earlier_byte_changes(path: Path) -> None:
    """agent-log L-22."""
    path.write_bytes(b'{"a":1}\n{"b"')
    with LineWriter(path) as writer:
        writer.append(one(1))
        writer.append(one(2))
    assert path.read_bytes() == b'{"a":1}\n{"b"\n' + one(1)[0] + one(2)[0]


def test_a_whole_record_without_its_newline_is_one_record_before_and_after_the_next_append(path: Path) -> None:
    """agent-log L-22, L-36."""
    path.write_bytes(dump_line(record(0))[:-1])
    assert read(path).numbers == [0]
    with LineWriter(path) as writer:
        writer.append(one(1))
    seen = read(path)
    assert (seen.numbers, seen.issues) == ([0, 1], [])


def test_a_writer_seals_what_another_writer_left_torn_since(path: Path) -> None:
    """agent-log L-22, L-120: the last byte is read again when the size is not what this writer left."""
    with LineWriter(path) as writer:
        writer.append(one(0))
        with path.open("ab") as other:
            other.write(b'{"torn')
        writer.append(one(1))
    assert read(path).numbers == [0, 1]


def test_an_append_costs_one_lock_one_look_one_write_and_one_unlock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-21, L-120."""
    with LineWriter(path, sync="os") as writer:
        writer.append(one(0))
        locks = counted(monkeypatch, fcntl, "flock")
        others = counted(monkeypatch, os, "lstat", "write", "writev", "pread", "open", "fstat")
        writer.append([*one(1), *one(2), *one(3)])
    assert (locks, others) == (["flock"] * 2, ["lstat", "write"])
    assert read(path).numbers == [0, 1, 2, 3]


# ---- many writers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=SOAK)])
def test_six_processes_append_whole_lines_each_in_its_order(path: Path, count: int) -> None:
    """agent-log L-21, L-26."""
    writers = [child(append_many, path, str(seed), count, seed) for seed in range(6)]
    for process in writers:
        process.join(200)
        assert process.exitcode == 0
    seen = read(path)
    by_writer = defaultdict(list)
    for line in seen.lines:
        by_writer[line.value["writer"]].append(line.value["n"])
    assert by_writer == {str(seed): list(range(count)) for seed in range(6)}
    assert (seen.issues, seen.torn_tail) == ([], False)


@pytest.mark.parametrize("count", [12, pytest.param(500, marks=SOAK)])
def test_eight_processes_append_lines_of_70_kb_each_in_its_order(path: Path, count: int) -> None:
    """agent-log L-2, L-21, L-22: larger than what a pipe or a page of the cache takes at once."""
    writers = [child(append_large, path, str(name), count) for name in range(8)]
    for process in writers:
        process.join(200)
        assert process.exitcode == 0
    seen = read(path)
    by_writer = defaultdict(list)
    for line in seen.lines:
        by_writer[line.value["writer"]].append(line.value["n"])
    assert by_writer == {str(name): list(range(count)) for name in range(8)}
    assert min(len(line.raw) for line in seen.lines) >= 70_000
    assert (seen.issues, seen.torn_tail) == ([], False)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [4, pytest.param(200, marks=SOAK)])
def test_killed_writers_lose_nothing_that_was_returned_and_harm_nobody(path: Path, tmp_path: Path, rounds: int) -> None:
    """agent-log L-2, L-22, case 1: 2 MiB lines cut by kill -9 while others append."""
    steady = child(append_until_killed, path, tmp_path / "steady", "steady", 200)
    for number in range(rounds):
        acknowledged = tmp_path / f"big-{number}"
        killed = child(append_until_killed, path, acknowledged, acknowledged.name, 2 * 1024 * 1024)
        while not acknowledged.exists() or acknowledged.stat().st_size == 0:
            time.sleep(0.001)
        time.sleep(0.007 * (number % 7) + 0.001)
        killed.kill()
        killed.join()
    steady.kill()
    steady.join()
    with LineWriter(path) as writer:
        writer.append(one(0, writer="last"))
    promised = {
        (notes.name, int(n)) for notes in tmp_path.iterdir() if notes != path for n in notes.read_bytes().split()
    }
    with opened(path) as descriptor:
        reader = LineReader(descriptor, path, KIND)
        lines = [(line.value["writer"], line.value["n"], line.recovered) for line in reader.records()]
    assert promised <= {line[:2] for line in lines}
    assert len(lines) == len(set(lines))
    assert not any(recovered for _, _, recovered in lines)
    assert {issue.reason for issue in reader.issues} <= {"torn"}
    assert reader.issue_count <= rounds + 1
    assert not reader.torn_tail


def test_threads_share_one_writer(path: Path) -> None:
    """agent-log L-26."""
    with LineWriter(path, sync="os") as writer:

        def work(name: str) -> None:
            for n in range(100):
                writer.append(one(n, writer=name))

        threads = [threading.Thread(target=work, args=(str(i),)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = read(path)
    assert len(seen.lines) == 400
    assert not seen.issues


def test_parent_and_forked_child_write_whole_lines_through_one_inherited_writer(path: Path) -> None:
    """agent-log L-25, L-26: also when another thread held the writer at the moment of the fork."""
    script = """
import os, sys, threading, warnings
from pathlib import Path
from support.jsonl.lines import record
from lastlight_state.codec import dump_line
from lastlight_state.files.jsonl.writer import LineWriter
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside a thread, which is the case
writer = LineWriter(Path(sys.argv[1]), sync="os")
writer.append([dump_line(record(0, writer="before"))])
stop = threading.Event()
def busy():
    n = 0
    while not stop.is_set():
        writer.append([dump_line(record(n, writer="thread"))])
        n += 1
thread = threading.Thread(target=busy)
thread.start()
children = []
for name in "ab":
    pid = os.fork()
    if pid == 0:
        for n in range(50):
            writer.append([dump_line(record(n, writer=name, text="x" * 5000))])
        writer.close()
        os._exit(0)
    children.append(pid)
for n in range(50):
    writer.append([dump_line(record(n, writer="parent"))])
assert all(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 for pid in children)
stop.set()
thread.join()
writer.close()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run_program([sys.executable, "-c", script, str(path)], check=True, timeout=60, env=environment)
    seen = read(path)
    numbers = defaultdict(list)
    for line in seen.lines:
        numbers[line.value["writer"]].append(line.value["n"])
    assert all(numbers[name] == list(range(50)) for name in ("a", "b", "parent"))
    assert not seen.issues


# ---- the lock ------------------------------------------------------------------------------------------------------


def hold_and_stop(path: Path) -> None:
    """Take the lock and stop; when continued, let go."""
    descriptor = os.open(path, os.O_RDWR)
    files.acquire(descriptor, path, 1.0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.close(descriptor)


def test_a_stopped_holder_of_the_lock_makes_others_busy_and_nothing_is_written(path: Path) -> None:
    """agent-log L-23, case 11."""
    path.write_bytes(one(0)[0])
    holder = SPAWN.Process(target=hold_and_stop, args=(path,), daemon=True)
    holder.start()
    assert holder.pid is not None
    os.waitpid(holder.pid, os.WUNTRACED)
    with LineWriter(path, lock_timeout=0.2) as writer:
        with pytest.raises(BackendBusy, match=r"for more than 0\.2 s") as caught:
            writer.append(one(1))
        assert isinstance(caught.value.__cause__, BlockingIOError)
        assert read(path).numbers == [0]
        os.kill(holder.pid, signal.SIGCONT)
        holder.join(60)
        writer.append(one(2))
    assert read(path).numbers == [0, 2]


@with_each("deed", ["append", "seal", "held"])
def test_the_lock_is_free_after_each_call(tmp_path: Path, deed: str) -> None:
    """agent-log L-23: also while the writer keeps its file open."""
    path = tmp_path / "log.jsonl"
    with LineWriter(path) as writer:
        writer.append(one(0))
        if deed == "seal":
            writer.seal()
        if deed == "held":
            with writer.hold_lock():
                pass
        with path.open("rb") as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_that_comes_free_in_time_is_taken(path: Path) -> None:
    """agent-log L-23."""
    path.write_bytes(b"")
    descriptor = os.open(path, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    timer = threading.Timer(0.05, os.close, (descriptor,))
    timer.start()
    with LineWriter(path) as writer:
        writer.append(one(0))
    timer.join()
    assert read(path).numbers == [0]


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_locks")
def test_without_file_locks_lines_are_sealed_and_appended_and_it_is_said_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """agent-log L-23."""
    path.write_bytes(b'{"torn')
    with caplog.at_level(logging.WARNING), LineWriter(path) as writer:
        writer.append(one(0))
        writer.append(one(1))
    assert read(path).numbers == [0, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path.parent}: this file system has no locks (Operation not supported); lines are appended without one"
    ]


def test_a_lock_that_fails_otherwise_is_backend_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-24."""

    def fail(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with LineWriter(path, sync="os") as writer:
        monkeypatch.setattr(fcntl, "flock", fail)
        with pytest.raises(BackendUnavailable):
            writer.append(one(0))
        monkeypatch.undo()
        writer.append(one(1))
    assert read(path).numbers == [1]


# ---- failures ------------------------------------------------------------------------------------------------------


def fill_the_disk(path: Path, results: Connection) -> None:
    """Append under a limit on the file's size, which is met in the middle of a write; then without it."""
    with LineWriter(path, sync="os") as writer:
        writer.append(one(0))
        size = path.stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        try:
            writer.append(one(1, text="x" * 5_000))
        except BackendUnavailable as error:
            results.send((error.outcome, type(error.__cause__), path.stat().st_size - size))
        try:
            writer.append(one(2))
        except BackendUnavailable as error:
            results.send((error.outcome, type(error.__cause__), path.stat().st_size - size))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        writer.append(one(3))


def test_a_full_disk_in_the_middle_of_a_write_is_reported_and_sealed_when_space_is_back(path: Path) -> None:
    """agent-log L-24."""
    mine, theirs = SPAWN.Pipe(duplex=False)
    process = child(fill_the_disk, path, theirs)
    process.join(60)
    assert process.exitcode == 0
    assert (mine.recv(), mine.recv()) == (("unknown", OSError, 100), ("none", OSError, 100))
    seen = read(path)
    assert (seen.numbers, seen.reasons) == ([0, 3], ["torn"])


def test_a_path_that_cannot_be_opened_is_backend_unavailable_with_its_cause(tmp_path: Path) -> None:
    """agent-log L-24."""
    (tmp_path / "file").write_text("")
    with LineWriter(tmp_path / "file" / "log.jsonl") as writer, pytest.raises(BackendUnavailable) as caught:
        writer.append(one(0))
    assert isinstance(caught.value.__cause__, NotADirectoryError)
    assert caught.value.outcome == "none"


def test_a_symbolic_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    """agent-log L-15."""
    (tmp_path / "elsewhere").write_bytes(b"")
    path.symlink_to(tmp_path / "elsewhere")
    with LineWriter(path) as writer, pytest.raises(UnsafePath):
        writer.append(one(0))
    assert (tmp_path / "elsewhere").read_bytes() == b""


@with_each("bad", [b"", b"\n", b"{}", b"{}\n{}\n", b"{}\n\n", b"\n{}"])
def test_what_is_not_one_line_is_refused_before_anything_is_written(path: Path, bad: bytes) -> None:
    """agent-log L-21."""
    with LineWriter(path) as writer, pytest.raises(InvalidValue):
        writer.append([*one(0), bad])
    assert not path.exists()


def test_a_line_may_have_one_character(path: Path) -> None:
    """agent-log L-30."""
    with LineWriter(path) as writer:
        writer.append([b"1\n"])
        writer.append([b"2\n", b"3\n"])
    assert path.read_bytes() == b"1\n2\n3\n"


def test_a_line_above_the_limit_is_refused_before_anything_is_written(path: Path) -> None:
    """agent-log L-31."""
    with LineWriter(path, max_line_bytes=1_000) as writer:
        with pytest.raises(PayloadTooLarge) as caught:
            writer.append([*one(0), *one(1, text="x" * 1_000)])
        assert caught.value.limit == 1_000
        assert not path.exists()
        writer.append([b'"' + b"x" * 998 + b'"\n'])


# ---- the file behind the path --------------------------------------------------------------------------------------


def test_nothing_is_created_before_the_first_line(tmp_path: Path) -> None:
    """agent-log L-20, L-28."""
    with LineWriter(tmp_path / "a" / "b" / "log.jsonl") as writer:
        writer.append([])
        writer.sync()
    assert list(tmp_path.iterdir()) == []


def test_new_files_and_directories_are_private_and_existing_modes_stay(tmp_path: Path) -> None:
    """agent-log L-15, L-20."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    path = shared / "a" / "b" / "log.jsonl"
    with LineWriter(path) as writer:
        writer.append(one(0))
    modes = [entry.stat().st_mode & 0o777 for entry in (shared, shared / "a", shared / "a" / "b", path)]
    assert modes == [0o755, 0o700, 0o700, 0o600]
    path.chmod(0o640)
    with LineWriter(path) as writer:
        writer.append(one(1))
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_removed_file_is_made_anew(path: Path) -> None:
    """agent-log L-20, L-25."""
    with LineWriter(path) as writer:
        writer.append(one(0))
        path.unlink()
        writer.append(one(1))
    assert read(path).numbers == [1]


def test_a_removed_directory_is_made_anew(tmp_path: Path) -> None:
    """agent-log L-25."""
    path = tmp_path / "a" / "log.jsonl"
    with LineWriter(path) as writer:
        writer.append(one(0))
        path.unlink()
        path.parent.rmdir()
        writer.append(one(1))
    assert read(path).numbers == [1]


def test_a_writer_that_must_not_create_raises_for_a_missing_and_for_a_removed_file(path: Path) -> None:
    """agent-log L-20, L-25."""
    with LineWriter(path, on_removed="raise") as writer:
        with pytest.raises(BackendUnavailable):
            writer.append(one(0))
        path.touch()
        writer.append(one(1))
        path.unlink()
        with pytest.raises(BackendUnavailable) as caught:
            writer.append(one(2))
        assert isinstance(caught.value.__cause__, FileNotFoundError)
        assert not path.exists()


def test_lines_after_a_replacement_land_in_the_new_file(path: Path, tmp_path: Path) -> None:
    """agent-log L-25, L-112: the old file lives on under another name, and the new one may end torn."""
    damaged, clean = tmp_path / "damaged", tmp_path / "clean"
    with LineWriter(path, on_removed="raise") as writer:
        path.touch()
        writer.append(one(0))
        damaged.hardlink_to(path)
        clean.write_bytes(one(0)[0] + b'{"torn')
        clean.replace(path)
        writer.append(one(1))
    assert read(path).numbers == [0, 1]
    assert read(damaged).numbers == [0]


def test_a_file_of_another_device_is_another_file_whatever_its_number(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-25."""
    real, looks = os.lstat, 0

    def lstat(name: Any) -> os.stat_result:
        nonlocal looks
        looks += 1
        found = real(name)
        return os.stat_result([*found[:2], found.st_dev + (looks == 1), *found[3:]])

    opened = counted(monkeypatch, files, "opened_file")
    path.touch()
    with LineWriter(path) as writer:
        monkeypatch.setattr(os, "lstat", lstat)
        writer.append(one(0))
        monkeypatch.undo()
    assert (looks, len(opened)) == (2, 2)
    assert read(path).numbers == [0]


def test_a_path_that_never_stays_the_same_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-25: no endless loop where a file system has no stable identities."""
    other = path.with_name("other")
    other.touch()
    real = os.lstat
    with LineWriter(path) as writer:
        monkeypatch.setattr(os, "lstat", lambda _: real(other))
        with pytest.raises(BackendUnavailable):
            writer.append(one(0))
        monkeypatch.undo()
        writer.append(one(1))
    assert read(path).numbers == [1]


# ---- sync and close ------------------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was brought to disk: files and directories, in order."""
    return counted(monkeypatch, os, "fdatasync", "fsync")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("os", []),
        ("end", ["fsync", "fsync", "fdatasync", "fdatasync"]),
        ("record", ["fsync", "fsync", "fdatasync", "fdatasync", "fdatasync"]),
    ],
)
def test_exactly_the_promised_points_are_brought_to_disk(
    tmp_path: Path, synced: list[str], word: SyncWord, expected: list[str]
) -> None:
    """agent-log L-27: a new file with its directories; a plain line, an ending line, the close."""
    with LineWriter(tmp_path / "new" / "log.jsonl", sync=word) as writer:
        writer.append(one(0))
        writer.append(one(1), end=True)
    assert synced == expected


@pytest.mark.parametrize(
    ("sync", "data", "times"), [("os", b"{", 0), ("end", b"{", 1), ("record", b"{", 1), ("end", b"{}\n", 0)]
)
def test_a_sealed_end_is_brought_to_disk_unless_told_otherwise(
    path: Path, synced: list[str], sync: SyncWord, data: bytes, times: int
) -> None:
    """agent-log L-27."""
    path.write_bytes(data)
    with LineWriter(path, sync=sync) as writer:
        writer.seal()
        assert len(synced) == times


def test_sync_brings_the_file_to_disk_at_any_word(path: Path, synced: list[str]) -> None:
    """agent-log L-27."""
    with LineWriter(path, sync="os") as writer:
        writer.append(one(0))
        writer.sync()
        assert synced == ["fdatasync"]


def test_a_failed_sync_says_that_the_outcome_is_unknown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-27."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    writer = LineWriter(path, sync="record")
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(BackendUnavailable) as caught:
        writer.append(one(0))
    assert caught.value.outcome == "unknown"
    with pytest.raises(BackendUnavailable):
        writer.close()
    writer.close()
    assert read(path).numbers == [0]


def test_a_file_that_may_not_be_written_is_asked_about_each_time(path: Path) -> None:
    """agent-log L-20: and not left open."""
    asked: list[int] = []

    def refuse(descriptor: int) -> None:
        asked.append(descriptor)
        raise InvalidValue("file", "is not ours")

    writer = LineWriter(path, check=refuse)
    for _ in range(2):
        with pytest.raises(InvalidValue):
            writer.append(one(0))
        assert open_below(path.parent) == []
    writer.close()
    assert (len(asked), path.read_bytes()) == (2, b"")


def test_a_closed_writer_refuses_and_closes_again_quietly(path: Path) -> None:
    """agent-log L-28."""
    writer = LineWriter(path)
    writer.append(one(0))
    writer.close()
    writer.close()
    for lines in (one(1), []):
        with pytest.raises(StoreClosed):
            writer.append(lines)
    with pytest.raises(StoreClosed):
        writer.sync()
    assert read(path).numbers == [0]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_writers_that_are_dropped_leave_no_descriptor(tmp_path: Path) -> None:
    """house H-76: a thousand of them, and one in a cycle."""
    gc.collect()
    before = len([*Path("/dev/fd").iterdir()])
    for _ in range(1_000):
        LineWriter(tmp_path / "a.jsonl", sync="os").append([b"{}\n"])
    turning = [LineWriter(tmp_path / "a.jsonl", sync="os")]
    turning[0].append([b"{}\n"])
    turning.append(turning)  # type: ignore[arg-type]
    del turning
    gc.collect()
    assert len([*Path("/dev/fd").iterdir()]) == before


def test_a_writer_that_is_dropped_warns(tmp_path: Path) -> None:
    """house H-76: as Python's own files do."""

    def drop() -> None:
        LineWriter(tmp_path / "a.jsonl", sync="os").append([b"{}\n"])
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"a\.jsonl was left open"):
        drop()
