"""The summary of a run, in one pass and constant memory."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.run_log.parts import LlmUsage
from lastlight_state.run_log.reading import RunReading
from lastlight_state.run_log.records import (
    AgentEvent,
    LlmRequest,
    LlmResponse,
    RunContext,
    RunEnd,
    RunError,
    RunHeader,
    RunRecord,
    RunStart,
    RunStatus,
    ToolOutput,
)
from lastlight_state.run_log.replay.records import RunDigest, TokenTotals
from lastlight_state.run_log.runs.heads import STATES, input_text
from lastlight_state.run_log.words import RunState

_TEXT = 1_000
_COMPACTION = "compaction_complete"
_TOKENS = tuple(name for name in TokenTotals.model_fields if name != "responses")


class Tally:
    """Counts the records of a run."""

    def __init__(self, reading: RunReading) -> None:
        self._reading = reading
        self._facts: dict[str, Any] = {}
        self._session_id: str | None = None
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._duration: timedelta | None = None
        self._open: set[int] = set()
        self._counts: Counter[str] = Counter()
        self._usage: dict[str, Counter[str]] = {}

    def digest(self) -> RunDigest:
        """Read the run, and return its summary."""
        for record in self._reading:
            self._add(record)
        reading, facts = self._reading, self._facts
        header = reading.header
        state: RunState = "ended" if reading.ended else STATES[reading.liveness()]
        return RunDigest(
            run_id=reading.run_id,
            session_id=(header.session_id if header else None) or self._session_id,
            started_at=reading.started_at,
            header=header,
            supported=reading.supported,
            input_text=facts.get("input"),
            final=facts.get("final"),
            status=facts.get("status"),
            outcome=facts.get("outcome"),
            state=state,
            first_ts=self._first,
            last_ts=self._last,
            duration=self._duration,
            records=dict(reading.counts),
            invocations=self._counts["invocations"],
            unanswered=len(self._open),
            tool_calls=self._counts["tool_calls"],
            tool_errors=self._counts["tool_errors"],
            errors=self._counts["errors"],
            compactions=self._counts["compactions"],
            usage={model: TokenTotals(**_filled(totals)) for model, totals in self._usage.items()},
            context_left_percent=facts.get("context"),
            size_bytes=reading.size,
            damage_count=reading.damage_count,
            damage=tuple(reading.damage),
        )

    def _add(self, record: RunRecord) -> None:
        if isinstance(record, RunHeader):
            return
        if record.ts is not None:
            self._first = record.ts if self._first is None else min(self._first, record.ts)
            self._last = record.ts if self._last is None else max(self._last, record.ts)
            self._duration = self._last - self._first
        if isinstance(record, LlmRequest | LlmResponse):
            self._add_invocation(record)
        elif isinstance(record, ToolOutput):
            self._counts["tool_calls"] += 1
            self._counts["tool_errors"] += bool(record.is_error)
        elif isinstance(record, AgentEvent):
            self._counts["compactions"] += record.event.get("type") == _COMPACTION
        else:
            self._add_fact(record)

    def _add_fact(self, record: RunRecord) -> None:
        """The latest of what a run says of itself."""
        if isinstance(record, RunStart):
            self._session_id = record.session_id
            text = input_text(record.input.to_json())
            self._facts["input"] = None if text is None else text[:_TEXT]
        elif isinstance(record, RunContext):
            self._facts["context"] = record.context_left_percent
        elif isinstance(record, RunStatus):
            self._facts["status"] = record.status
        elif isinstance(record, RunError):
            self._counts["errors"] += 1
        elif isinstance(record, RunEnd):
            self._facts["outcome"] = record.outcome
            self._facts["final"] = None if record.final is None else record.final[:_TEXT]

    def _add_invocation(self, record: LlmRequest | LlmResponse) -> None:
        if isinstance(record, LlmRequest):
            self._counts["invocations"] += 1
            self._open.add(record.seq)
            return
        self._open.discard(record.seq)
        if record.output.usage is not None:
            self._add_usage(record.output.usage)

    def _add_usage(self, usage: LlmUsage) -> None:
        totals = self._usage.setdefault(usage.model, Counter())
        totals["responses"] += 1
        for name in _TOKENS:
            totals[name] += getattr(usage, name) or 0


def _filled(totals: Counter[str]) -> dict[str, int]:
    return {name: totals[name] for name in TokenTotals.model_fields}
