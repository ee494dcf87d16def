"""The last records, read backwards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st
from support.jsonl.lines import KIND, opened, read, record

from lastlight_state.codec import dump_line
from lastlight_state.files.jsonl.cursor import TAIL_BLOCK_BYTES, Tail, read_tail
from lastlight_state.files.jsonl.reader import ISSUES_KEPT, Line

FILES = settings(max_examples=150)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def tail(path: Path, n: int, *, before: int | None = None, **options: Any) -> Tail[Line]:
    size = path.stat().st_size
    with opened(path) as descriptor:
        return read_tail(descriptor, path, KIND, n=n, before=size if before is None else before, **options)


def numbers(found: Tail[Line]) -> list[int]:
    return [line.value["n"] for line in found.lines]


def test_the_last_records_come_oldest_first_and_bad_lines_do_not_count(path: Path) -> None:
    """agent-log L-42."""
    lines = [dump_line(record(n)) for n in range(5)]
    path.write_bytes(b"".join([*lines[:3], b"bad\n", b"\n", *lines[3:], b'{"torn']))
    found = tail(path, 3)
    assert (numbers(found), found.torn_tail) == ([2, 3, 4], True)
    assert [issue.reason for issue in found.issues] == ["bad_json"]


def test_of_very_many_bad_lines_the_last_ones_are_kept(path: Path) -> None:
    """agent-log L-42: so memory does not depend on how many there are."""
    path.write_bytes(dump_line(record(0)) + b"bad\n" * (ISSUES_KEPT + 100))
    found = tail(path, 1)
    assert (numbers(found), len(found.issues)) == ([0], ISSUES_KEPT)
    assert found.issues[-1].offset == path.stat().st_size - 4


def test_going_further_back_meets_every_record_once(path: Path) -> None:
    """agent-log L-42: also where two records are glued on one line, or one has no newline."""
    lines = [dump_line(record(n)) for n in range(9)]
    path.write_bytes(b"".join(lines[:4]) + lines[4][:-1] + lines[5] + lines[6][:20] + lines[7] + lines[8][:-1])
    seen: list[int] = []
    before = path.stat().st_size
    while True:
        found = tail(path, 1, before=before)
        if not found.lines:
            break
        seen += numbers(found)
        before = found.lines[0].offset
    assert seen == [8, 7, 5, 4, 3, 2, 1, 0]


def test_an_empty_file_has_no_last_record(path: Path) -> None:
    path.touch()
    assert tail(path, 5) == Tail((), False, ())


def test_a_line_past_the_limit_is_passed_over(path: Path) -> None:
    """agent-log L-39, L-42."""
    path.write_bytes(dump_line(record(0)) + dump_line(record(1, text="x" * 9_000)) + dump_line(record(2)))
    found = tail(path, 5, max_line_bytes=1_000, block_bytes=512)
    assert (numbers(found), [issue.reason for issue in found.issues]) == ([0, 2], ["oversize"])
    exactly = tail(path, 5, max_line_bytes=len(dump_line(record(0))) - 1, block_bytes=512)
    assert (numbers(exactly), len(exactly.issues)) == ([0, 2], 1)


@pytest.mark.parametrize("is_full", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("megabytes", [1, 200])
def test_the_cost_depends_on_the_records_and_not_on_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int, is_full: bool
) -> None:
    """agent-log L-42, L-120: the last hundred of a large file are a few blocks, counted in bytes.

    What lies before them is a hole in the file unless it is filled, which takes seconds.
    """
    chunk = b"".join(dump_line(record(n, text="é" * 500)) for n in range(900))
    with path.open("wb") as file:
        if is_full:
            for _ in range(megabytes):
                file.write(chunk)
        else:
            file.truncate(megabytes * 1024 * 1024)
            file.seek(0, os.SEEK_END)
        file.write(b"\n" + chunk)
    read = bytes_read(monkeypatch)
    found = tail(path, 100)
    assert numbers(found) == list(range(800, 900))
    assert sum(read) <= sum(len(line.raw) for line in found.lines) + 2 * TAIL_BLOCK_BYTES


def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all reads of files from now on."""
    sizes: list[int] = []
    pread = os.pread

    def count(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", count)
    return sizes


@FILES
@given(
    st.lists(
        st.one_of(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=40).map(
                lambda text: dump_line(record(1, text=text))
            ),
            st.binary(max_size=20),
            st.sampled_from([b"\n", b"\0\0", dump_line(record(2))[:-1], dump_line(record(3))[:30]]),
        ),
        max_size=12,
    ).map(b"".join),
    st.integers(1, 200),
    st.integers(1, 6),
)
@example(data=b"\x0b", block=1, n=1)  # blank to Python, and not to JSON
def test_reading_backwards_finds_what_reading_forwards_finds(path: Path, data: bytes, block: int, n: int) -> None:
    """agent-log L-42: whatever the bytes, wherever the borders of blocks fall."""
    path.write_bytes(data)
    forwards = read(path)
    everything = tail(path, 10_000, block_bytes=block)
    assert list(everything.lines) == forwards.lines
    assert (list(everything.issues), everything.torn_tail) == (forwards.issues, forwards.torn_tail)
    assert list(tail(path, n, block_bytes=block).lines) == forwards.lines[-n:]
