"""Somebody changes files after a call has looked and before it writes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from support.between import before
from support.each import with_each
from support.jsonl.lines import is_record, read, record

from lastlight_state.codec import dump_line
from lastlight_state.errors import AlreadyExists, LostRace
from lastlight_state.files.jsonl import files, repair, sections
from lastlight_state.files.jsonl.writer import LineWriter

#: A record, and a line that is none.
DAMAGED = dump_line(record(0)) + b"?\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def one(n: int) -> list[bytes]:
    return [dump_line(record(n))]


def test_what_another_left_torn_before_the_lock_is_sealed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-22: LineWriter._put looks at the end under the lock."""
    with LineWriter(path) as writer:
        writer.append(one(0))
        with path.open("ab", buffering=0) as other:
            happened = before(monkeypatch, fcntl, "flock", lambda: other.write(b'{"torn'))
            writer.append(one(1))
    assert happened
    assert read(path).numbers == [0, 1]


def test_a_file_that_was_replaced_before_the_lock_gets_no_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-25: LineWriter._lock compares the path with what it has locked."""
    old, new = path.with_name("old"), path.with_name("new")

    def replace() -> None:
        old.hardlink_to(path)
        new.write_bytes(one(5)[0])
        new.replace(path)

    with LineWriter(path) as writer:
        writer.append(one(0))
        happened = before(monkeypatch, fcntl, "flock", replace)
        writer.append(one(1))
    assert happened
    assert (read(old).numbers, read(path).numbers) == ([0], [5, 1])


def test_a_file_that_was_removed_before_the_lock_is_made_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-25: LineWriter._lock."""
    with LineWriter(path) as writer:
        writer.append(one(0))
        happened = before(monkeypatch, fcntl, "flock", path.unlink)
        writer.append(one(1))
    assert happened
    assert read(path).numbers == [1]


def test_a_file_that_another_made_meanwhile_is_appended_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-20: files.opened_file makes a missing file, or opens it."""
    real, looks = files.opened_file, 0

    def after_a_look(given: Path, flags: int, **options: Path | None) -> int:
        nonlocal looks
        looks += 1
        if looks == 2:
            path.write_bytes(one(0)[0])
        return real(given, flags, **options)

    monkeypatch.setattr(files, "opened_file", after_a_look)
    with LineWriter(path) as writer:
        writer.append(one(1))
    assert looks == 2
    assert read(path).numbers == [0, 1]


def test_a_directory_that_another_made_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-20: files._step."""
    path = tmp_path / "a" / "log.jsonl"
    happened = before(monkeypatch, os, "mkdir", path.parent.mkdir)
    with LineWriter(path) as writer:
        writer.append(one(0))
    assert happened
    assert read(path).numbers == [0]


def test_lines_appended_while_a_file_is_copied_are_in_the_clean_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-112: repair.replace copies the last lines under the lock of appends."""
    path.write_bytes(DAMAGED)

    def append() -> None:
        with LineWriter(path) as other:
            other.append(one(1))

    happened = before(monkeypatch, LineWriter, "hold_lock", append)
    found = repair.replace(path, is_record, suffix=".damaged")
    assert happened
    assert (found.damaged is not None, read(path).numbers) == (True, [0, 1])


@pytest.mark.parametrize("name", ["copy", "copy.rejects"])
def test_a_file_that_took_a_name_meanwhile_is_not_overwritten(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-111: names are given exclusively after _Copy._make; _Copy.__exit__ removes what it has made alone."""
    path.write_bytes(DAMAGED)
    taken, copy = path.with_name(name), path.with_name("copy")
    real = repair._Copy._make

    def late(self: repair._Copy, wanted: Path) -> None:
        if wanted == sections.of(taken):
            taken.write_bytes(b"theirs")
        real(self, wanted)

    monkeypatch.setattr(repair._Copy, "_make", late)
    with pytest.raises(AlreadyExists):
        repair.salvage(path, is_record, to=copy)
    assert taken.read_bytes() == b"theirs"
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, name}


def test_a_second_name_that_was_taken_meanwhile_leaves_the_file_as_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-112: repair._give_name is exclusive."""
    path.write_bytes(DAMAGED)
    second = path.with_name("log.jsonl.damaged")
    happened = before(monkeypatch, os, "link", lambda: second.write_bytes(b"theirs"))
    with pytest.raises(AlreadyExists):
        repair.replace(path, is_record, suffix=".damaged")
    assert happened
    assert (path.read_bytes(), second.read_bytes()) == (DAMAGED, b"theirs")
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, second.name}


@with_each("is_taken_along", [False, True])
def test_a_folder_that_is_replaced_meanwhile_gets_no_clean_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_taken_along: bool
) -> None:
    """agent-log L-112: nor does the old one, whichever of the two has the damaged file."""
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    path, old = folder / "log.jsonl", moved / "log.jsonl"
    folder.mkdir()
    path.write_bytes(DAMAGED)

    def move() -> None:
        folder.rename(moved)
        folder.mkdir()
        if is_taken_along:
            old.rename(path)
        (old if is_taken_along else path).write_bytes(b"theirs")

    happened = before(monkeypatch, LineWriter, "hold_lock", move)
    with pytest.raises(LostRace, match="replaced"):
        repair.replace(path, is_record, suffix=".damaged")
    assert happened
    assert {path.read_bytes(), old.read_bytes()} == {DAMAGED, b"theirs"}
    assert [len(list(one.iterdir())) for one in (folder, moved)] == [1, 1]


def test_a_copy_whose_name_was_taken_meanwhile_gives_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance M-101: sections.complete gives names that nobody has, and takes back what it gave."""
    path.write_bytes(DAMAGED)
    copy = path.with_name("copy")
    happened = before(monkeypatch, sections, "complete", lambda: copy.write_bytes(b"theirs"))
    with pytest.raises(AlreadyExists):
        repair.salvage(path, is_record, to=copy)
    assert happened
    assert sorted(one.name for one in path.parent.iterdir()) == ["copy", "log.jsonl"]
    assert copy.read_bytes() == b"theirs"


@pytest.mark.parametrize("again", [False, True])
def test_a_half_copy_that_was_removed_before_the_lock_is_let_be(
    path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """maintenance M-101: sections.forget and sections._dead look again under the lock, also at a new one."""
    path.write_bytes(DAMAGED)
    half = sections.of(path.with_name("copy"))
    half.touch()

    def remove() -> None:
        half.unlink()
        if again:
            half.write_bytes(b"new")

    happened = before(monkeypatch, fcntl, "flock", remove)
    with files.open_directory(path.parent) as (folder, _):
        sections.forget([path.with_name("copy")], folder)
    assert happened
    assert half.exists() == again


def test_a_replacement_that_was_removed_before_the_lock_is_let_be(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance M-101: sections._remove_replacement removes what sections._dead found."""
    path.write_bytes(DAMAGED)
    clean = path.with_name(f".{path.name}.damaged-1.tmp")
    clean.touch()
    rejects = path.with_name(f"{path.name}.damaged-1.rejects")
    rejects.touch()
    happened = before(monkeypatch, fcntl, "flock", clean.unlink)
    with files.open_directory(path.parent) as (folder, _):
        sections.forget_replaced(path, ".damaged-2", ".rejects", folder)
    assert happened
    assert rejects.exists()
