"""Translator: turns an agent's events into lines. Uses no files and no clock.

It records the run so far: the tool calls, the sum of the messages' usage, the errors written, and whether a result line
ends the run. A caller whose write failed can go back to an earlier state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import floor, isfinite
from typing import Any, TypeAlias

from lastlight_state.clock import iso_text
from lastlight_state.files.agent_log import events
from lastlight_state.files.agent_log.arguments import (
    NO_TOKENS,
    CommandRecord,
    Event,
    Outcome,
    Tokens,
    TranslationOptions,
)
from lastlight_state.files.agent_log.events import Envelope, Number, Stamp, Totals
from lastlight_state.reprs import repr_of

# Breadcrumbs: lines for events around the messages, which a dashboard may show.

_LONGEST_REASON, _KEPT_OF_LONGER = 200, 197
_EXTENSION_FIELDS = ("status", "mode", "provider", "toolCount", "reason")
_SKILL_FIELDS = ("discovered", "skills", "mappedPaths", "noSkills")
_LISTS = frozenset({"skills", "mappedPaths"})


def _extension_status(event: Event, stamp: Stamp) -> Envelope | None:
    extension = events.text(event, "extension")
    if extension is None:
        return None
    told = {name: event[name] for name in _EXTENSION_FIELDS if name in event}
    return {"type": "system", "subtype": "extension_status", "extension": extension} | told | stamp.keys()


def _skills_status(event: Event, stamp: Stamp) -> Envelope | None:
    status = events.text(event, "status")
    if status is None:
        return None
    told = {
        name: event[name]
        for name in _SKILL_FIELDS
        if name in event and (name not in _LISTS or isinstance(event[name], list))
    }
    return {"type": "system", "subtype": "skills_status", "status": status} | told | stamp.keys()


def _auto_retry_start(event: Event, stamp: Stamp) -> Envelope:
    attempt, most, delay = (_whole(event.get(name)) for name in ("attempt", "maxAttempts", "delayMs"))
    attempts = "" if attempt is None else f" {attempt}" + ("" if most is None else f"/{most}")
    seconds = "" if delay is None else f" in {floor(delay / 1000 + 0.5)}s"
    reason = events.text(event, "errorMessage")
    text = _in_one_line("transient error" if reason is None else reason)
    return _note("auto_retry_start", f"⏳ Auto-retry{attempts}{seconds} after model error: {text}", stamp)


def _auto_retry_end(event: Event, stamp: Stamp) -> Envelope:
    attempt = _whole(event.get("attempt"))
    attempts = "" if attempt is None else f" {attempt}"
    error = events.text(event, "finalError")
    if not error:
        return _note("auto_retry_end", f"✓ Auto-retry recovered after{attempts} attempt(s).", stamp)
    return _note("auto_retry_end", f"❌ Auto-retry gave up after{attempts} attempt(s): {_in_one_line(error)}", stamp)


#: By type of event: the function that returns its line, or None if the event is malformed.
BREADCRUMBS: Mapping[str, Callable[[Event, Stamp], Envelope | None]] = {
    "extension_status": _extension_status,
    "skills_status": _skills_status,
    "auto_retry_start": _auto_retry_start,
    "auto_retry_end": _auto_retry_end,
}


def _note(subtype: str, content: str, stamp: Stamp) -> Envelope:
    return {"role": "system", "subtype": subtype, "content": content} | stamp.keys()


def _whole(value: object) -> int | float | None:
    told = events.number(value)
    if told is None or not isfinite(told):
        return None
    return int(told) if told == int(told) else told


def _in_one_line(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _LONGEST_REASON else line[:_KEPT_OF_LONGER] + "…"


# The events of a session that ran one shell command.

TOOL = "bash"
NO_OUTPUT = "(no output)"


def events_of(
    command: CommandRecord, session_id: str, call_id: str, started_at: datetime, finished_at: datetime
) -> list[Event]:
    """Return the events of a command's session: the call, its result, a text about the outcome, totals without cost."""
    has_failed = command.exit_code != 0
    started, finished = iso_text(started_at), iso_text(finished_at)
    call = {"type": "toolCall", "id": call_id, "name": TOOL, "arguments": {"command": command.command}}
    outcome = "failed" if has_failed else "succeeded"
    text = {"type": "text", "text": f"Command {outcome} (exit {repr_of(command.exit_code, 80)})."}
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


