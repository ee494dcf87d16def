"""Reads the fields of an agent's events, which may hold anything. Nothing here raises."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from lastlight_state.agent_log.arguments import Event, Tokens
from lastlight_state.agent_log.envelopes import Number, Totals, parse_time
from lastlight_state.clock import to_millis
from lastlight_state.codec import dump_line
from lastlight_state.errors import InvalidValue

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER_BITS = 64
_NOTHING: Mapping[str, Any] = {}


def text(event: Event, name: str) -> str | None:
    """The field if it is text, else None."""
    value = event.get(name)
    return value if isinstance(value, str) else None


def part(event: Event, name: str) -> Mapping[str, Any]:
    """The field if it is an object, else an empty one."""
    value = event.get(name)
    return value if isinstance(value, Mapping) else _NOTHING


def number(value: Any) -> Number | None:
    """The value if it is a number of at most 64 bits (NaN and infinity included), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return None if isinstance(value, int) and value.bit_length() > _NUMBER_BITS else value


def moment_of(event: Event, now: datetime) -> datetime:
    """The time of the event: its ``timestamp`` in epoch milliseconds or ISO 8601, else now."""
    value = event.get("timestamp")
    milliseconds = number(value)
    if milliseconds is None:
        return parse_time(value) or now
    try:
        return to_millis(_EPOCH + timedelta(milliseconds=int(milliseconds)))
    except (OverflowError, ValueError):  # beyond the years 1 to 9999, or not finite
        return now


def compact_json(value: Any) -> str:
    """The value as JSON text in one line; as its ``repr`` if JSON cannot hold it."""
    try:
        return dump_line(value)[:-1].decode()
    except InvalidValue:
        try:
            return str(value)
        except Exception:  # noqa: BLE001 - a cycle, an integer of too many digits, an object that cannot be shown
            return f"<{type(value).__name__}>"


def message_tokens(message: Event) -> Tokens:
    """The tokens of one message."""
    used = part(message, "usage")
    return Tokens(*(_count(used.get(name)) for name in ("input", "output", "cacheRead", "cacheWrite")))


def message_cost(message: Event) -> Number | None:
    """The cost of one message, a number or the ``total`` of an object; None if it has none."""
    told = part(message, "usage").get("cost")
    cost = number(told.get("total") if isinstance(told, Mapping) else told)
    return cost if cost is not None and isfinite(cost) else None


def snapshot_totals(event: Event) -> Totals | None:
    """The totals of a ``usage_snapshot``, nested in ``stats`` or flat; None without totals."""
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
    """The text of a ``fatal_error``."""
    error = part(event, "error")
    for name in ("message", "name"):
        if error.get(name) is not None:
            return error[name] if isinstance(error[name], str) else compact_json(error[name])
    return "fatal error"


def _count(value: Any) -> Any:
    counted = number(value)
    return counted if counted is not None and isfinite(counted) else 0
