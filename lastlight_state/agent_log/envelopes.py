"""The lines of an agent's log, as objects.

The order of keys is part of the format; keys without a value are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from lastlight_state.agent_log.arguments import NO_TOKENS, Tokens
from lastlight_state.clock import iso_text, to_millis

Envelope: TypeAlias = dict[str, Any]
Number: TypeAlias = int | float


class Stamp(NamedTuple):
    """Time and session id, with which almost every line ends."""

    moment: datetime
    session_id: str

    def keys(self) -> dict[str, str]:
        """The last keys of a line."""
        return {"timestamp": iso_text(self.moment), "sessionId": self.session_id}


class Totals(NamedTuple):
    """Turns, cost and tokens of a run."""

    turns: Number = 0
    cost_usd: Number = 0
    tokens: Tokens = NO_TOKENS


def user(content: str | list[Envelope], stamp: Stamp) -> Envelope:
    """A prompt or message of the user, or tool results."""
    return {"type": "user", "message": {"role": "user", "content": content}} | stamp.keys()


def tool_result(tool_use_id: str, content: str, *, is_error: bool) -> Envelope:
    """The block of a tool's result."""
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    return block | {"is_error": True} if is_error else block


def assistant(content: list[Envelope], stamp: Stamp, *, model: str | None, tokens: Tokens | None = None) -> Envelope:
    """A message of the agent. The usage is left out when all its tokens are 0."""
    message: Envelope = {"role": "assistant"}
    if model is not None:
        message["model"] = model
    message["content"] = content
    if tokens is not None and any(tokens):
        message["usage"] = usage(tokens)
    return {"type": "assistant", "message": message} | stamp.keys()


def usage(tokens: Tokens) -> Envelope:
    """The usage of a message."""
    return {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_creation,
    }


def api_error(text: str, stamp: Stamp) -> Envelope:
    """An error of the agent or its provider. It has no message."""
    return {"type": "assistant", "isApiErrorMessage": True, "error": text} | stamp.keys()


def result(
    subtype: str, text: str, totals: Totals, moment: datetime, *, duration_ms: Number, stop_reason: str | None
) -> Envelope:
    """The end of a run. It has no session id."""
    envelope = {
        "type": "result",
        "subtype": subtype,
        "result": text,
        "num_turns": totals.turns,
        "total_cost_usd": totals.cost_usd,
    }
    envelope |= {f"total_{key}": count for key, count in usage(totals.tokens).items()}
    envelope["duration_ms"] = duration_ms
    if stop_reason is not None:
        envelope["stop_reason"] = stop_reason
    return envelope | {"timestamp": iso_text(moment)}


def is_record(value: Envelope) -> bool:
    """Whether an object found inside a damaged line is a whole record of an agent's log, not a part of one."""
    if not isinstance(value.get("type", value.get("role")), str) or not isinstance(value.get("timestamp"), str):
        return False
    return isinstance(value.get("sessionId"), str) or (value.get("type") == "result" and "num_turns" in value)


def time_of(value: Mapping[str, Any]) -> datetime | None:
    """The time of a line, as aware UTC in milliseconds; None if it has no readable time."""
    return parse_time(value.get("timestamp"))


def parse_time(text: object) -> datetime | None:
    """The time of an ISO 8601 text, in UTC unless it has an offset; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return to_millis(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))
    except (ValueError, OverflowError):
        return None
