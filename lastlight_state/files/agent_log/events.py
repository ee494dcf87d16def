"""Reading of fields in an agent's events, which may contain anything. No function of this module raises."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

from lastlight_state.clock import iso_text, iso_time, to_millis
from lastlight_state.codec import dump_line
from lastlight_state.db.lists import pages
from lastlight_state.errors import InvalidValue
from lastlight_state.files.agent_log.arguments import NO_TOKENS, Event, Tokens
from lastlight_state.files.jsonl.cursor import START, Mark, mark_of_text

# The lines of an agent's log, as objects.
#
# The order of keys is part of the format; keys without a value are left out.

Envelope: TypeAlias = dict[str, Any]
Number: TypeAlias = int | float


class Stamp(NamedTuple):
    """The time and the session id that end almost every line of a log."""

    moment: datetime
    session_id: str

    def keys(self) -> dict[str, str]:
        """Return time and session id as the last keys of a line."""
        return {"timestamp": iso_text(self.moment), "sessionId": self.session_id}


class Totals(NamedTuple):
    """The turns, cost and tokens of a run."""

    turns: Number = 0
    cost_usd: Number = 0
    tokens: Tokens = NO_TOKENS


def user(content: str | list[Envelope], stamp: Stamp) -> Envelope:
    """Return the line of a user's prompt or message, or of tool results."""
    return {"type": "user", "message": {"role": "user", "content": content}} | stamp.keys()


def tool_result(tool_use_id: str, content: str, *, is_error: bool) -> Envelope:
    """Return the block of a tool's result."""
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": content}
    return block | {"is_error": True} if is_error else block


def assistant(content: list[Envelope], stamp: Stamp, *, model: str | None, tokens: Tokens | None = None) -> Envelope:
    """Return the line of an agent's message. The usage is left out if all its tokens are 0."""
    message: Envelope = {"role": "assistant"}
    if model is not None:
        message["model"] = model
    message["content"] = content
    if tokens is not None and any(tokens):
        message["usage"] = usage(tokens)
    return {"type": "assistant", "message": message} | stamp.keys()


def usage(tokens: Tokens) -> Envelope:
    """Return the usage of a message as a JSON object."""
    return {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_creation,
    }


def api_error(text: str, stamp: Stamp) -> Envelope:
    """Return the line of an error of the agent or its provider. It has no message."""
    return {"type": "assistant", "isApiErrorMessage": True, "error": text} | stamp.keys()


def result(
    subtype: str, text: str, totals: Totals, moment: datetime, *, duration_ms: Number, stop_reason: str | None
) -> Envelope:
    """Return the line of the end of a run. It has no session id."""
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
    """True if an object found in a damaged line is a whole record of an agent's log, not a part of one."""
    if not isinstance(value.get("type", value.get("role")), str) or not isinstance(value.get("timestamp"), str):
        return False
    return isinstance(value.get("sessionId"), str) or (value.get("type") == "result" and "num_turns" in value)


def time_of(value: Mapping[str, Any]) -> datetime | None:
    """Return the time of a line, as aware UTC in milliseconds; or None if it has no readable time."""
    return parse_time(value.get("timestamp"))


def parse_time(text: object) -> datetime | None:
    """Return the time of an ISO 8601 text, in UTC unless it has an offset; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        moment = iso_time(text)
        return to_millis(moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


# The opaque cursor of a log: the positions in its file and in those of its sub-agents.


class Position(NamedTuple):
    """The position in one file, and the latest time before that position. Files are merged by this time."""

    mark: Mark = START
    latest: datetime | None = None


Positions: TypeAlias = Mapping[str, Position]


def to_text(positions: Positions) -> str:
    """Return the cursor that represents these positions."""
    return pages.pack([[name, at.mark.to_text(), at.latest] for name, at in positions.items()])


def of_text(where: str, text: str | None) -> dict[str, Position]:
    """Return the positions in a cursor, by file; empty for None. Raises `InvalidValue` for a damaged cursor."""
    if text is None:
        return {}
    try:
        parts = [(str(name), str(mark), latest) for name, mark, latest in pages.unpack(where, text)]
    except (ValueError, TypeError):
        raise InvalidValue(
            where, "expected a cursor of an earlier call: this one is damaged, or not a cursor"
        ) from None
    return {name: Position(mark_of_text(where, mark), parse_time(latest)) for name, mark, latest in parts}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER_BITS = 64
_NOTHING: Mapping[str, Any] = {}


def text(event: Event, name: str) -> str | None:
    """Return the field if it is text, else None."""
    value = event.get(name)
    return value if isinstance(value, str) else None


def part(event: Event, name: str) -> Mapping[str, Any]:
    """Return the field if it is an object, else an empty one."""
    value = event.get(name)
    return value if isinstance(value, Mapping) else _NOTHING


def number(value: Any) -> Number | None:
    """Return the value if it is a number of at most 64 bits, NaN and infinity included, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isinstance(value, int) and value.bit_length() > _NUMBER_BITS else value


def moment_of(event: Event, now: datetime) -> datetime:
    """Return the time of the event: its ``timestamp`` in epoch milliseconds or ISO 8601, else now."""
    value = event.get("timestamp")
    milliseconds = number(value)
    if milliseconds is None:
        return parse_time(value) or now
    try:
        return to_millis(_EPOCH + timedelta(milliseconds=int(milliseconds)))
    except (OverflowError, ValueError):  # beyond the years 1 to 9999, or not finite
        return now


def compact_json(value: Any) -> str:
    """Return the value as JSON text in one line, or its ``repr`` if JSON cannot hold it."""
    try:
        return dump_line(value)[:-1].decode()
    except InvalidValue:
        try:
            return str(value)
        except Exception:  # noqa: BLE001 - a cycle, an integer of too many digits, an object that cannot be shown
            return f"<{type(value).__name__}>"


def message_tokens(message: Event) -> Tokens:
    """Return the tokens of one message."""
    used = part(message, "usage")
    return Tokens(*(_count(used.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite")))


def message_cost(message: Event) -> Number | None:
    """Return the cost of one message, a number or the ``total`` of an object; None if it has none."""
    told = part(message, "usage").get("cost")
    cost = number(told.get("total") if isinstance(told, Mapping) else told)
    return cost if cost is not None and isfinite(cost) else None


def snapshot_totals(event: Event) -> Totals | None:
    """Return the totals of a ``usage_snapshot``, nested in ``stats`` or flat; None without totals."""
    stats = part(event, "stats")
    if stats:
        tokens = part(stats, "tokens")
        found = [stats.get("assistantMessages"), stats.get("cost")]
        found += [tokens.get(name) for name in ("input", "output", "cacheRead", "cacheWrite")]
    else:
        found = [event.get(name) for name in ("turns", "costUsd", "inputTokens", "outputTokens")]
        found += [event.get(name) for name in ("cacheReadInputTokens", "cacheCreationInputTokens")]
    numbers = [number(value) for value in found]
    if all(value is None for value in numbers):
        return None
    turns, cost, *counts = (0 if value is None else value for value in numbers)
    return Totals(turns, cost, Tokens(*counts))  # type: ignore[arg-type]  # as told, whole floats and NaN included


def error_text(event: Event) -> str:
    """Return the text of a ``fatal_error``."""
    error = part(event, "error")
    for name in ("message", "name"):
        if error.get(name) is not None:
            return error[name] if isinstance(error[name], str) else compact_json(error[name])
    return "fatal error"


def _count(value: Any) -> Any:
    counted = number(value)
    return counted if counted is not None and isfinite(counted) else 0
