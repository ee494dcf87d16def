"""Translator: an agent's events in, lines out. Pure: no files, no clock.

It remembers the run so far: its tool calls, the usage summed over its messages, the errors written, and whether a
result line ends it. A caller whose write failed can go back to an earlier state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from lastlight_state.agent_log import envelopes, events
from lastlight_state.agent_log.arguments import NO_TOKENS, Event, Outcome, Tokens, TranslationOptions
from lastlight_state.agent_log.envelopes import Envelope, Number, Stamp, Totals
from lastlight_state.agent_log.writer.breadcrumbs import BREADCRUMBS

ERROR_SUBTYPE = "error_during_execution"
_FAILED_STOPS = frozenset({"error", "aborted"})


@dataclass(frozen=True, slots=True)
class Progress:
    """The run so far. ``result`` is the subtype of the result line, if that is the last line written."""

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
    """The lines of one session's events."""

    def __init__(self, options: TranslationOptions, model: str | None) -> None:
        self._options = options
        self._model = model
        self._progress = Progress()
        self._calls: dict[str, None] = {}  # ids of tool calls; a dict, because the last ones can be taken back
        self._rules: Mapping[str, Callable[[Event, Stamp], list[Envelope] | None]] = {
            "message_end": self._message_end,
            "tool_execution_end": self._tool_execution_end,
            "usage_snapshot": self._usage_snapshot,
            "fatal_error": self._fatal_error,
        }

    def mark(self) -> Mark:
        """The present state, for `back_to`."""
        return self._progress, len(self._calls)

    def back_to(self, mark: Mark) -> None:
        """Go back to the state of the mark."""
        self._progress, calls = mark
        while len(self._calls) > calls:
            self._calls.popitem()

    def begin(self, moment: datetime) -> None:
        """Note when the first event happened."""
        if self._progress.started_at is None:
            self._note(started_at=moment)

    def translate(self, event: Event, stamp: Stamp) -> list[Envelope] | None:
        """The lines of an event; None for an unknown type or missing fields."""
        kind = events.text(event, "type") or ""
        if kind in BREADCRUMBS:
            line = BREADCRUMBS[kind](event, stamp)
            if line is None:
                return None
            return [line] if self._options.breadcrumbs == "write" else []
        rule = self._rules.get(kind)
        return rule(event, stamp) if rule else None

    def written(self, envelope: Envelope) -> None:
        """Note a line that goes into the file, also one that is not from an event."""
        if envelope.get("type") == "result":
            self._note(result=str(envelope.get("subtype")), has_failed=False)
            return
        self._note(result=None)
        if envelope.get("isApiErrorMessage") is True and isinstance(envelope.get("error"), str):
            self._note(errors=(*self._progress.errors, envelope["error"]))

    def closing(self, outcome: Outcome, stamp: Stamp, *, error: str | None = None) -> list[Envelope]:
        """The lines that end the run and are not written yet: its errors, then its result."""
        known = self._progress.errors
        texts = [text for text in dict.fromkeys((error, outcome.error)) if text and text not in known]
        lines = [envelopes.api_error(text, stamp) for text in texts]
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
        return [envelopes.assistant(blocks, stamp, model=self._model, tokens=tokens)]

    def _block(self, block: Any) -> Envelope | None:
        """A block of an assistant's message as it stands in the line; None for a block that is dropped."""
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
        return [envelopes.user([envelopes.tool_result(call, content, is_error=event.get("isError") is True)], stamp)]

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
        return [envelopes.api_error(events.error_text(event), stamp)]

    def _result_of(self, outcome: Outcome, moment: datetime) -> Envelope:
        told = self._totals()
        totals = Totals(
            told.turns if outcome.turns is None else outcome.turns,
            told.cost_usd if outcome.cost_usd is None else float(outcome.cost_usd),
            outcome.tokens or told.tokens,
        )
        elapsed = (moment - (self._progress.started_at or moment)) // timedelta(milliseconds=1)
        return envelopes.result(
            outcome.subtype,
            self._progress.last_text if outcome.result is None else outcome.result,
            totals,
            moment,
            duration_ms=max(0, elapsed) if outcome.duration_ms is None else outcome.duration_ms,
            stop_reason=outcome.stop_reason,
        )

    def _totals(self) -> Totals:
        """The sums over the messages if they told tokens, else the snapshot, which a compaction sets to zero."""
        summed = self._progress
        snapshot = summed.snapshot or Totals(turns=summed.turns)
        if not any(summed.tokens):
            return snapshot
        cost = snapshot.cost_usd if summed.cost_usd is None else summed.cost_usd
        return Totals(max(snapshot.turns, summed.turns), cost, summed.tokens)

    def _note(self, **changes: Any) -> None:
        self._progress = replace(self._progress, **changes)
