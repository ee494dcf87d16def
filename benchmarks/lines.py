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
from lastlight_state.agent_log import AgentLog, Slug
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.jsonl.writer import LineWriter

LINES = 2_000
ENVELOPE = {
    "type": "assistant",
    "message": {"role": "assistant", "model": "m-1", "content": [{"type": "text", "text": "All checks pass. " * 50}]},
    "timestamp": "2026-02-03T12:34:56.789Z",
    "sessionId": "s-1",
}


def results() -> Iterator[Result]:
    """One line appended; a file of 2,000 lines read."""
    with tempfile.TemporaryDirectory() as folder:
        yield _append(Path(folder))
        yield _read(Path(folder))


def _append(folder: Path) -> Result:
    writer = LineWriter(folder / "ours.jsonl", sync="os")
    descriptor = os.open(folder / "raw.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        return compare(
            "append a line",
            "files",
            lambda: writer.append([codec.dump_line(ENVELOPE)]),
            lambda: os.write(descriptor, orjson.dumps(ENVELOPE) + b"\n"),
            goal=goal("append a line", "files"),
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
