"""What replays of runs give."""

from __future__ import annotations

from datetime import datetime, timedelta

from lastlight_state.db.records import Record
from lastlight_state.run_log.parts import JsonObject
from lastlight_state.run_log.reading import Damage
from lastlight_state.run_log.records import LlmRequest, LlmResponse, RunHeader
from lastlight_state.run_log.words import RunState


class PromptTurn(Record):
    """One invocation of the model: its exact prompt, and the answer; None where there was none."""

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
    """The events of a session's newest runs, the oldest first. ``truncated``: earlier events were left out."""

    session_id: str
    runs: tuple[str, ...]
    events: tuple[HistoryEvent, ...]
    truncated: bool


class TokenTotals(Record):
    """The tokens of one model's answers."""

    responses: int
    input_tokens: int
    input_cached_tokens: int
    input_cache_creation_tokens: int
    input_image_tokens: int
    output_tokens: int
    total_tokens: int


class RunDigest(Record):
    """A summary of a run. Texts have at most 1,000 characters.

    ``records`` are counts by type, ``usage`` totals by model; answers without usage count in none.
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
