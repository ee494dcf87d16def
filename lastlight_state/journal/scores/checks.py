"""What a caller says about scores, checked and as statements name it."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.statements import Row
from lastlight_state.errors import InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.journal import words
from lastlight_state.journal.arguments import NewScore, ScoreFilter
from lastlight_state.journal.tables import SCORES

_MOST = limits_of(SCORES)


class ScoreDraft(TypedDict):
    """The row of a score to store."""

    id: str
    run_id: str
    node_id: str
    iteration: int
    attempt: int
    scorer_id: str
    scorer_name: str
    source: str
    score: float
    reason: str | None
    latency_ms: float | None
    duration_ms: float | None
    scored_at: datetime
    meta: str | None
    input: str | None
    output: str | None
    expected: str | None


#: Columns that hold any JSON value.
VALUES = ("meta", "input", "output", "expected")
#: The other columns in which two scores differ that are not the same.
CONTENT = (
    *("run_id", "node_id", "iteration", "attempt", "scorer_id", "scorer_name", "source"),
    *("score", "reason", "latency_ms", "duration_ms"),
)


def row(score: NewScore, now: datetime) -> ScoreDraft:
    """Return the parameters of a score."""
    given = valid.group("score", score, NewScore)
    return {
        "id": new_id() if given.id is None else valid.identifier("score.id", given.id, _MOST.id),
        "run_id": valid.identifier("score.run_id", given.run_id, _MOST.run_id),
        "node_id": valid.identifier("score.node_id", given.node_id, _MOST.node_id),
        "iteration": valid.number("score.iteration", given.iteration),
        "attempt": valid.number("score.attempt", given.attempt, least=1),
        "scorer_id": valid.identifier("score.scorer_id", given.scorer_id, _MOST.scorer_id),
        "scorer_name": valid.identifier("score.scorer_name", given.scorer_name, _MOST.scorer_name),
        "source": valid.word("score.source", given.source, words.SCORE_SOURCES),
        "score": _real("score.score", given.score),
        "reason": valid.optional_content("score.reason", given.reason, _MOST.reason),
        "latency_ms": _millis("score.latency_ms", given.latency_ms),
        "duration_ms": _millis("score.duration_ms", given.duration_ms),
        "scored_at": now if given.scored_at is None else aware_utc("score.scored_at", given.scored_at),
        "meta": _encoded("score.meta", given.meta, _MOST.meta),
        "input": _encoded("score.input", given.input, _MOST.input),
        "output": _encoded("score.output", given.output, _MOST.output),
        "expected": _encoded("score.expected", given.expected, _MOST.expected),
    }


def filters(where: ScoreFilter | None) -> Row:
    """The filters of a list or an aggregate, by name."""
    asked = ScoreFilter() if where is None else valid.group("where", where, ScoreFilter)
    history = valid.word("where.history", asked.history, words.SCORE_HISTORIES)
    return {
        "run_ids": None if asked.run_ids is None else _run_ids(asked.run_ids),
        "node_id": valid.optional("where.node_id", asked.node_id, _MOST.node_id),
        "scorer_id": valid.optional("where.scorer_id", asked.scorer_id, _MOST.scorer_id),
        "source": None if asked.source is None else valid.word("where.source", asked.source, words.SCORE_SOURCES),
        "since": None if asked.since is None else aware_utc("where.since", asked.since),
        "until": None if asked.until is None else aware_utc("where.until", asked.until),
        "current": {} if history == "current" else None,
    }


def _run_ids(given: Any) -> list[str]:
    found = [valid.identifier("where.run_ids", one, _MOST.run_id) for one in valid.several("where.run_ids", given)]
    valid.at_most("where.run_ids", found, words.SCORED_RUNS)
    return sorted(set(found))


def _real(where: str, value: Any) -> float:
    """A number that a database can store as a float of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(where, f"expected a number, got {type(value).__name__}")
    try:
        found = float(value)
    except OverflowError:
        raise InvalidValue(where, "must be within the range of a float") from None
    if not isfinite(found):
        raise InvalidValue(where, "must be finite")
    return found


def _millis(where: str, value: Any) -> float | None:
    found = None if value is None else _real(where, value)
    if found is not None and found < 0:
        raise InvalidValue(where, "must not be negative")
    return found


def _encoded(where: str, value: Any, most: int) -> str | None:
    return None if value is None else codec.encode(where, value, max_bytes=most)
