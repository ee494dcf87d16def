"""Hostile content and hostile arguments: readers never fail, and errors are the library's own."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.hostile import HOSTILE
from support.run_log.logs import AT, NOW, OTHER_RUN, RUN, SESSION, event, head, header, put, put_example, request, start

from lastlight_state.codec import dump_line
from lastlight_state.errors import StateError
from lastlight_state.files.run_log import (
    RunLog,
    RunReading,
    Runtime,
    RunWriter,
    SessionState,
    normalise,
    prepare_resume,
    record_of,
)

KINDS = "header run.start run.context agent.event tool.output llm.request llm.response run.status run.error run.end"
ODD: list[Any] = [
    None, True, 0, -1, 2**63, 1.5, "", "2026-02-03T12:00:00Z", "0001-01-01T00:00:00+23:59", [], [1], {}, {"a": {}},
    [{"type": "text"}], {"messages": [{"role": "tool", "tool_call_id": {}}]}, "\ud800", [[]],
    {"type": "parts", "parts": [1, None, {"type": 5}]},
]  # fmt: skip


def line(chance: random.Random) -> bytes:
    """A record of any type, some of its fields replaced by anything, now and then torn."""
    value: dict[str, Any] = {
        "type": chance.choice([*KINDS.split(), "x.a.b", "odd"]), "run_id": RUN, "ts": AT, "session_id": SESSION,
        "seq": chance.randrange(3), "event": {}, "input": {"messages": [], "type": "text", "text": "x"},
        "output": {"messages": []}, "error": {"name": "a", "message": "b"}, "status": "running", "outcome": "error",
        "tool": "t", "tool_call_id": "c", "result_raw": "", "started_at": AT, "schema_version": 1,
        "context_left_percent": 1, "meta": {}, "model": {},
    }  # fmt: skip
    for _ in range(chance.randrange(3)):
        value[chance.choice(list(value))] = chance.choice(ODD)
    whole = dump_line(value)
    if chance.random() < 0.85:
        return whole
    return whole[: chance.randrange(len(whole))] + chance.choice([b"", b"\n"])


@pytest.mark.parametrize("rounds", [40, pytest.param(3_000, marks=pytest.mark.soak)])
def test_no_content_makes_a_reader_fail(log: RunLog, rounds: int) -> None:
    """run-log RL-31: nor does it keep a run with a header from being continued."""
    chance = random.Random(rounds)
    for _ in range(rounds):
        put(log, b"".join(line(chance) for _ in range(chance.randrange(1, 8))))
        log.runs.get(RUN), log.runs.tail(RUN), log.runs.list()
        for record in log.runs.read(RUN):
            record.to_json()
        list(log.replay.prompts(RUN)), log.replay.events(RUN), log.replay.summarise(RUN), log.replay.history(SESSION)
        log.checks.validate(RUN), log.states.reconstruct(SESSION)
        with suppress(StateError), log.runs.reopen(RUN) as writer:
            writer.tool_output("t", tool_call_id="c", result_raw="")


def attacked(call: Callable[..., Any], known: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What the call raised that is no error of the library, with one argument at a time that nobody would expect."""
    wrong = []
    names = inspect.signature(call).parameters
    for attacked_name in names:
        for value in HOSTILE:
            try:
                made = call(**{name: known[name] for name in names if name in known} | {attacked_name: value})
                if isinstance(made, RunReading):
                    list(made)
                if isinstance(made, RunWriter):
                    made.close()
            except StateError:
                pass
            except Exception as error:  # noqa: BLE001
                wrong.append((call.__name__, attacked_name, type(error).__name__))
    return wrong


def test_hostile_arguments_are_errors_of_the_library(log: RunLog, tmp_path: Path) -> None:
    """run-log RL-02, RL-16: of every method that does not call the caller's own function."""
    put_example(log)
    put(log, [head(session_id=SESSION), event(0), request(1, "a")])
    state = SessionState(session_id=SESSION, messages=())
    known = {
        "run_id": RUN, "session_id": SESSION, "header": header(OTHER_RUN), "seq": 1, "run": RUN, "state": state,
        "to": tmp_path / "copy", "input": "x", "left_percent": 5, "event": {}, "tool": "t", "tool_call_id": "c",
        "result_raw": "", "output": {"messages": []}, "status": "running", "error": ValueError(), "messages": [],
        "outcome": "completed", "record": record_of(event(0)), "environment": Runtime(), "value": event(0),
        "ended_before": NOW,
    }  # fmt: skip
    calls: list[Callable[..., Any]] = [normalise, record_of]
    for face in (log.runs, log.replay, log.checks, log.states):
        methods = inspect.getmembers(type(face), inspect.isfunction)
        calls += [getattr(face, name) for name, _ in methods if not name.startswith("_") and name != "update"]
    writer = start(log, "55555555-5555-4555-8555-555555555555")
    last = ("end", "close", "after_fork")
    methods = inspect.getmembers(RunWriter, inspect.isfunction)
    calls += [getattr(writer, name) for name, _ in methods if not name.startswith("_") and name not in last]
    assert [wrong for call in (*calls, writer.end) for wrong in attacked(call, known)] == []
    for name in ("state", "environment", "previous", "system_prompt"):
        for value in HOSTILE:
            with suppress(StateError):
                prepare_resume(**{"state": state, "environment": Runtime(), name: value})
    writer.close()
    assert log.checks.validate(writer.run_id).ok
