"""Replays of runs: the prompts as they were sent, the events as they were displayed, and summaries."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.db.gate import check_arguments
from lastlight_state.db.rows.records import Record
from lastlight_state.db.valid import number
from lastlight_state.errors import NotFound
from lastlight_state.files.run_log import paths
from lastlight_state.files.run_log.fields import JsonObject, LlmUsage
from lastlight_state.files.run_log.paths import RunState
from lastlight_state.files.run_log.reading import Damage, RunReading
from lastlight_state.files.run_log.records import (
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
from lastlight_state.files.run_log.runs.heads import STATES, input_text
from lastlight_state.files.run_log.runs.lists import RunLists
from lastlight_state.files.run_log.tree import RunFile, RunTree

# The results of replays.


class PromptTurn(Record):
    """An invocation of the model: its exact prompt, and the answer, or None if there was no answer."""

    seq: int
    request: LlmRequest
    response: LlmResponse | None


class HistoryEvent(Record):
    """An event of a session for display. The input of a run comes first, with ``seq`` -1."""

    run_id: str
    seq: int
    ts: datetime | None
    event: JsonObject


class SessionHistory(Record):
    """The events of a session's newest runs, the oldest first.

    ``truncated`` is True if earlier events were left out.
    """

    session_id: str
    runs: tuple[str, ...]
    events: tuple[HistoryEvent, ...]
    truncated: bool


class TokenTotals(Record):
    """The token counts of one model's answers."""

    responses: int
    input_tokens: int
    input_cached_tokens: int
    input_cache_creation_tokens: int
    input_image_tokens: int
    output_tokens: int
    total_tokens: int


class RunDigest(Record):
    """A summary of a run. Texts have at most 1,000 characters.

    ``records`` counts records by type. ``usage`` has token totals by model, without answers that state no usage.
    """

    run_id: str
    session_id: str | None
    started_at: datetime
    header: RunHeader | None
    supported: bool
    input_text: str | None
    final: str | None
    status: str | None
    outcome: str | None
    state: RunState
    first_ts: datetime | None
    last_ts: datetime | None
    duration: timedelta | None
    records: dict[str, int]
    invocations: int
    unanswered: int
    tool_calls: int
    tool_errors: int
    errors: int
    compactions: int
    usage: dict[str, TokenTotals]
    context_left_percent: float | None
    size_bytes: int
    damage_count: int
    damage: tuple[Damage, ...]


# The summary of a run, computed in one pass and constant memory.

_TEXT = 1_000
_COMPACTION = "compaction_complete"
_TOKENS = tuple(name for name in TokenTotals.model_fields if name != "responses")


class Tally:
    """A pass over the records of a run that counts them for a summary."""

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
            usage={model: TokenTotals(**_token_counts(totals)) for model, totals in self._usage.items()},
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
        """Record a fact from this record, such as the input, status or error.

        A later fact replaces an earlier one of its kind.
        """
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


def _token_counts(totals: Counter[str]) -> dict[str, int]:
    return {name: totals[name] for name in TokenTotals.model_fields}


#: The type of the event that represents the input of a run.
INPUT_EVENT = "hidden_user_message"
INPUT_SEQ = -1


