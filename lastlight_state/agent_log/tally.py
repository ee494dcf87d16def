"""Tally: the counts of a summary, taken line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from lastlight_state.agent_log import envelopes, events, messages
from lastlight_state.agent_log.records import LogUsage, RunResult

PROMPT_CHARACTERS, TEXT_CHARACTERS = 500, 4_000
NOTHING = LogUsage()
_MILLISECOND = timedelta(milliseconds=1)
_COUNTED = frozenset({"user", "assistant", "tool"})


@dataclass
class Tally:
    """Counts, and first and last values, of the lines so far. Session types are found in ``prompt_blocks``."""

    first_at: datetime | None = None
    last_at: datetime | None = None
    told_start: datetime | None = None
    source: str | None = None
    model: str | None = None
    message_count: int = 0
    tool_call_count: int = 0
    first_prompt: str | None = None
    prompt_blocks: str = ""
    last_text: str = ""
    agent_ids: tuple[str, ...] = ()
    result_count: int = 0
    last_result: RunResult | None = None
    #: What the runs before the one of the last result used, and whether anything but errors came since that result.
    earlier: LogUsage = NOTHING
    went_on: bool = False
    error_count: int = 0

    def add(self, value: Mapping[str, Any]) -> None:
        """Count one line."""
        self._add_time(envelopes.time_of(value))
        agent = events.text(value, "agentId")
        if agent and agent not in self.agent_ids:
            self.agent_ids += (agent,)
        if value.get("type") == "result":
            self._add_result(_result(value))
        elif value.get("role") == "session_meta":
            self._add_meta(value)
        else:
            is_error = value.get("isApiErrorMessage") is True
            self.error_count += is_error
            self.went_on |= not is_error
            for message in messages.parts_of(value):
                self._add_message(message, value)

    def add_file(self, other: Tally) -> None:
        """Add the counts of a sub-agent's file; first and last values stay those of the main log."""
        self._add_time(other.first_at)
        self._add_time(other.last_at)
        self.model = self.model or other.model
        self.message_count += other.message_count
        self.tool_call_count += other.tool_call_count
        self.error_count += other.error_count
        self.agent_ids += tuple(agent for agent in other.agent_ids if agent not in self.agent_ids)

    def _add_result(self, result: RunResult) -> None:
        last = self.last_result
        if last is not None and self.went_on and not _same_run(last, result):
            self.earlier = self.earlier.plus(last)
        self.result_count += 1
        self.last_result = result
        self.went_on = False

    def _add_time(self, moment: datetime | None) -> None:
        if moment is not None:
            self.first_at = moment if self.first_at is None else min(self.first_at, moment)
            self.last_at = moment if self.last_at is None else max(self.last_at, moment)

    def _add_meta(self, value: Mapping[str, Any]) -> None:
        self.source = events.text(value, "platform") or events.text(value, "source") or self.source
        self.model = events.text(value, "model") or self.model
        self.told_start = envelopes.time_of(value) or self.told_start

    def _add_message(self, message: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        role, content = message["role"], message["content"]
        self.message_count += role in _COUNTED
        self.tool_call_count += len(message.get("tool_calls", ()))
        if role == "assistant":
            self.model = self.model or message.get("model")
            if isinstance(content, str) and content:
                self.last_text = content[:TEXT_CHARACTERS]
        elif role == "user" and self.first_prompt is None:
            self.first_prompt = messages.text_of(content)[:PROMPT_CHARACTERS]
            blocks = messages.text_of(messages.content_of(value), joined_by=" ")
            self.prompt_blocks = blocks[:PROMPT_CHARACTERS]


def _same_run(last: RunResult, result: RunResult) -> bool:
    """Whether two results have the same beginning, to the millisecond that rounding takes."""
    if last.timestamp is None or result.timestamp is None:
        return False
    passed = (result.timestamp - last.timestamp) / _MILLISECOND
    return abs(passed - (result.duration_ms - last.duration_ms)) <= 1


def _result(value: Mapping[str, Any]) -> RunResult:
    return RunResult(
        subtype=events.text(value, "subtype"),
        stop_reason=events.text(value, "stop_reason") or events.text(value, "subtype"),
        result=(events.text(value, "result") or "")[:TEXT_CHARACTERS],
        turns=_number(value, "num_turns"),
        cost_usd=_number(value, "total_cost_usd"),
        input_tokens=_number(value, "total_input_tokens"),
        output_tokens=_number(value, "total_output_tokens"),
        cache_read_input_tokens=_number(value, "total_cache_read_input_tokens"),
        cache_creation_input_tokens=_number(value, "total_cache_creation_input_tokens"),
        duration_ms=_number(value, "duration_ms"),
        timestamp=envelopes.time_of(value),
    )


def _number(value: Mapping[str, Any], name: str) -> float:
    told = events.number(value.get(name))
    return 0 if told is None or not isfinite(told) else told
