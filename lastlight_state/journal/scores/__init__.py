"""Scores that scorers gave to attempts of tasks: one current score for each attempt, scorer and source.

If a scorer runs again, its new score replaces the old one. The old row stays, is marked as superseded, and counts in no
aggregate.
"""

from __future__ import annotations

import builtins
from datetime import datetime
from math import isfinite
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Values
from lastlight_state.db.runs import of_known_run
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.journal import models
from lastlight_state.journal.arguments import NewScore, ScoreFilter
from lastlight_state.journal.models import SCORES
from lastlight_state.journal.records import Score, ScoreAggregate, ScoreSummary
from lastlight_state.journal.scores import statements, statements as sql

# Checks of arguments about scores, which become the parameters of statements.

_LIMITS = limits_of(SCORES)


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
#: The other columns that must be equal in two scores for these to be the same.
CONTENT = (
    *("run_id", "node_id", "iteration", "attempt", "scorer_id", "scorer_name", "source"),
    *("score", "reason", "latency_ms", "duration_ms"),
)


def draft_of(score: NewScore, now: datetime) -> ScoreDraft:
    """Check a new score, and return its columns."""
    given = valid.argument_group("score", score, NewScore)
    return {
        "id": new_id() if given.id is None else valid.identifier("score.id", given.id, _LIMITS.id),
        "run_id": valid.identifier("score.run_id", given.run_id, _LIMITS.run_id),
        "node_id": valid.identifier("score.node_id", given.node_id, _LIMITS.node_id),
        "iteration": valid.number("score.iteration", given.iteration),
        "attempt": valid.number("score.attempt", given.attempt, least=1),
        "scorer_id": valid.identifier("score.scorer_id", given.scorer_id, _LIMITS.scorer_id),
        "scorer_name": valid.identifier("score.scorer_name", given.scorer_name, _LIMITS.scorer_name),
        "source": valid.word("score.source", given.source, models.SCORE_SOURCES),
        "score": _real("score.score", given.score),
        "reason": valid.optional_content("score.reason", given.reason, _LIMITS.reason),
        "latency_ms": _millis("score.latency_ms", given.latency_ms),
        "duration_ms": _millis("score.duration_ms", given.duration_ms),
        "scored_at": now if given.scored_at is None else aware_utc("score.scored_at", given.scored_at),
        "meta": _encode_optional("score.meta", given.meta, _LIMITS.meta),
        "input": _encode_optional("score.input", given.input, _LIMITS.input),
        "output": _encode_optional("score.output", given.output, _LIMITS.output),
        "expected": _encode_optional("score.expected", given.expected, _LIMITS.expected),
    }


def filters(where: ScoreFilter | None) -> Row:
    """Return the checked filters of a list or an aggregate of scores, by name."""
    asked = ScoreFilter() if where is None else valid.argument_group("where", where, ScoreFilter)
    history = valid.word("where.history", asked.history, models.SCORE_HISTORIES)
    return {
        "run_ids": None if asked.run_ids is None else _run_ids(asked.run_ids),
        "node_id": valid.optional("where.node_id", asked.node_id, _LIMITS.node_id),
        "scorer_id": valid.optional("where.scorer_id", asked.scorer_id, _LIMITS.scorer_id),
        "source": None if asked.source is None else valid.word("where.source", asked.source, models.SCORE_SOURCES),
        "since": None if asked.since is None else aware_utc("where.since", asked.since),
        "until": None if asked.until is None else aware_utc("where.until", asked.until),
        "current": {} if history == "current" else None,
    }


def _run_ids(given: Any) -> list[str]:
    found = [valid.identifier("where.run_ids", one, _LIMITS.run_id) for one in valid.several("where.run_ids", given)]
    valid.at_most("where.run_ids", found, models.SCORED_RUNS)
    return sorted(set(found))


def _real(where: str, value: Any) -> float:
    """Return a number as a finite float of 64 bits. Raises `InvalidValue` for any other value."""
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


def _encode_optional(where: str, value: Any, most: int) -> str | None:
    return None if value is None else codec.encode(where, value, max_bytes=most)


class Scores(Repository):
    """``store.journal.scores``: record, list and aggregate the scores of task attempts."""

    def record(self, score: NewScore) -> Score:
        """Store the current score of a task attempt, scorer and source, and mark the score before as superseded.

        Recording equal values again returns the stored score and writes nothing; a score that differs only in its time
        counts as equal. If the caller gives an ``id``, the score is stored once under it: other values under the same
        id raise `AlreadyExists`. Concurrent reruns leave exactly one current score. Raises `NotFound` for an unknown
        run, `InvalidValue` for NaN and infinities, `PayloadTooLarge` for a value of more than 64 KiB.
        """
        row = draft_of(score, self._now())
        run_id = row["run_id"]
        stored = of_known_run(run_id, lambda: self._change_row(sql.ADD, row, repeatable=True))
        if stored is not None:
            return stored
        at = self._now()
        own_id = score.id is not None
        return of_known_run(run_id, lambda: self._writing(lambda unit: _put(unit, row, at, own_id), repeatable=True))

    def get(self, score_id: str) -> Score:
        """Return the score, superseded or not. Raises `NotFound`."""
        return self._get_row(sql.GET, {"id": valid.lookup_text("score_id", score_id)}, kind=models.SCORE, key=score_id)

    def list(
        self, *, where: ScoreFilter | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[ScoreSummary]:
        """Return a page of scores, the newest ``scored_at`` first, without inputs, outputs and notes of the scorer."""
        return self._page(sql.LIST, filters(where), limit, page_token)

    def aggregate(
        self, *, where: ScoreFilter | None = None, group_by: models.ScoreGroups = "scorer"
    ) -> builtins.list[ScoreAggregate]:
        """Return count, mean, minimum, maximum, median and deviation of each scorer's current scores.

        Groups are sorted by the scorer's name and id; a scorer with two names has two groups. Raises `InvalidValue` for
        more than 500 groups: narrow the filter then.
        """
        grouping = statements.GROUPINGS[valid.word("group_by", group_by, models.SCORE_GROUPS)]
        given = filters(where)
        if given.pop("current") is None:
            raise InvalidValue("where.history", "must be 'current': superseded scores count in no aggregate")
        found = self._reading(lambda unit: statements.of(unit, grouping, given))
        if len(found) > models.GROUPS:
            raise InvalidValue("where", f"more than {models.GROUPS} groups: narrow the filter", limit=models.GROUPS)
        return found


def _put(unit: Unit, row: ScoreDraft, at: datetime, own_id: bool) -> Score:
    """Return the equal stored score, or store this score in place of the current one.

    Two transactions may read the current score before either has stored. Then one of them inserts; the other inserts
    nothing and reads again.
    """
    while True:
        for known in sorted(unit.rows(sql.KNOWN, row), key=lambda known: known.id != row["id"]):
            has_its_id = known.id == row["id"]
            if (has_its_id or not own_id) and _compared_values(vars(known)) == _compared_values(row, is_stored=False):
                return known
            if has_its_id:
                raise AlreadyExists(models.SCORE, row["id"], problem="already exists with other content")
            unit.change(sql.SUPERSEDE, {"id": known.id, "superseded_at": at})
        stored = unit.row(sql.ADD, row)
        if stored is not None:
            return stored


def _compared_values(row: Values, *, is_stored: bool = True) -> Any:
    """Return the values that are equal in two equal scores: all except their ids and times."""
    values = [row[name] for name in VALUES]
    if not is_stored:
        values = [None if text is None else codec.decode(text) for text in values]
    return [row[name] for name in CONTENT], [codec.canonical(value) for value in values]