ERROR_SUBTYPE = "error_during_execution"
_FAILED_STOPS = frozenset({"error", "aborted"})


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the run so far. ``result`` is the subtype of the result line, if that was the last line written."""

    started_at: datetime | None = None
    turns: int = 0
    tokens: Tokens = NO_TOKENS
    cost_usd: Number | None = None
    snapshot: Totals | None = None
    last_text: str = ""
    last_stop: str | None = None
    has_failed: bool = False
    errors: tuple[str, ...] = ()
    result: str | None = None


Mark: TypeAlias = tuple[Progress, int]


class Translator:
    """Translates the events of one session."""

    def __init__(self, options: TranslationOptions, model: str | None) -> None:
        self._options = options
        self._model = model
        self._progress = Progress()
        self._calls: dict[str, None] = {}  # ids of tool calls; a dict, because the last ones can be removed again
        self._rules: Mapping[str, Callable[[Event, Stamp], list[Envelope] | None]] = {
            "message_end": self._message_end,
            "tool_execution_end": self._tool_execution_end,
            "usage_snapshot": self._usage_snapshot,
            "fatal_error": self._fatal_error,
        }

    def mark(self) -> Mark:
        """Return the present state, to be passed to `back_to`."""
        return self._progress, len(self._calls)

    def back_to(self, mark: Mark) -> None:
        """Restore the state that `mark` returned."""
        self._progress, calls = mark
        while len(self._calls) > calls:
            self._calls.popitem()

    def begin(self, moment: datetime) -> None:
        """Record the time of the first event."""
        if self._progress.started_at is None:
            self._note(started_at=moment)

    def translate(self, event: Event, stamp: Stamp) -> list[Envelope] | None:
        """Return the lines of an event; None for an unknown type or missing fields."""
        kind = events.text(event, "type") or ""
        if kind in BREADCRUMBS:
            line = BREADCRUMBS[kind](event, stamp)
            if line is None:
                return None
            return [line] if self._options.breadcrumbs == "write" else []
        rule = self._rules.get(kind)
        return rule(event, stamp) if rule else None

    def record_line(self, envelope: Envelope) -> None:
        """Record a line that is written to the file, even a line that does not come from an event."""
        if envelope.get("type") == "result":
            self._note(result=str(envelope.get("subtype")), has_failed=False)
            return
        if self._progress.result is not None:
            self._note(result=None)
        if envelope.get("isApiErrorMessage") is True and isinstance(envelope.get("error"), str):
            self._note(errors=(*self._progress.errors, envelope["error"]))

    def closing_lines(self, outcome: Outcome, stamp: Stamp, *, error: str | None = None) -> list[Envelope]:
        """Return the lines that are missing at the end of the run: its errors, then its result."""
        known = self._progress.errors
        texts = [text for text in dict.fromkeys((error, outcome.error)) if text and text not in known]
        lines = [events.api_error(text, stamp) for text in texts]
        if lines or self._progress.result != outcome.subtype:
            lines.append(self._result_of(outcome, stamp.moment))
        return lines

    def _message_end(self, event: Event, stamp: Stamp) -> list[Envelope] | None:
        message = event.get("message")
        if not isinstance(message, Mapping):
            return None
        content = message.get("content")
        if message.get("role") != "assistant" or not isinstance(content, list):
            return []
        blocks = [block for block in map(self._block, content) if block is not None]
        self._count(message, "\n".join(block["text"] for block in blocks if block["type"] == "text"))
        if not blocks:
            return []
        tokens = events.message_tokens(message) if self._options.message_usage == "write" else None
        return [events.assistant(blocks, stamp, model=self._model, tokens=tokens)]

    def _block(self, block: Any) -> Envelope | None:
        """Return the line's form of a block of an assistant's message; None for a block that is dropped."""
        if not isinstance(block, Mapping):
            return None
        kind = block.get("type")
        if kind in ("text", "thinking"):
            text = events.text(block, kind)
            if text is None or (kind == "thinking" and (self._options.thinking == "drop" or not text)):
                return None
            return {"type": kind, kind: text}
        name, call = events.text(block, "name"), events.text(block, "id")
        if kind != "toolCall" or not name or not call:
            return None
        self._calls.setdefault(call)
        arguments = block.get("arguments")
        return {"type": "tool_use", "id": call, "name": name, "input": {} if arguments is None else arguments}

    def _count(self, message: Event, text: str) -> None:
        before = self._progress
        cost = events.message_cost(message)
        tokens = events.message_tokens(message)
        stop = events.text(message, "stopReason")
        self._note(
            turns=before.turns + 1,
            tokens=Tokens(*(had + more for had, more in zip(before.tokens, tokens, strict=True))),
            cost_usd=before.cost_usd if cost is None else (before.cost_usd or 0) + cost,
            last_text=text,
            last_stop=stop,
            has_failed=before.has_failed or stop in _FAILED_STOPS,
        )

    def _tool_execution_end(self, event: Event, stamp: Stamp) -> list[Envelope] | None:
        call = events.text(event, "toolCallId") or events.text(event, "id")
        if not call or (self._options.orphan_results == "drop" and call not in self._calls):
            return None
        told = next((event[name] for name in ("result", "output", "error") if event.get(name) is not None), "")
        content = told if isinstance(told, str) else events.compact_json(told)
        return [events.user([events.tool_result(call, content, is_error=event.get("isError") is True)], stamp)]

    def _usage_snapshot(self, event: Event, stamp: Stamp) -> list[Envelope] | None:
        totals = events.snapshot_totals(event)
        if totals is None:
            return None
        self._note(snapshot=totals)
        if self._options.results == "finish":
            return []
        subtype = ERROR_SUBTYPE if self._progress.has_failed else "success"
        outcome = Outcome(subtype, stop_reason=self._progress.last_stop)
        return [self._result_of(outcome, stamp.moment)]

    def _fatal_error(self, event: Event, stamp: Stamp) -> list[Envelope]:
        self._note(has_failed=True)
        return [events.api_error(events.error_text(event), stamp)]

    def _result_of(self, outcome: Outcome, moment: datetime) -> Envelope:
        told = self._totals()
        totals = Totals(
            told.turns if outcome.turns is None else outcome.turns,
            told.cost_usd if outcome.cost_usd is None else float(outcome.cost_usd),
            outcome.tokens or told.tokens,
        )
        elapsed = (moment - (self._progress.started_at or moment)) // timedelta(milliseconds=1)
        return events.result(
            outcome.subtype,
            self._progress.last_text if outcome.result is None else outcome.result,
            totals,
            moment,
            duration_ms=max(0, elapsed) if outcome.duration_ms is None else outcome.duration_ms,
            stop_reason=outcome.stop_reason,
        )

    def _totals(self) -> Totals:
        """Return the sums over the messages if any has token counts, else the snapshot, which compaction resets."""
        summed = self._progress
        snapshot = summed.snapshot or Totals(turns=summed.turns)
        if not any(summed.tokens):
            return snapshot
        cost = snapshot.cost_usd if summed.cost_usd is None else summed.cost_usd
        return Totals(max(snapshot.turns, summed.turns), cost, summed.tokens)

    def _note(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)
