"""A record of an event log as one line for people: when, what, and the beginning of what was said."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from lastlight_state.agent_log import LogLine, LogMessage
from lastlight_state.agent_log.messages import messages_of
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.tables import GAP

SHORT = 160
#: Beyond this a cost is no cost, and its digits would fill the screen.
_MOST_COST = 1e15
KIND_WIDTH = 9

_STYLES = {"user": "bold", "tool": "dim", "result": "green", "error": "red"}


def text_of(line: LogLine, screen: Screen) -> Text:
    """Return the line of a record."""
    kind, said = _told(line)
    when = screen.shown(line.timestamp) if line.timestamp else "-" * 24
    marked = f"{screen.shown(kind[:SHORT]):<{KIND_WIDTH}}"
    shown = screen.shown(said if len(said) <= SHORT else f"{said[:SHORT]}… [{len(said):,} characters]")
    return Text.assemble((when, "dim"), GAP, (marked, _STYLES.get(kind, "")), GAP, shown)


def _told(line: LogLine) -> tuple[str, str]:
    value = line.value
    if line.type == "result":
        turns, cost = value.get("num_turns", 0), value.get("total_cost_usd", 0)
        told = f"${cost:.4f}" if isinstance(cost, int | float) and abs(cost) < _MOST_COST else f"cost {cost!r:.40}"
        return "result", f"{value.get('subtype')}, {turns!r:.40} turns, {told}, {value.get('stop_reason') or '-'}"
    messages = messages_of(line)
    if not messages:
        return line.type or "-", str(value.get("subtype") or "")
    kind = "error" if value.get("isApiErrorMessage") is True else messages[0].role
    return kind, " ".join(part for message in messages for part in _parts(message))


def _parts(message: LogMessage) -> Iterator[str]:
    if message.is_error:
        yield "failed:"
    if message.content:
        yield str(message.content)
    for call in message.tool_calls:
        yield f"-> {call['function']['name']} {call['function']['arguments']}"
