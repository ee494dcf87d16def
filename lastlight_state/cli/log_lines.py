"""A record of an event log as one line for people: when, what, and the beginning of what was said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from lastlight_state import codec
from lastlight_state.agent_log import LogLine
from lastlight_state.cli.screen import GAP, Screen

SHORT = 160
KIND_WIDTH = 9

_STYLES = {"user": "bold", "tool": "dim", "result": "green", "error": "red"}


def text_of(line: LogLine, screen: Screen) -> Text:
    """The line of a record."""
    kind, said = _told(line)
    when = screen.shown(line.timestamp) if line.timestamp else "-" * 24
    marked = f"{kind:<{KIND_WIDTH}}"
    shown = screen.shown(said if len(said) <= SHORT else f"{said[:SHORT]}… [{len(said):,} characters]")
    return Text.assemble((when, "dim"), GAP, (marked, _STYLES.get(kind, "")), GAP, shown)


def _told(line: LogLine) -> tuple[str, str]:
    value = line.value
    if value.get("isApiErrorMessage") is True:
        return "error", str(value.get("error", ""))
    if line.type == "result":
        turns, cost = value.get("num_turns", 0), value.get("total_cost_usd", 0)
        return "result", f"{value.get('subtype')}, {turns} turns, ${cost:.4f}, {value.get('stop_reason') or '-'}"
    message = value.get("message")
    if not isinstance(message, Mapping):
        return str(line.type or value.get("role") or "-"), str(value.get("content") or value.get("subtype") or "")
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": str(content)}]
    kinds = {block.get("type") for block in blocks if isinstance(block, Mapping)}
    kind = "tool" if kinds == {"tool_result"} else str(line.type)
    return kind, " ".join(_of_blocks(blocks))


def _of_blocks(blocks: list[Any]) -> Iterator[str]:
    for block in blocks:
        if not isinstance(block, Mapping):
            continue
        match block.get("type"):
            case "text":
                yield str(block.get("text"))
            case "tool_use":
                given = codec.dump_line(block.get("input")).decode().strip()
                yield f"-> {block.get('name')} {given}"
            case "tool_result":
                failed = "failed: " if block.get("is_error") else ""
                yield f"{failed}{block.get('content')}"
            case other:
                yield f"({other})"
