"""Follow a growing file: each record once, and a Reset before anything comes again."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from support.garbage import collect
from support.jsonl.lines import KIND, counted, opened, record

from lastlight_state.codec import dump_line
from lastlight_state.errors import BackendUnavailable
from lastlight_state.files.jsonl.cursor import START, Mark, mark_at
from lastlight_state.files.jsonl.follow import Reset, follow

Step = Callable[[], object]


class Steps:
    """Does the next thing to the file whenever the follower waits, and stops it after the last."""

    def __init__(self, *steps: Step) -> None:
        self.left = list(steps)
        self.waits: list[float] = []
        self.stopped = False

    def is_set(self) -> bool:
        return self.stopped

    def wait(self, timeout: float) -> None:
        self.waits.append(timeout)
        if not self.left:
            self.stopped = True
            return
        self.left.pop(0)()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def line(n: int, text: str = "") -> bytes:
    return dump_line(record(n, text=text))


def followed(path: Path, *steps: Step, after: Mark = START) -> list[int | str]:
    """Numbers of the records, and the reasons of resets, in the order delivered."""
    stop = Steps(*steps)
    news = follow(lambda: path, KIND, after=after, stop=stop)
    found = [item.reason if isinstance(item, Reset) else item.value["n"] for item in news]
    assert stop.waits == [0.5] * (len(steps) + 1)
    return found


def adding(path: Path, data: bytes) -> Step:
    def add() -> None:
        with path.open("ab") as file:
            file.write(data)

    return add


def test_what_is_there_comes_first_and_then_what_is_added(path: Path) -> None:
    """agent-log L-43."""
    path.write_bytes(line(0) + line(1))
    assert followed(path, adding(path, line(2)), lambda: None, adding(path, line(3) + line(4))) == [0, 1, 2, 3, 4]


def test_a_half_line_is_delivered_once_when_it_is_complete(path: Path) -> None:
    """agent-log L-43: a character split over two looks stays whole."""
    data = line(1, "é😀")
    path.write_bytes(line(0) + data[:57])
    parts = [adding(path, data[at : at + 1]) for at in range(57, len(data))]
    assert followed(path, *parts, adding(path, line(2))) == [0, 1, 2]


def test_an_unterminated_record_waits_for_the_newline_of_the_next_writer(path: Path) -> None:
    """agent-log L-43."""
    path.write_bytes(line(0)[:-1])
    assert followed(path, adding(path, b"\n" + line(1))) == [0, 1]


def test_a_growing_line_is_not_read_from_its_start_at_each_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-43."""
    path.write_bytes(b'{"n":0,"text":"')
    sizes: list[int] = []
    real = os.pread

    def counting(descriptor: int, size: int, offset: int) -> bytes:
        data = real(descriptor, size, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counting)
    steps = [adding(path, b"x" * 10_000)] * 20
    assert followed(path, *steps, adding(path, b'"}\n')) == [0]
    assert sum(sizes) < 200_000 + 22 * 200


def test_a_missing_file_is_waited_for(path: Path) -> None:
    """agent-log L-44."""
    assert followed(path, lambda: None, lambda: path.write_bytes(line(0)), adding(path, line(1))) == [0, 1]


def test_a_file_that_is_replaced_while_it_is_empty_is_read_without_a_reset(path: Path) -> None:
    """agent-log L-44: nothing comes again."""
    path.touch()
    other = path.with_name("other")
    other.write_bytes(line(1))
    assert followed(path, lambda: other.replace(path), adding(path, line(2))) == [1, 2]


def test_nothing_is_followed_while_no_path_is_known(path: Path) -> None:
    """agent-log L-44."""
    path.write_bytes(line(0))
    known: list[Path] = []
    stop = Steps(lambda: None, lambda: known.append(path))
    news = follow(lambda: known[-1] if known else None, KIND, stop=stop, poll=3.0)
    assert [item.value["n"] for item in news if not isinstance(item, Reset)] == [0]
    assert stop.waits == [3.0] * 3


def test_a_replaced_file_comes_again_after_a_reset(path: Path) -> None:
    """agent-log L-44: what was written before the replacement is still delivered."""
    path.write_bytes(line(0))
    clean = path.with_name("clean")

    def replace() -> None:
        adding(path, line(1))()
        clean.write_bytes(line(0) + line(1))
        clean.replace(path)
        adding(path, line(2))()

    assert followed(path, replace, adding(path, line(3))) == [0, 1, "replaced", 0, 1, 2, 3]


