"""Line files: append and read lines of about 1 KB."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state import codec
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.files.agent_log import AgentLog, Slug
from lastlight_state.files.jsonl.writer import LineWriter

LINES = 2_000
LAST = 100
ENVELOPE = {
    "type": "assistant",
    "message": {"role": "assistant", "model": "m-1", "content": [{"type": "text", "text": "All checks pass. " * 50}]},
    "timestamp": "2026-02-03T12:34:56.789Z",
    "sessionId": "s-1",
}


def results() -> Iterator[Result]:
    """One line appended, with others and alone; 2,000 lines read; the last 100 of a small file and of 200 MB."""
    with tempfile.TemporaryDirectory() as folder:
        yield _append(Path(folder), "append a line")
        yield _append(Path(folder), "append a line, alone", keeps_lock=True)
        yield _read(Path(folder))
        yield _tail(Path(folder), 1)
        yield _tail(Path(folder), 200)


def _append(folder: Path, path: str, *, keeps_lock: bool = False) -> Result:
    writer = LineWriter(folder / f"{path}.jsonl", sync="os", keeps_lock=keeps_lock)
    descriptor = os.open(folder / "raw.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        return compare(
            path,
            "files",
            lambda: writer.append([codec.dump_line(ENVELOPE)]),
            lambda: os.write(descriptor, orjson.dumps(ENVELOPE) + b"\n"),
            goal=goal(path, "files"),
            calls=2_000,
        )
    finally:
        writer.close()
        os.close(descriptor)


def _read(folder: Path) -> Result:
    log = AgentLog(folder / "agent-sessions", clock=SYSTEM_CLOCK, sync="os")
    with log.writer.open(place=Slug("-app"), session_id="s-1") as session:
        session.append([ENVELOPE] * LINES)
        path = session.path
    assert path is not None

    def ours() -> None:
        for _ in log.reader.scan("s-1"):
            pass

    def raw() -> None:
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)

    return compare("read a line", "files", ours, raw, goal=goal("read a line", "files"), calls=1, rounds=15).divided(
        LINES
    )


def _tail(folder: Path, megabytes: int) -> Result:
    """By hand: as many bytes as these lines have are read from the end, split and parsed."""
    log = AgentLog(folder / f"sessions-{megabytes}", clock=SYSTEM_CLOCK, sync="os")
    with log.writer.open(place=Slug("-app"), session_id="s-1") as session:
        session.append([ENVELOPE])
        path = session.path
    assert path is not None
    line = path.read_bytes()
    with path.open("ab") as file:
        for _ in range(megabytes):
            file.write(line * (1024 * 1024 // len(line)))

    def ours() -> None:
        log.reader.tail("s-1", n=LAST)

    def raw() -> None:
        with path.open("rb") as file:
            file.seek(-LAST * len(line), os.SEEK_END)
            for found in file.read().splitlines():
                orjson.loads(found)

    name = f"last {LAST} lines of {megabytes} MB"
    return compare(name, "files", ours, raw, goal=goal(name, "files"), calls=20)
