"""Run logs: append and read records of about 1 KB, list runs, and put a state."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson

from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.files.run_log import RunHeader, RunLog, SessionState, new_run_id

RECORDS = 2_000
RUNS = 200
EVENT = {"type": "text", "content": "All checks pass. " * 50}
STATE = {"messages": [{"role": "user", "content": "All checks pass. " * 50}] * 100}


def results() -> Iterator[Result]:
    """One event appended; 2,000 records read; a page of 50 runs of 200; a state of 100 messages put."""
    with tempfile.TemporaryDirectory() as folder:
        log = RunLog.open(Path(folder), sync="os")
        yield _append(log, Path(folder))
        yield _read(log)
        yield _list(log)
        yield _put(log, Path(folder))


def _header() -> RunHeader:
    return RunHeader(run_id=new_run_id(), started_at=SYSTEM_CLOCK.now())


def _append(log: RunLog, folder: Path) -> Result:
    descriptor = os.open(folder / "raw.jsonl", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        with log.runs.start(_header()) as writer:
            line = {"type": "agent.event", "run_id": writer.run_id, "ts": "2026-02-03T12:34:56.789Z", "seq": 1}
            return compare(
                "append an event",
                "files",
                lambda: writer.event(EVENT),
                lambda: os.write(descriptor, orjson.dumps({**line, "event": EVENT}) + b"\n"),
                goal=goal("append an event", "files"),
                calls=2_000,
            )
    finally:
        os.close(descriptor)


def _read(log: RunLog) -> Result:
    with log.runs.start(_header()) as writer:
        for _ in range(RECORDS):
            writer.event(EVENT)

    def ours() -> None:
        for _ in log.runs.read(writer.run_id):
            pass

    def raw() -> None:
        with writer.path.open("rb") as file:
            for line in file:
                orjson.loads(line)

    name = "read a run's record"
    return compare(name, "files", ours, raw, goal=goal(name, "files"), calls=1, rounds=15).divided(RECORDS)


def _list(log: RunLog) -> Result:
    paths = []
    for _ in range(RUNS):
        with log.runs.start(_header()) as writer:
            writer.run_start("go")
            writer.end("completed")
        paths.append(writer.path)

    def raw() -> None:
        for path in paths[:50]:
            for line in path.read_bytes().splitlines():
                orjson.loads(line)

    return compare("list 50 runs", "files", log.runs.list, raw, goal=goal("list 50 runs", "files"), calls=5)


def _put(log: RunLog, folder: Path) -> Result:
    state = SessionState.model_validate({"session_id": new_run_id(), **STATE})
    path, aside = folder / "raw.json", folder / "raw.json.tmp"

    def raw() -> None:
        descriptor = os.open(aside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, orjson.dumps(STATE))
        os.fsync(descriptor)
        os.close(descriptor)
        aside.rename(path)

    return compare(
        "put a state", "files", lambda: log.states.put(state), raw, goal=goal("put a state", "files"), calls=20
    )
