"""What the tests of this domain share: events, places, and looking at what was written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from lastlight_state.files.agent_log import AgentLog, SessionWriter, Slug
from lastlight_state.testing.clock import FrozenClock

FIXTURES = Path(__file__).parents[2] / "fixtures" / "agent_log"
NOW = datetime(2026, 2, 3, 12, 0, 30, tzinfo=UTC)
NOW_TEXT = "2026-02-03T12:00:30.000Z"
AT = "2026-02-03T12:00:01.000Z"
SANDBOX = Slug("-home-agent-workspace")
SESSION = {"type": "session", "id": "s-1", "cwd": "/home/agent/workspace", "timestamp": AT}
MODEL = "anthropic/claude-sonnet-4-6"


def agent_log(tmp_path: Path, **options: Any) -> AgentLog:
    """A log below ``tmp_path`` whose clock stands still at `NOW`."""
    return AgentLog(tmp_path / "agent-sessions", clock=FrozenClock(NOW), **options)


def path_of(log: AgentLog, session_id: str = "s-1", slug: str = SANDBOX.name) -> Path:
    """Where a session's log is."""
    return log.root / "projects" / slug / f"{session_id}.jsonl"


def put(log: AgentLog, data: bytes | str, session_id: str = "s-1", slug: str = SANDBOX.name) -> Path:
    """A log file with this content, as somebody else left it."""
    path = path_of(log, session_id, slug)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def lines_of(path: Path | None) -> list[dict[str, Any]]:
    """The values of a file's lines."""
    assert path is not None
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def said(*content: Any, at: str = AT, **message: Any) -> dict[str, Any]:
    """The event of an assistant's message."""
    return {
        "type": "message_end",
        "message": {"role": "assistant", "content": list(content), **message},
        "timestamp": at,
    }


def text(words: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": words}


def call(call_id: str, name: str = "bash", **arguments: Any) -> dict[str, Any]:
    """A tool call block."""
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def ended(call_id: str, result: Any, **more: Any) -> dict[str, Any]:
    """The event of a tool's result."""
    return {"type": "tool_execution_end", "toolCallId": call_id, "result": result, "timestamp": AT, **more}


def snapshot(**stats: Any) -> dict[str, Any]:
    """The event of a usage snapshot."""
    return {
        "type": "usage_snapshot",
        "stats": {"assistantMessages": 1, "cost": 0.5, "tokens": {}, **stats},
        "timestamp": AT,
    }


def events(name: str = "events.jsonl") -> list[dict[str, Any]]:
    """The events of a whole run."""
    return [orjson.loads(line) for line in (FIXTURES / name).read_bytes().splitlines()]


def written(writer: SessionWriter) -> list[dict[str, Any]]:
    """The lines of a writer's present file."""
    return lines_of(writer.path)


def contents_below(directory: Path) -> list[Path]:
    """Everything below a directory."""
    return sorted(directory.rglob("*"))
