"""Records, prompts and messages of run logs: as lines for people, or as objects for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from lastlight_state import codec
from lastlight_state.cli.call import Call
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.tables import GAP
from lastlight_state.plain import plain
from lastlight_state.run_log import PromptTurn, RunRecord

SHORT = 160
_TYPE_WIDTH, _ROLE_WIDTH = 12, 9
#: Fields of a record that every line has, or that say nothing to people.
_COMMON = frozenset({"type", "run_id", "session_id", "ts", "meta", "schema_version", "started_at"})


def shown(record: RunRecord, call: Call) -> Any:
    """Return a record."""
    value = record.to_json()
    if call.flags.json:
        return {"record": value, "recovered": record.recovered}
    screen = call.output.screen
    told = {name: part for name, part in value.items() if name not in _COMMON}
    when = value.get("ts") or value.get("started_at")
    return _line(screen, when if isinstance(when, str) else "-", record.type, _TYPE_WIDTH, told)


def of_turn(turn: PromptTurn, call: Call) -> Iterator[Any]:
    """Return an invocation: its prompt and its answer."""
    request, response = turn.request.to_json(), turn.response.to_json() if turn.response else None
    if call.flags.json:
        yield {"seq": turn.seq, "request": request, "response": response}
        return
    screen = call.output.screen
    yield screen.heading(f"prompt {turn.seq}{'' if turn.response else ' (no answer)'}")
    answer = turn.response.output.messages if turn.response else ()
    yield from (of_message(message, screen) for message in (*turn.request.input.messages, *answer))


def of_message(message: dict[str, Any], screen: Screen) -> Text:
    """Return a message of a prompt or history."""
    told = {name: part for name, part in message.items() if name != "role" and part is not None}
    only = told.get("content") if told.keys() == {"content"} else told
    role = message.get("role")
    return _line(screen, None, role if isinstance(role, str) else "-", _ROLE_WIDTH, only)


def _line(screen: Screen, when: str | None, kind: str, width: int, told: Any) -> Text:
    text = told if isinstance(told, str) else codec.encode_sound(plain(told)).decode()
    short = screen.shown(text if len(text) <= SHORT else f"{text[:SHORT]}… [{len(text):,} characters]")
    marked = f"{screen.shown(kind[:SHORT]):<{width}}"
    line = Text.assemble((marked, "bold"), GAP, short)
    return line if when is None else Text.assemble((screen.shown(when[:SHORT]), "dim"), GAP, line)
