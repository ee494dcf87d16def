"""What an agent tells may have any shape: it is written as JSON, counted, or refused by an error of ours."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hostile import HOSTILE

from lastlight_state.errors import StateError
from lastlight_state.files.agent_log import AgentLog, CommandRecord, Cwd, Outcome, SessionWriter, TranslationOptions

VALUES = [value for value in HOSTILE if not (isinstance(value, str) and len(value) > 10_000)]
EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_end",
        "message": {
            "role": "assistant",
            "content": [{"type": "text", "text": "x"}, {"type": "toolCall", "id": "t1", "name": "n", "arguments": {}}],
            "usage": {"input": 1, "output": 2, "cost": {"total": 0.1}},
            "stopReason": "stop",
        },
    },
    {"type": "tool_execution_end", "toolCallId": "t1", "result": "r", "isError": False, "timestamp": 1},
    {"type": "usage_snapshot", "stats": {"assistantMessages": 1, "cost": 0.1, "tokens": {"input": 1}}},
    {"type": "usage_snapshot", "turns": 1, "costUsd": 0.1},
    {"type": "fatal_error", "error": {"message": "m"}},
    {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 2, "delayMs": 5, "errorMessage": "e"},
    {"type": "skills_status", "status": "x", "skills": ["a"]},
    {"type": "extension_status", "extension": "e"},
]
OUTCOMES = ("subtype", "stop_reason", "result", "turns", "cost_usd", "tokens", "duration_ms", "error")
COMMANDS = ("command", "exit_code", "stdout", "stderr", "prompt", "model", "started_at", "finished_at")


def changed(value: Any, chance: random.Random) -> Any:
    """The value with something hostile in a place of it."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        return {**value, name: changed(value[name], chance)}
    if isinstance(value, list) and value and chance.random() < 0.7:
        return [changed(value[0], chance), *value[1:]]
    return chance.choice(VALUES)


def acts(log: AgentLog, writer: SessionWriter, chance: random.Random) -> list[Callable[[], object]]:
    event, value = changed(chance.choice(EVENTS), chance), chance.choice(VALUES)
    return [
        lambda: writer.feed(event),
        lambda: writer.feed(event),
        lambda: writer.feed_many(chance.choice(([event, value], value))),
        lambda: writer.append(chance.choice(([{"type": "x", "a": value}, value], value))),
        lambda: writer.finish(Outcome(**{"subtype": "success", chance.choice(OUTCOMES): value})),
        lambda: writer.finish_failed(value, Outcome(), error=value),
        lambda: log.writer.record_command(
            CommandRecord(**{"command": "ls", "exit_code": 0, chance.choice(COMMANDS): value}), place=Cwd("/app")
        ),
        lambda: log.writer.open(place=value, session_id=value, prompt=value).close(),
    ]


def attack(log: AgentLog, rounds: int, chance: random.Random) -> int:
    """Feed hostile events; how many calls were refused. Other errors than ours are raised."""
    refused = 0
    options = chance.choice((TranslationOptions(), TranslationOptions.later()))
    with log.writer.open(place=Cwd("/app"), session_id="s-1", prompt="x", options=options) as writer:
        for _ in range(rounds):
            try:
                chance.choice(acts(log, writer, chance))()
            except StateError:
                refused += 1
    return refused


@pytest.mark.parametrize("rounds", [400, pytest.param(13_000, marks=pytest.mark.soak)])
def test_events_of_any_shape_are_written_as_json_or_refused_by_an_error_of_ours(log: AgentLog, rounds: int) -> None:
    """agent-log L-67."""
    assert attack(log, rounds, random.Random(time.time())) > 0
    for path in log.root.rglob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            json.loads(line)
    assert log.repair.check("s-1").issue_count == 0


def test_a_hundred_scans_that_nobody_goes_on_with_hold_no_file_open(log: AgentLog) -> None:
    """agent-log L-141."""
    with log.writer.open(place=Cwd("/app"), session_id="s-1", prompt="x") as writer:
        for _ in range(50):
            writer.append([{"type": "x", "text": "y" * 20_000}])
    before = len(list(Path("/proc/self/fd").iterdir()))
    scans = [log.reader.scan("s-1") for _ in range(100)]
    assert len({next(scan).offset for scan in scans}) == 1
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    assert len(list(scans[0])) == 50
