"""A shell command as a session."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.agent_log.logs import NOW_TEXT, contents_below, lines_of, path_of
from support.jsonl.lines import counted

from lastlight_state.errors import InvalidValue, UnsafePath
from lastlight_state.files.agent_log import AgentLog, CommandRecord, Cwd

PLACE = Cwd("/home/agent/workspace")
STARTED = datetime(2026, 2, 3, 12, 0, 28, tzinfo=UTC)


def test_a_command_is_a_session_of_five_lines(log: AgentLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-140: in one write."""
    command = CommandRecord("make test", 0, "12 passed", "1 warning", prompt="Run the tests", started_at=STARTED)
    writes = counted(monkeypatch, os, "write")
    session_id = log.writer.record_command(command, place=PLACE, session_id="exec-tests")
    assert (session_id, writes) == ("exec-tests", ["write"])
    prompt, use, result, text, end = lines_of(path_of(log, "exec-tests"))
    call = use["message"]["content"][0]
    block = {"type": "tool_result", "tool_use_id": call["id"], "content": "12 passed\n1 warning"}
    assert prompt["message"]["content"] == "Run the tests"
    assert (call["name"], call["input"]) == ("bash", {"command": "make test"})
    assert result["message"]["content"] == [block]
    assert text["message"]["content"] == [{"type": "text", "text": "Command succeeded (exit 0)."}]
    assert (end["subtype"], end["num_turns"], end["total_cost_usd"], end["duration_ms"]) == ("success", 1, 0, 2_000)
    times = [line["timestamp"] for line in (prompt, use, result, text, end)]
    assert times == ["2026-02-03T12:00:28.000Z"] * 2 + [NOW_TEXT] * 3


def test_a_failed_command_says_so(log: AgentLog) -> None:
    """agent-log L-140: without output, a note that there was none."""
    session_id = log.writer.record_command(CommandRecord("false", 1, model="m"), place=PLACE)
    prompt, use, result, text, end = lines_of(path_of(log, session_id))
    assert (prompt["message"]["content"], use["message"]["model"]) == ("false", "m")
    assert result["message"]["content"][0]["content"] == "(no output)"
    assert result["message"]["content"][0]["is_error"] is True
    assert text["message"]["content"][0]["text"] == "Command failed (exit 1)."
    assert end["subtype"].startswith("error_")
    assert log.sessions.summary(session_id).tool_call_count == 1


def test_long_output_of_a_command_is_kept_whole(log: AgentLog) -> None:
    """agent-log L-70, L-71."""
    session_id = log.writer.record_command(CommandRecord("cat big", 0, "x" * 100_000), place=PLACE)
    block = lines_of(path_of(log, session_id))[2]["message"]["content"][0]
    assert block["content"].endswith("…[truncated 34464 chars]")
    assert log.raw.get(session_id, block["raw_ref"]["sha256"]) == b"x" * 100_000


def test_a_command_that_cannot_be_logged_leaves_nothing(log: AgentLog, tmp_path: Path) -> None:
    """agent-log L-12."""
    with pytest.raises(UnsafePath):
        log.writer.record_command(CommandRecord("x", 0), place=PLACE, session_id="../x")
    with pytest.raises(InvalidValue):
        log.writer.record_command(CommandRecord("x", 0, started_at=datetime(2026, 1, 1)), place=PLACE)  # noqa: DTZ001
    assert contents_below(tmp_path) == []
