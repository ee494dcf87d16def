"""LineWriter with a lock that it keeps: two calls of the system for a line, and nothing that is promised less."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.jsonl.lines import SPAWN, append_until_killed, child, counted, read, record

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.writer import LineWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def one(n: int, **parts: Any) -> list[bytes]:
    return [dump_line(record(n, **parts))]


def keeper(path: Path, **options: Any) -> LineWriter:
    return LineWriter(path, keeps_lock=True, lock_timeout=0.05, **options)


def is_free(path: Path) -> bool:
    """Return whether nobody holds the lock of the file that has this name."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_an_append_under_a_kept_lock_is_one_look_and_one_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-147."""
    with keeper(path, sync="os") as writer:
        writer.append(one(0))
        locks = counted(monkeypatch, fcntl, "flock")
        others = counted(monkeypatch, os, "lstat", "write", "pread", "open", "fstat")
        writer.append([*one(1), *one(2)])
        writer.append(one(3))
        assert (locks, others) == ([], ["lstat", "write"] * 2)
    assert read(path).numbers == [0, 1, 2, 3]


def test_nobody_else_appends_until_the_keeper_is_closed(path: Path) -> None:
    """agent-log L-147, L-23: neither to the file nor in a block that keeps others out."""
    with LineWriter(path, lock_timeout=0.05) as other:
        with keeper(path) as writer:
            writer.append(one(0))
            with pytest.raises(BackendBusy):
                other.append(one(1))
            with pytest.raises(BackendBusy), other.hold_lock():
                pass
            with writer.hold_lock():
                pass
            assert not is_free(path)
        other.append(one(2))
    assert read(path).numbers == [0, 2]