def test_a_shrunk_file_comes_again_after_a_reset(path: Path) -> None:
    """agent-log L-44: also when it has grown past the old end before the next look."""
    path.write_bytes(line(0) + line(1))

    def rewrite() -> None:
        path.write_bytes(line(5) + line(6) + line(7))

    assert followed(path, lambda: os.truncate(path, len(line(0))), rewrite) == [0, 1, "shrunk", 0, "shrunk", 5, 6, 7]


def test_a_removed_file_is_waited_for_and_comes_again_after_a_reset(path: Path) -> None:
    """agent-log L-44."""
    path.write_bytes(line(0))
    steps = (path.unlink, lambda: None, lambda: path.write_bytes(line(0) + line(1)))
    assert followed(path, *steps) == [0, "replaced", 0, 1]


def test_a_file_whose_directory_was_replaced_by_a_file_is_one_that_was_removed(tmp_path: Path) -> None:
    """agent-log L-44: what was written before that is delivered, and the file is waited for."""
    path = tmp_path / "folder" / "log.jsonl"
    path.parent.mkdir()
    path.write_bytes(line(0))

    def replace() -> None:
        adding(path, line(1))()
        path.parent.rename(tmp_path / "moved")
        path.parent.touch()

    def restore() -> None:
        path.parent.unlink()
        (tmp_path / "moved").rename(path.parent)

    assert followed(path, replace, lambda: None, restore) == [0, 1, "replaced", 0, 1]


def test_following_goes_on_behind_a_mark_that_holds(path: Path) -> None:
    """agent-log L-41, L-44: and from the start, after a reset, behind one that does not."""
    path.write_bytes(line(0) + line(1) + line(2))
    with opened(path) as descriptor:
        mark = mark_at(descriptor, path, 2 * len(line(0)))
    assert followed(path, after=mark) == [2]
    path.write_bytes(line(7) + line(8) + line(9))
    assert followed(path, after=mark) == ["replaced", 7, 8, 9]


def test_leaving_the_iterator_closes_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-44."""
    path.write_bytes(line(0))
    opened_files = counted(monkeypatch, os, "open", "close")
    for _ in follow(lambda: path, KIND):
        break
    collect()
    assert opened_files.count("open") == opened_files.count("close") > 0  # the steps to the file's directory included


def test_iterators_that_are_left_and_kept_hold_no_file_open(path: Path) -> None:
    """agent-log L-44: at a line and at a reset; and they go on where they were."""
    path.write_bytes(line(0) + line(1))
    elsewhere = path.with_name("elsewhere.jsonl")
    elsewhere.write_bytes(line(5))
    with opened(elsewhere) as descriptor:
        other = mark_at(descriptor, elsewhere, elsewhere.stat().st_size)
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    kept = [follow(lambda: path, KIND) for _ in range(50)]
    kept += [follow(lambda: path, KIND, after=other) for _ in range(50)]
    assert [next(news) == Reset("replaced") for news in kept] == [False] * 50 + [True] * 50
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208
    adding(path, line(2))()
    assert [item.value["n"] for item in islice(kept[0], 2)] == [1, 2]  # type: ignore[union-attr]
    assert [item.value["n"] for item in islice(kept[-1], 3)] == [0, 1, 2]  # type: ignore[union-attr]


def test_a_file_that_is_replaced_while_its_lines_are_handed_out_comes_again_after_a_reset(path: Path) -> None:
    """agent-log L-44."""
    path.write_bytes(line(0) + line(1))
    news = follow(lambda: path, KIND, stop=Steps())
    next(news)
    other = path.with_name("other")
    other.write_bytes(line(7))
    other.rename(path)
    assert [item.reason if isinstance(item, Reset) else item.value["n"] for item in news] == [1, "replaced", 7]


def test_a_stop_between_two_lines_ends_it_there(path: Path) -> None:
    """agent-log L-44."""
    path.write_bytes(line(0) + line(1))
    stop = Steps()
    news = follow(lambda: path, KIND, stop=stop)
    next(news)
    stop.stopped = True
    assert list(news) == []


def test_a_path_that_cannot_be_opened_or_looked_at_is_backend_unavailable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-24."""
    with pytest.raises(BackendUnavailable):
        next(follow(lambda: path.with_name("x" * 300), KIND, stop=Steps()))
    path.write_bytes(line(0))
    news = follow(lambda: path, KIND, stop=Steps(lambda: None))

    def fail(name: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    next(news)
    monkeypatch.setattr(Path, "lstat", fail)
    with pytest.raises(BackendUnavailable):
        next(news)
