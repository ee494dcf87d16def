"""What the tests of this domain share: headers, the seed's example, and looking at what was written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastlight_state.codec import dump_line
from lastlight_state.files.run_log import RunHeader, RunLog, RunReading, RunRecord, RunWriter
from lastlight_state.testing.clock import FrozenClock

FIXTURES = Path(__file__).parents[2] / "fixtures" / "run_log"
#: The run of the seed's example and its session.
EXAMPLE_RUN = "8f1d7b7a-7e8f-4e0f-9a7c-1c5d0e6b2b7a"
EXAMPLE_SESSION = "f6d2c6d5-4a12-4cc4-bbc9-9a0c0d2b5af1"

NOW = datetime(2026, 2, 3, 12, 0, 30, tzinfo=UTC)
AT = "2026-02-03T12:00:30.000Z"
RUN = "11111111-1111-4111-8111-111111111111"
OTHER_RUN = "22222222-2222-4222-8222-222222222222"
SESSION = "33333333-3333-4333-8333-333333333333"
OTHER_SESSION = "44444444-4444-4444-8444-444444444444"


def run_log(tmp_path: Path, **options: Any) -> RunLog:
    """A run log below ``tmp_path`` whose clock stands still at `NOW`."""
    return RunLog(tmp_path, **{"clock": FrozenClock(NOW), **options})


def id_of(n: int) -> str:
    """The n-th id for a run or session."""
    return f"{n:08x}-0000-4000-8000-000000000000"


def header(run_id: str = RUN, **fields: Any) -> RunHeader:
    """The header of a run that starts at `NOW`."""
    return RunHeader.model_validate({"run_id": run_id, "started_at": NOW, **fields})


def start(log: RunLog, run_id: str = RUN, **fields: Any) -> RunWriter:
    """The writer of a new run."""
    return log.runs.start(header(run_id, **fields))


def head(run_id: str = RUN, **fields: Any) -> dict[str, Any]:
    """A header as a line has it."""
    return {"type": "header", "schema_version": 1, "run_id": run_id, "started_at": AT, **fields}


def line(kind: str, run_id: str = RUN, **fields: Any) -> dict[str, Any]:
    """A record as a line has it."""
    return {"type": kind, "run_id": run_id, "ts": AT, **fields}


def event(seq: int, **fields: Any) -> dict[str, Any]:
    """An event as a line has it."""
    return line("agent.event", **{"seq": seq, "event": {"type": "text", "n": seq}, **fields})


def status(word: str) -> dict[str, Any]:
    """A status as a line has it."""
    return line("run.status", status=word)


def ending(outcome: str = "completed") -> dict[str, Any]:
    """The end as a line has it."""
    return line("run.end", outcome=outcome)


def request(seq: int, *texts: str) -> dict[str, Any]:
    """A request as a line has it."""
    return line("llm.request", seq=seq, input={"messages": [{"role": "user", "content": text} for text in texts]})


def response(seq: int, text: str = "yes", **output: Any) -> dict[str, Any]:
    """A response as a line has it."""
    return line("llm.response", seq=seq, output={"messages": [{"role": "assistant", "content": text}], **output})


def put(log: RunLog, data: bytes | Iterable[dict[str, Any]], run_id: str = RUN, day: str = "2026/02/03") -> Path:
    """A log file with this content, as somebody else left it."""
    path = log.root / "sessions" / day / f"{run_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else b"".join(map(dump_line, data)))
    return path


def put_example(log: RunLog) -> Path:
    """The seed's example where its writer would have put it."""
    return put(log, (FIXTURES / "run.jsonl").read_bytes(), EXAMPLE_RUN)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The values of a file's lines."""
    return [json.loads(text) for text in path.read_bytes().split(b"\n")[:-1]]


def read(log: RunLog, run_id: str = RUN, **options: Any) -> tuple[list[RunRecord], RunReading]:
    """The records of a run, and the facts of the reading."""
    reading = log.runs.read(run_id, **options)
    return list(reading), reading


def kinds(records: Iterable[RunRecord]) -> list[str]:
    """The types of records."""
    return [record.type for record in records]


def files_below(root: Path) -> list[str]:
    """Every file below a directory, by its path."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
