"""Marks that hold while a file grows and fail when it was replaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.each import with_each
from support.jsonl.lines import opened, record

from lastlight_state.codec import dump_line
from lastlight_state.errors import InvalidValue
from lastlight_state.files.jsonl.cursor import START, Mark, mark_at, mark_behind, mark_of_text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(dump_line(record(n)) for n in range(3)))
    return path


def test_a_mark_holds_in_the_grown_file_and_in_a_copy_of_it(path: Path, tmp_path: Path) -> None:
    """agent-log L-41."""
    with opened(path) as descriptor:
        mark = mark_at(descriptor, path, path.stat().st_size)
    path.write_bytes(path.read_bytes() + dump_line(record(3)))
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(path.read_bytes())
    for file in (path, copy):
        with opened(file) as descriptor:
            assert mark_of_text("after", mark.to_text()).holds(descriptor, file)


def test_a_mark_does_not_hold_in_a_shorter_or_another_file(path: Path) -> None:
    """agent-log L-41."""
    size = path.stat().st_size
    with opened(path) as descriptor:
        mark = mark_at(descriptor, path, size)
    for content in (path.read_bytes()[:-1], path.read_bytes().replace(b'"n":2', b'"n":7')):
        path.write_bytes(content)
        with opened(path) as descriptor:
            assert not mark.holds(descriptor, path)


def test_a_mark_does_not_hold_where_nothing_is_left_to_check(path: Path) -> None:
    """agent-log L-41: the checksum of nothing is 0."""
    mark = mark_of_text("after", Mark(4, 4, 0).to_text())
    path.write_bytes(b"")
    with opened(path) as descriptor:
        assert not mark.holds(descriptor, path)


@pytest.mark.parametrize("left", [0, 10, 200])
def test_a_mark_of_bytes_that_were_cut_off_holds_nowhere(path: Path, left: int) -> None:
    """agent-log L-41: not in the shorter file, nor when it has grown again."""
    data = path.read_bytes()
    path.write_bytes(data[:left])
    with opened(path) as descriptor:
        mark = mark_at(descriptor, path, left + 40)
        assert mark_of_text("after", mark.to_text()) == mark
        assert not mark.holds(descriptor, path)
    path.write_bytes(data)
    with opened(path) as descriptor:
        assert not mark.holds(descriptor, path)


def test_a_mark_of_known_bytes_is_the_mark_of_the_file(path: Path) -> None:
    """agent-log L-41."""
    data = path.read_bytes()
    with opened(path) as descriptor:
        assert all(mark_at(descriptor, path, at) == mark_behind(data[:at], at) for at in (0, 10, 64, 65, len(data)))
        assert START.holds(descriptor, path)


def test_a_mark_that_checks_nothing_or_too_much_is_none() -> None:
    """agent-log L-41: it would hold in any file, or in none."""
    for mark in (START, Mark(1, 1, 5), Mark(64, 64, 5), Mark(900, 1, 5), Mark(900, 64, 5)):
        assert mark_of_text("after", mark.to_text()) == mark
    for mark in (Mark(0, 1, 5), Mark(1, 0, 0), Mark(900, 0, 0), Mark(63, 64, 5), Mark(900, 65, 5)):
        with pytest.raises(InvalidValue):
            mark_of_text("after", mark.to_text())


@with_each("text", ["", "x", "é" * 18, "A" * 17, "A" * 19, "////////////////AA", "AAAAAAAAAAAB" + "A" * 6])
def test_damaged_text_is_no_mark(text: str) -> None:
    """agent-log L-41: the last one claims to check more bytes than lie before its offset."""
    with pytest.raises(InvalidValue):
        mark_of_text("after", text)