class Replay:
    """Replays of runs: ``store.run_log.replay``."""

    def __init__(self, tree: RunTree, lists: RunLists) -> None:
        self._tree = tree
        self._lists = lists

    @check_arguments
    def prompts(self, run_id: str) -> Iterator[PromptTurn]:
        """Yield the invocations in the order of their requests, each with the exact prompt that was sent.

        Raises `NotFound` at the call, not at the first iteration.

        Events are not read, because the prompts already reflect every compaction. If several records have the same
        number, the first counts. An invocation is yielded when its answer is read, so memory holds only unanswered
        requests.
        """
        return self._turns(self._tree.get(run_id))

    @check_arguments
    def prompt(self, run_id: str, seq: int) -> PromptTurn:
        """Return the invocation of this number. Raises `NotFound`."""
        for turn in self.prompts(run_id):
            if turn.seq == seq:
                return turn
        raise NotFound("llm_request", (run_id, seq))

    @check_arguments
    def events(self, run_id: str, *, after_seq: int | None = None) -> list[AgentEvent]:
        """Return the events after ``after_seq``, sorted by ``seq`` and then by their order in the file.

        For display only. Events of all types are returned, ``compaction_start`` and ``compaction_complete`` included.
        Raises `NotFound`.
        """
        return self._events(self._run_reading(self._tree.get(run_id)), after_seq)

    @check_arguments
    def history(self, session_id: str, *, max_runs: int = 20, max_events: int = 1500) -> SessionHistory:
        """Return the last ``max_events`` events of a session's newest ``max_runs`` runs by start, oldest first.

        Each run begins with its input, an event ``hidden_user_message``. If a run is damaged, its readable events are
        returned. An unknown session has no runs.
        """
        paths.readable_id("session_id", session_id)
        number("max_runs", max_runs)
        number("max_events", max_events)
        found = self._lists.newest(session_id, max_runs) if max_events else []
        kept: deque[HistoryEvent] = deque(maxlen=max_events)
        total = 0
        for file in reversed(found):
            for event in self._play_run(file):
                kept.append(event)
                total += 1
        runs = tuple(file.run_id for file in reversed(found))
        return SessionHistory(session_id=session_id, runs=runs, events=tuple(kept), truncated=total > len(kept))

    @check_arguments
    def summarise(self, run_id: str) -> RunDigest:
        """Return the summary of a run, read in one pass. Raises `NotFound`."""
        return Tally(self._run_reading(self._tree.get(run_id))).digest()

    def _run_reading(self, file: RunFile) -> RunReading:
        return RunReading(self._tree, file)

    def _turns(self, file: RunFile) -> Iterator[PromptTurn]:
        asked: dict[int, LlmRequest] = {}
        answers: dict[int, LlmResponse] = {}
        seen: set[int] = set()
        for record in self._run_reading(file):
            if isinstance(record, LlmRequest) and record.seq not in seen:
                seen.add(record.seq)
                asked[record.seq] = record
            elif isinstance(record, LlmResponse) and record.seq in asked and record.seq not in answers:
                answers[record.seq] = record
                yield from _complete(asked, answers)
        for seq, request in asked.items():
            yield PromptTurn(seq=seq, request=request, response=answers.get(seq))

    @staticmethod
    def _events(records: RunReading, after_seq: int | None) -> list[AgentEvent]:
        found = [record for record in records if isinstance(record, AgentEvent)]
        found.sort(key=lambda event: event.seq)
        return found if after_seq is None else [event for event in found if event.seq > after_seq]

    def _play_run(self, file: RunFile) -> Iterator[HistoryEvent]:
        """Yield the input of a run and its events."""
        start: RunRecord | None = None
        events: list[AgentEvent] = []
        try:
            for record in self._run_reading(file):
                if isinstance(record, RunStart) and start is None:
                    start = record
                    text = input_text(record.input.to_json()) or ""
                    shown = {"type": INPUT_EVENT, "content": text}
                    yield HistoryEvent(run_id=file.run_id, seq=INPUT_SEQ, ts=record.ts, event=shown)
                elif isinstance(record, AgentEvent):
                    events.append(record)
        except NotFound:  # deleted meanwhile
            return
        for event in sorted(events, key=lambda event: event.seq):
            yield HistoryEvent(run_id=file.run_id, seq=event.seq, ts=event.ts, event=event.event)


def _complete(asked: dict[int, LlmRequest], answers: dict[int, LlmResponse]) -> Iterator[PromptTurn]:
    """Yield answered requests in order, up to the first unanswered request.

    Yielded requests are removed from both dicts.
    """
    for seq in list(asked):
        if seq not in answers:
            return
        yield PromptTurn(seq=seq, request=asked.pop(seq), response=answers.pop(seq))
