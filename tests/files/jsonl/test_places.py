"""Opening by descriptors: links and odd files below a base."""

import itertools
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.each import with_each
from support.tracing import traced

from lastlight_state.errors import BackendUnavailable, UnsafePath
from lastlight_state.files.agent_log import AgentLog, Cwd
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.writer import LineWriter

LINE = b'{"n":1}\n'
LONG = "x" * 70_000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The agent's logs, reached through a link that is the operator's own."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "volume")
    return tmp_path / "state" / "agent-sessions"


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("component", ["agent-sessions", "projects", "-app", "s-1.jsonl", "s-1", "s-1/raw"])
def test_no_component_can_be_swapped_for_a_link_while_lines_flow(component: str, tree: Path, tmp_path: Path) -> None:
    """agent-log L-15: lines and untruncated results are written inside the tree, or refused."""
    log, outside = AgentLog(tree), tmp_path / "outside"
    outside.mkdir()
    stop = threading.Event()
    with log.writer.open(place=Cwd("/app"), session_id="s-1", prompt="x", sync="os") as writer:
        writer.feed(result(0))
        path = next(found for found in (tree, *tree.rglob("*")) if str(found).endswith(component))
        swapper = threading.Thread(target=swap, args=(path, outside, stop))
        swapper.start()
        for n in range(300):
            try:
                writer.feed(result(n))
            except (UnsafePath, BackendUnavailable):
                continue
        stop.set()
        swapper.join()
        assert below(outside) == []
        writer.feed(result(0))
    assert log.reader.read("s-1", limit=1).lines


def result(n: int) -> dict[str, object]:
    return {"type": "tool_execution_end", "toolCallId": f"t{n}", "result": f"{n} {LONG}"}


def swap(path: Path, outside: Path, stop: threading.Event) -> None:
    """Put a link to the outside in the place of a path and take it away again, until told to stop."""
    aside = path.with_name(path.name + ".aside")
    while not stop.is_set():
        path.rename(aside)
        clear(path)
        with suppress(FileExistsError):
            path.symlink_to(outside)
        while aside.exists():
            clear(path)
            with suppress(OSError):
                aside.rename(path)


def clear(path: Path) -> None:
    """Remove the link, or what the writer has made anew meanwhile."""
    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("component", ["projects", "-app", "s-1"])
def test_a_link_put_in_the_place_of_a_folder_of_an_open_writer_is_refused(
    component: str, tree: Path, tmp_path: Path
) -> None:
    """agent-log L-15."""
    outside = tmp_path / "outside"
    outside.mkdir()
    with AgentLog(tree).writer.open(place=Cwd("/app"), session_id="s-1", prompt="x") as writer:
        writer.feed(result(0))
        path = next(found for found in tree.rglob("*") if found.name == component)
        path.rename(path.with_name("aside"))
        path.symlink_to(outside)
        with pytest.raises(UnsafePath):
            writer.feed(result(1))
    assert below(outside) == []


@pytest.fixture(params=["fifo", "socket", "directory", "device"])
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Something that is no regular file."""
    path = tmp_path / "odd.jsonl"
    kept: list[object] = []
    match request.param:
        case "fifo":
            os.mkfifo(path)
            kept.append(os.open(path, os.O_RDWR))
        case "socket":
            place = socket.socket(socket.AF_UNIX)
            place.bind(str(path))
            kept.append(place)
        case "directory":
            path.mkdir()
        case _:
            path = Path("/dev/null")
    yield path
    for thing in kept:
        os.close(thing) if isinstance(thing, int) else thing.close()  # type: ignore[attr-defined]


def test_an_odd_file_gets_no_line_and_stops_nobody(odd: Path) -> None:
    """agent-log L-15: regular files alone."""
    with LineWriter(odd) as writer, pytest.raises(BackendUnavailable):
        writer.append([LINE])


def test_an_odd_file_is_not_read(odd: Path) -> None:
    """agent-log L-15."""
    with pytest.raises(FileNotFoundError, match="expected a regular file, found"):
        files.open_to_read(odd)


def test_missing_directories_are_made_private_below_the_base(tmp_path: Path) -> None:
    """agent-log L-15."""
    with files.open_directory(tmp_path / "a" / "b", base=tmp_path, create=True) as (_, changed):
        assert changed == [tmp_path, tmp_path / "a"]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a", tmp_path / "a" / "b")} == {0o700}


@with_each(("name", "problem"), [("missing", FileNotFoundError), ("file", NotADirectoryError)])
def test_what_is_no_directory_below_the_base_is_named_by_its_whole_path(
    tmp_path: Path, name: str, problem: type[OSError]
) -> None:
    """agent-log L-24: a log shows it, and is read by somebody who does not know where it was looked for."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").touch()
    with pytest.raises(problem) as raised, files.open_directory(tmp_path / "a" / name / "b", base=tmp_path):
        pass
    assert raised.value.filename == str(tmp_path / "a" / name)


def test_an_interrupt_at_any_step_comes_out_as_itself(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-15: no descriptor is closed twice, which would end in an error, or close a file of another thread."""
    (tree / "projects" / "-app").mkdir(parents=True)
    opened: set[int] = set()
    opening, closing = os.open, os.close

    def note_open(*words: Any, **more: Any) -> int:
        descriptor = opening(*words, **more)
        opened.add(descriptor)
        return descriptor

    def note_close(descriptor: int) -> None:
        closing(descriptor)
        opened.remove(descriptor)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "close", note_close)
    steps = itertools.count(1)
    for step in steps:
        try:
            with traced(_interrupting(step)), files.open_directory(tree / "projects" / "-app", base=tree.parent):
                break
        except KeyboardInterrupt:
            continue
    assert next(steps) > 20, "the loop ended at the first opening that nothing interrupted"
    for descriptor in opened:  # interrupted before it was anybody's
        closing(descriptor)


def _interrupting(step: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that interrupts the given line of the module."""
    left = itertools.count(step, -1)

    def seen(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != files.__file__:
            return None
        if event == "line" and next(left) == 1:
            raise KeyboardInterrupt
        return seen

    return seen
