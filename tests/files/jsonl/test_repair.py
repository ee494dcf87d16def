"""Repair of line files: every record in the copy, every other byte among the rejects, the source untouched."""

from __future__ import annotations

import base64
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings, strategies as st
from support.each import with_each
from support.jsonl.lines import append_until_killed, child, is_record, read, record

from lastlight_state.codec import dump_line
from lastlight_state.errors import AlreadyExists, BackendBusy, LostRace
from lastlight_state.files.jsonl import files, repair
from lastlight_state.files.jsonl.reader import LineReader
from lastlight_state.files.jsonl.recovery import Accepts
from lastlight_state.files.jsonl.repair import Salvage
from lastlight_state.files.jsonl.sections import KINDS, Section, line_sections
from lastlight_state.files.jsonl.writer import LineWriter

FILES = settings(max_examples=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def whole(n: int, text: str = "") -> bytes:
    return dump_line(record(n, text=text))[:-1]


DAMAGED = b"%b\n%b%b\n\0\0\0%b\nnull\n\xff\xfe\n\n%b\r\n%b%b\nhello\n%b" % (
    whole(0),
    whole(1)[:40],
    whole(2),
    whole(3),
    whole(4, "é"),
    whole(5),
    whole(6),
    whole(7)[:50],
)


def rejected(found: Salvage) -> dict[int, bytes]:
    """The rejected bytes by offset."""
    if found.rejects is None:
        return {}
    entries = [orjson.loads(line) for line in found.rejects.read_bytes().splitlines()]
    parts = {entry["offset"]: base64.b64decode(entry["base64"]) for entry in entries}
    assert all(len(parts[entry["offset"]]) == entry["length"] and entry["reason"] in KINDS for entry in entries)
    return parts


def put_together(source: bytes, found: Salvage) -> bytes:
    """The source again, of the copy's lines and the rejects alone."""
    assert found.copy is not None
    parts = rejected(found)
    lines = iter([line + b"\n" for line in found.copy.read_bytes().split(b"\n")[:-1]])
    again = b""
    while len(again) < len(source):
        if len(again) in parts:
            again += parts[len(again)]
            continue
        line = next(lines)
        assert len(line) > 1
        ends_a_line = source[len(again) + len(line) - 1 : len(again) + len(line)] == b"\n"
        again += line if ends_a_line else line[:-1]
    assert next(lines, None) is None
    return again


def test_a_copy_and_its_rejects_account_for_every_byte_and_the_source_is_untouched(path: Path, tmp_path: Path) -> None:
    """agent-log L-111."""
    path.write_bytes(DAMAGED)
    found = repair.salvage(path, is_record, to=tmp_path / "clean.jsonl")
    assert read(tmp_path / "clean.jsonl").numbers == [0, 2, 3, 4, 5, 6]
    assert not read(tmp_path / "clean.jsonl").issues
    assert put_together(DAMAGED, found) == DAMAGED
    assert path.read_bytes() == DAMAGED
    assert found.account.size == len(DAMAGED)


@pytest.mark.slow
def test_a_file_that_is_cut_anywhere_keeps_every_whole_record(path: Path, tmp_path: Path) -> None:
    """maintenance OP-65, OP-66: glued lines, NUL and broken bytes included; the parts add up to the file."""
    for end in range(len(DAMAGED) + 1):
        path.write_bytes(DAMAGED[:end])
        copy = tmp_path / f"{end}.jsonl"
        found = repair.salvage(path, is_record, to=copy)
        if found.copy is None:
            assert found.account.is_sound
            continue
        assert put_together(DAMAGED[:end], found) == DAMAGED[:end]
        assert not read(copy).issues
        assert path.read_bytes() == DAMAGED[:end]


def test_each_part_of_a_file_is_named_by_what_it_is(path: Path) -> None:
    """agent-log L-111: and the parts add up to the file's size; maintenance OP-65."""
    path.write_bytes(DAMAGED)
    account = repair.scan(path, is_record)
    assert account.sections == {
        "record": 2,
        "recovered": 2,
        "glued": 2,
        "torn": 1,
        "nul_bytes": 1,
        "not_object": 1,
        "bad_utf8": 1,
        "blank": 1,
        "bad_json": 1,
        "torn_tail": 1,
    }
    assert account.size == len(DAMAGED)
    assert [part.kind for part in account.parts][:3] == ["torn", "recovered", "nul_bytes"]


def test_the_first_thousand_parts_that_are_not_sound_are_told(path: Path) -> None:
    """agent-log L-111: all are counted."""
    path.write_bytes(whole(0) + b"\n" + b"?\n" * 1_001 + whole(1) + b"\n")
    account = repair.scan(path, is_record)
    assert (account.sections["bad_json"], account.sections["record"]) == (1_001, 2)
    assert {part.kind for part in account.parts} == {"bad_json"}
    assert len(account.parts) == 1_000


def test_a_line_past_the_limit_goes_to_the_rejects_in_parts(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-39, L-111."""
    data = whole(0) + b"\n" + b"x" * 2_000_000 + b"\n" + whole(1) + b"\n"
    path.write_bytes(data)
    defaults = {**(LineReader.__init__.__kwdefaults__ or {}), "max_line_bytes": 100_000}
    monkeypatch.setattr(LineReader.__init__, "__kwdefaults__", defaults)
    found = repair.salvage(path, is_record, to=tmp_path / "clean.jsonl")
    assert found.account.sections["oversize"] == 1
    assert len(rejected(found)) == 3
    assert put_together(data, found) == data


@with_each("data", [b"", whole(0) + b"\n", b"\n" + whole(0) + b"\r\n\n" + whole(1)])
def test_a_file_without_damage_is_left_alone(tmp_path: Path, data: bytes) -> None:
    """agent-log L-111: also one whose last record has no newline yet."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    assert repair.salvage(path, is_record, to=tmp_path / "clean.jsonl").copy is None
    assert repair.replace(path, is_record, suffix=".damaged").copy is None
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == data


def test_an_existing_target_is_never_overwritten(path: Path, tmp_path: Path) -> None:
    """agent-log L-111."""
    path.write_bytes(DAMAGED)
    clean, rejects, damaged = (tmp_path / name for name in ("clean", "other.rejects", "log.jsonl.damaged"))
    for taken in (clean, rejects, damaged):
        taken.write_bytes(b"mine")
    attempts: list[Callable[[], object]] = [
        lambda: repair.salvage(path, is_record, to=clean),
        lambda: repair.salvage(path, is_record, to=tmp_path / "other"),
        lambda: repair.replace(path, is_record, suffix=".damaged"),
    ]
    for attempt in attempts:
        with pytest.raises(AlreadyExists):
            attempt()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["clean", path.name, damaged.name, rejects.name]
    assert (clean.read_bytes(), damaged.read_bytes(), path.read_bytes()) == (b"mine", b"mine", DAMAGED)


@with_each("name", ["copy", "copy.rejects"])
@with_each("leads_to", ["nowhere", "copy", "copy.rejects"])
def test_a_link_where_a_copy_would_be_is_a_file_that_exists(tmp_path: Path, name: str, leads_to: str) -> None:
    """agent-log L-111: wherever it leads, and be it in a circle."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(DAMAGED)
    link = path.with_name(name)
    link.symlink_to(leads_to)
    with pytest.raises(AlreadyExists):
        repair.salvage(path, is_record, to=path.with_name("copy"))
    assert sorted(entry.name for entry in path.parent.iterdir()) == [name, path.name]


def test_a_link_is_left_alone(path: Path, tmp_path: Path) -> None:
    """maintenance OP-66."""
    path.write_bytes(DAMAGED)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    for attempt in (
        lambda: repair.scan(link, is_record),
        lambda: repair.salvage(link, is_record, to=tmp_path / "clean"),
        lambda: repair.replace(link, is_record, suffix=".damaged"),
    ):
        with pytest.raises(OSError, match="symbolic link"):
            attempt()
    assert link.is_symlink()


@with_each(("deed", "first"), [("salvage", 1), ("replace", 0)])
def test_a_link_in_place_of_the_folder_leads_a_repair_nowhere_else(deed: str, first: int, tmp_path: Path) -> None:
    """agent-log L-15: whenever the folder is moved away and a link put in its place, from the copying or look on."""
    for moment in range(first, 40):
        folder, moved, outside = (tmp_path / f"{deed} {moment} {name}" for name in ("a", "b", "c"))
        folder.mkdir()
        outside.mkdir()
        path = folder / "log.jsonl"
        path.write_bytes(DAMAGED)
        (outside / path.name).write_bytes(b"theirs\n")
        left = iter(range(moment))

        def swapped(value: Any) -> bool:
            if next(left, None) is None and not folder.is_symlink():  # noqa: B023
                folder.rename(moved)  # noqa: B023
                folder.symlink_to(outside)  # noqa: B023
            return is_record(value)

        with suppress(LostRace, OSError):
            if deed == "salvage":
                repair.salvage(path, swapped, to=folder / "copy")
            else:
                repair.replace(path, swapped, suffix=".old")
        assert {file.name: file.read_bytes() for file in outside.iterdir()} == {path.name: b"theirs\n"}
        if not folder.is_symlink():
            assert moment > first
            return
    raise AssertionError("the folder was swapped at every moment")


def test_a_replaced_file_keeps_its_damage_under_a_second_name(path: Path, tmp_path: Path) -> None:
    """agent-log L-112."""
    path.write_bytes(DAMAGED)
    path.chmod(0o640)
    inode = path.stat().st_ino
    found = repair.replace(path, is_record, suffix=".damaged-x")
    assert found.damaged == tmp_path / "log.jsonl.damaged-x"
    assert found.damaged.read_bytes() == DAMAGED
    assert found.damaged.stat().st_ino == inode
    assert found.rejects == tmp_path / "log.jsonl.damaged-x.rejects"
    assert (read(path).numbers, read(path).issues) == ([0, 2, 3, 4, 5, 6], [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert put_together(DAMAGED, found) == DAMAGED
    assert len(list(tmp_path.iterdir())) == 3


def test_sealing_adds_one_newline_once(path: Path) -> None:
    """agent-log L-110; maintenance OP-66."""
    path.write_bytes(DAMAGED)
    assert (repair.seal(path), repair.seal(path)) == (True, False)
    assert path.read_bytes() == DAMAGED + b"\n"
    with LineWriter(path) as writer:
        writer.append([whole(9) + b"\n"])
    assert path.read_bytes() == DAMAGED + b"\n" + whole(9) + b"\n"


@with_each(("data", "expected"), [(b"", b""), (b"{", b"{\n"), (b"{}", b"{}\n"), (b"\n", b"\n"), (b"{}\n", b"{}\n")])
def test_only_an_end_without_a_newline_is_sealed(tmp_path: Path, data: bytes, expected: bytes) -> None:
    """agent-log L-110: be it of one byte."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    assert repair.seal(path) is (data != expected)
    assert path.read_bytes() == expected


def test_a_live_writer_goes_on_in_the_clean_file(path: Path) -> None:
    """agent-log L-112; maintenance OP-66."""
    path.write_bytes(DAMAGED)
    with LineWriter(path) as writer:
        writer.append([whole(8) + b"\n"])
        found = repair.replace(path, is_record, suffix=".damaged")
        writer.append([whole(9) + b"\n"])
    assert read(path).numbers == [0, 2, 3, 4, 5, 6, 8, 9]
    assert found.damaged is not None
    assert read(found.damaged).numbers == [0, 2, 3, 4, 5, 6, 8]


def test_of_two_repairs_at_once_the_later_one_finds_the_file_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-112."""
    path.write_bytes(DAMAGED)
    held = LineWriter.hold_lock

    def after_another(writer: LineWriter) -> AbstractContextManager[int]:
        monkeypatch.undo()
        repair.replace(path, is_record, suffix=".damaged-1")
        return held(writer)

    monkeypatch.setattr(LineWriter, "hold_lock", after_another)
    with pytest.raises(LostRace):
        repair.replace(path, is_record, suffix=".damaged-2")
    assert sorted(entry.name for entry in path.parent.iterdir()) == [
        "log.jsonl",
        "log.jsonl.damaged-1",
        "log.jsonl.damaged-1.rejects",
    ]


@pytest.mark.parametrize(
    ("grows", "copied"),
    [
        (0, [100_000, 0]),
        (0.4, [100_000, 40_000, 16_000, 6_400]),
        (0.5, [100_000, 50_000, 25_000, 12_500, 6_250]),
        (0.6, [100_000, 60_000]),
    ],
)
def test_whoever_copies_runs_after_writers_only_as_long_as_there_is_ever_less_to_copy(
    path: Path, monkeypatch: pytest.MonkeyPatch, grows: float, copied: list[int]
) -> None:
    """agent-log L-112: few bytes, or what comes while as many again are copied, are copied while writers wait."""
    path.write_bytes(DAMAGED.ljust(99_999) + b"\n")
    monkeypatch.setattr(repair, "_FEW_BYTES", 10_000)
    seen: list[int] = []

    def growing(reader: LineReader[Any], accepts: Accepts, size: int) -> Iterator[Section]:
        seen.append(size - reader.position)
        if len(seen) > 1 and seen[-1]:  # the first looks whether there is any damage
            with suppress(BackendBusy), LineWriter(path, sync="os", lock_timeout=0) as other:
                other.append([whole(10).ljust(round(seen[-1] * grows) - 1) + b"\n"] if grows else [])
        yield from line_sections(reader, accepts, size)

    monkeypatch.setattr(repair, "line_sections", growing)
    found = repair.replace(path, is_record, suffix=".damaged")
    assert found.damaged is not None
    assert found.account.size == found.damaged.stat().st_size == sum(copied)
    assert seen == [100_000, *copied]


@pytest.mark.slow
def test_no_line_is_lost_while_files_are_replaced_under_their_writers(path: Path, tmp_path: Path) -> None:
    """agent-log L-112; maintenance OP-66: and a follower of the clean file finds every returned append."""
    path.write_bytes(DAMAGED)
    notes = [tmp_path / f"notes-{name}" for name in "ab"]
    writers = [child(append_until_killed, path, note, note.name, 500) for note in notes]
    _until(lambda: all(note.exists() and note.stat().st_size for note in notes))
    for number in range(2):  # more would double the file each time: its writers never rest while it is copied
        with path.open("ab") as other:  # a writer without locks
            other.write(b'{"torn')
        assert repair.replace(path, is_record, suffix=f".damaged-{number}").copy is not None
    sizes = [note.stat().st_size for note in notes]
    _until(lambda: all(note.stat().st_size > size for note, size in zip(notes, sizes, strict=True)))
    for process in writers:
        process.kill()
        process.join()
    seen = read(path)
    for note in notes:
        found = [line.value["n"] for line in seen.lines if line.value["writer"] == note.name]
        returned = [int(number) for number in note.read_text().split()]
        assert found[: len(returned)] == returned


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _differs(path: Path, inode: int) -> bool:
    return path.stat().st_ino != inode


def repair_for_ever(path: Path) -> None:
    """Replace a file that is damaged anew each time."""
    number = 0
    while True:
        repair.replace(path, is_record, suffix=f".damaged-{os.getpid()}-{number}")
        with path.open("ab") as file:
            file.write(b'{"torn\n')
        number += 1


@pytest.mark.parametrize("rounds", [4, pytest.param(100, marks=pytest.mark.soak)])
def test_a_repair_that_is_killed_leaves_one_of_the_two_files(path: Path, rounds: int) -> None:
    """agent-log L-112: kill -9 at any moment of the replacement."""
    path.write_bytes(DAMAGED + b"\n" + b"".join(whole(n) + b"\n" for n in range(10, 60)))
    expected = [0, 2, 3, 4, 5, 6, *range(10, 60)]
    chance = random.Random(3)
    for _ in range(rounds):
        before = path.stat().st_ino
        process = child(repair_for_ever, path)
        _until(partial(_differs, path, before))
        time.sleep(chance.random() * 0.01)  # somewhere in the middle of a later replacement
        process.kill()
        process.join()
        assert read(path).numbers == expected
    assert repair.scan(path, is_record).sections["record"] == len(expected)


pieces = st.one_of(
    st.integers(0, 9).map(whole),
    st.binary(max_size=10),
    st.sampled_from([b"\n", b"\n\n", b"\0\0", b"\r\n", whole(1)[:30], b"null", b"{}", b"{", b"}"]),
)


@FILES
@given(st.lists(pieces, max_size=14).map(b"".join))
def test_whatever_the_bytes_the_two_files_hold_them_all(path: Path, data: bytes) -> None:
    """agent-log L-111."""
    path.write_bytes(data)
    clean = path.with_name("clean")
    found = repair.salvage(path, is_record, to=clean)
    assert found.account.size == len(data)
    if found.copy is None:
        assert found.account.is_sound
        return
    assert put_together(data, found) == data
    kept = [line.raw for line in read(path).lines]
    lines = clean.read_bytes().split(b"\n")[:-1]
    assert len(lines) == sum(found.account.sections[kind] for kind in ("record", "recovered", "glued"))
    position = 0
    for raw in kept:  # also what a reader leaves alone: records behind the last newline, which may still grow
        position = lines.index(raw, position) + 1
    for name in (clean, found.rejects):
        if name is not None:
            name.unlink()


def test_a_replacement_is_on_disk_before_its_name_and_its_name_before_the_return(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-112: after a power failure the path names the damaged file or the whole clean one."""
    path.write_bytes(DAMAGED)
    calls: list[str] = []

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return real(*given, **named)

        return call

    for module, name in ((os, "fsync"), (os, "rename"), (files, "sync")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    found = repair.replace(path, is_record, suffix=".damaged-x")
    monkeypatch.undo()
    assert found.rejects is not None
    renamed = calls.index("rename")
    assert calls[:renamed].count("fsync") >= 3, calls  # the clean file, the rejects, and their names
    assert "sync" in calls[:renamed], calls
    assert "sync" in calls[renamed:], calls