def test_a_keeper_waits_for_an_append_of_another_and_then_keeps_the_lock(path: Path) -> None:
    """agent-log L-147: and one that waited in vain has written nothing and tries again."""
    path.touch()
    holder = os.open(path, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with keeper(path) as writer:
        with pytest.raises(BackendBusy):
            writer.append(one(0))
        os.close(holder)
        writer.append(one(1))
        assert not is_free(path)
    assert read(path).numbers == [1]


def test_a_killed_keeper_loses_nothing_that_was_returned_and_leaves_its_file_free(path: Path, tmp_path: Path) -> None:
    """agent-log L-147, L-2, L-22: 2 MiB lines cut by kill -9, each followed by another process's lines."""
    for number in range(5):
        notes = tmp_path / f"notes-{number}"
        killed = child(append_until_killed, path, notes, notes.name, 2 * 1024 * 1024, True)
        while not notes.exists() or notes.stat().st_size == 0:
            time.sleep(0.001)
        time.sleep(0.003 * number)
        assert not is_free(path)
        killed.kill()
        killed.join()
        with keeper(path) as writer:
            writer.append(one(0, writer=f"after-{number}"))
    promised = [(notes.name, int(n)) for notes in tmp_path.glob("notes-*") for n in notes.read_bytes().split()]
    seen = read(path)
    stored = [(line.value["writer"], line.value["n"]) for line in seen.lines]
    assert {*promised, *((f"after-{number}", 0) for number in range(5))} <= {*stored}
    assert len(stored) == len({*stored})
    assert {*seen.reasons} <= {"torn"}


def test_two_processes_that_keep_locks_never_write_at_once(path: Path) -> None:
    """agent-log L-147: the second has its turn when the first is closed."""
    first, second = (SPAWN.Process(target=append_fifty, args=(path, name), daemon=True) for name in "ab")
    first.start()
    second.start()
    for process in (first, second):
        process.join(60)
        assert process.exitcode == 0
    seen = read(path)
    names = [line.value["writer"] for line in seen.lines]
    assert names in (["a"] * 50 + ["b"] * 50, ["b"] * 50 + ["a"] * 50)
    assert not seen.issues


def append_fifty(path: Path, name: str) -> None:
    with LineWriter(path, keeps_lock=True) as writer:
        for n in range(50):
            writer.append([dump_line(record(n, writer=name))])


def test_a_keeper_follows_its_path_to_another_file_and_keeps_that_ones_lock(path: Path, tmp_path: Path) -> None:
    """agent-log L-147, L-25: replaced by one that ends torn, renamed away, and removed."""
    moved, clean = tmp_path / "moved", tmp_path / "clean"
    with keeper(path) as writer:
        writer.append(one(0))
        moved.hardlink_to(path)
        clean.write_bytes(b'{"torn')
        clean.replace(path)
        writer.append(one(1))
        assert (is_free(moved), is_free(path)) == (True, False)
        path.rename(clean)
        writer.append(one(2))
        assert (is_free(clean), is_free(path)) == (True, False)
        path.unlink()
        writer.append(one(3))
        assert not is_free(path)
    assert [read(file).numbers for file in (moved, clean, path)] == [[0], [1], [3]]


def test_a_keeper_that_must_not_create_tells_of_a_removed_file(path: Path) -> None:
    """agent-log L-147, L-20."""
    path.touch()
    with keeper(path, on_removed="raise") as writer:
        writer.append(one(0))
        path.unlink()
        with pytest.raises(BackendUnavailable):
            writer.append(one(1))


def test_a_keeper_seals_what_a_program_without_locks_left(path: Path) -> None:
    """agent-log L-147, L-22: a line torn behind its own, and its own line cut in the middle."""
    with keeper(path) as writer:
        writer.append(one(0))
        with path.open("ab") as other:
            other.write(b'{"torn')
        writer.append(one(1))
        writer.append(one(2))
        os.truncate(path, path.stat().st_size - 5)
        writer.append(one(3))
        os.truncate(path, 0)
        writer.append(one(4))
        writer.append(one(5, text="x" * 100))
    seen = read(path)
    assert (seen.numbers, seen.issues) == ([4, 5], [])


@pytest.mark.parametrize("kept", [1, 20])
def test_a_keepers_line_that_was_cut_by_another_harms_no_later_one(path: Path, kept: int) -> None:
    """agent-log L-147, L-22."""
    with keeper(path) as writer:
        writer.append(one(0))
        size = path.stat().st_size
        writer.append(one(1))
        os.truncate(path, size + kept)
        writer.append(one(2))
    seen = read(path)
    assert (seen.numbers, seen.reasons) == ([0, 2], ["torn"])


def test_a_forked_child_has_no_lock_and_takes_none_away(path: Path) -> None:
    """agent-log L-147, L-26: it waits for its parent's lock in vain, and its end leaves the parent's lock held."""
    with keeper(path) as writer:
        writer.append(one(0))
        pid = os.fork()
        if pid == 0:
            try:
                writer.append(one(1))
            except BackendBusy:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert not is_free(path)
        writer.append(one(2))
    assert read(path).numbers == [0, 2]


def test_the_lock_is_free_after_the_close_whoever_still_has_the_descriptor(path: Path) -> None:
    """agent-log L-147: as a child has that was forked and has not run yet."""
    writer = keeper(path)
    writer.append(one(0))
    copy = os.dup(writer._descriptor)
    writer.close()
    assert is_free(path)
    os.close(copy)


def test_an_interrupt_behind_the_lock_leaves_a_writer_that_works(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-147: the lock that it has got is its own at the next append."""
    real = files.acquire

    def interrupted(*arguments: Any) -> bool:
        real(*arguments)
        raise KeyboardInterrupt

    with keeper(path) as writer:
        monkeypatch.setattr(files, "acquire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.append(one(0))
        monkeypatch.undo()
        writer.append(one(1))
    assert read(path).numbers == [1]
    assert is_free(path)


def test_a_stopped_keeper_makes_others_busy(path: Path) -> None:
    """agent-log L-147, L-23: for as long as it lives."""
    holder = SPAWN.Process(target=append_and_stop, args=(path,), daemon=True)
    holder.start()
    assert holder.pid is not None
    os.waitpid(holder.pid, os.WUNTRACED)
    with LineWriter(path, lock_timeout=0.05) as writer:
        with pytest.raises(BackendBusy):
            writer.append(one(1))
        holder.kill()
        holder.join()
        writer.append(one(2))
    assert read(path).numbers == [0, 2]


def append_and_stop(path: Path) -> None:
    writer = LineWriter(path, keeps_lock=True)
    writer.append([dump_line(record(0))])
    os.kill(os.getpid(), signal.SIGSTOP)
