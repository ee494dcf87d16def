"""A shell command as the events of a session that ran it. Pure."""

from __future__ import annotations

from datetime import datetime

from lastlight_state.agent_log.arguments import CommandRecord, Event
from lastlight_state.clock import iso_text
from lastlight_state.reprs import shown

TOOL = "bash"
NO_OUTPUT = "(no output)"


def events_of(
    command: CommandRecord, session_id: str, call_id: str, started_at: datetime, finished_at: datetime
) -> list[Event]:
    """The session, the call, its result, a text that says how it went, and the totals: one turn, no cost."""
    has_failed = command.exit_code != 0
    started, finished = iso_text(started_at), iso_text(finished_at)
    call = {"type": "toolCall", "id": call_id, "name": TOOL, "arguments": {"command": command.command}}
    outcome = "failed" if has_failed else "succeeded"
    text = {"type": "text", "text": f"Command {outcome} (exit {shown(command.exit_code, 80)})."}
    return [
        {"type": "session", "id": session_id, "timestamp": started},
        {"type": "message_end", "message": {"role": "assistant", "content": [call]}, "timestamp": started},
        {
            "type": "tool_execution_end",
            "toolCallId": call_id,
            "result": "\n".join(filter(None, (command.stdout, command.stderr))) or NO_OUTPUT,
            "isError": has_failed,
            "timestamp": finished,
        },
        {
            "type": "message_end",
            "message": {"role": "assistant", "content": [text], "stopReason": "error" if has_failed else None},
            "timestamp": finished,
        },
        {"type": "usage_snapshot", "turns": 1, "costUsd": 0, "timestamp": finished},
    ]
