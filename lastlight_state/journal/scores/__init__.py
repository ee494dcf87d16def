"""Scores: what scorers said about attempts of tasks, one current score for each attempt, scorer and source.

A scorer that runs again replaces its score: the old row stays, marked as superseded, and counts in no aggregate.
"""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.runs import of_known_run
from lastlight_state.db.statements import Values
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue
from lastlight_state.journal import words
from lastlight_state.journal.arguments import NewScore, ScoreFilter
from lastlight_state.journal.records import Score, ScoreAggregate, ScoreSummary
from lastlight_state.journal.scores import aggregates, checks, statements as sql
from lastlight_state.journal.scores.checks import ScoreDraft


class Scores(Repository):
    """``store.journal.scores``"""

    def record(self, score: NewScore) -> Score:
        """Store a score as the current one of its task attempt, scorer and source; the one before is superseded.

        Equal values again give the stored score, and nothing is written; the time alone is no difference. An ``id`` of
        the caller's is stored once: with other values it is `AlreadyExists`. Raises `NotFound` for an unknown run,
        `InvalidValue` for NaN and infinities, `PayloadTooLarge` for a value past 64 KiB. Racing reruns leave exactly
        one current score.
        """
        row = checks.row(score, self._now())
        run_id = row["run_id"]
        stored = of_known_run(run_id, lambda: self._changed(Score.of, sql.ADD, row, repeatable=True))
        if stored is not None:
            return stored
        at = self._now()
        own_id = score.id is not None
        return of_known_run(run_id, lambda: self._writing(lambda unit: _put(unit, row, at, own_id), repeatable=True))

    def get(self, score_id: str) -> Score:
        """The score, superseded or not. Raises `NotFound`."""
        return self._one(Score.of, sql.GET, {"id": valid.sought("score_id", score_id)}, kind=words.SCORE, key=score_id)

    def list(
        self, *, where: ScoreFilter | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[ScoreSummary]:
        """A page of scores, the newest ``scored_at`` first, without inputs, outputs and notes of the scorer."""
        return self._page(sql.LIST, ScoreSummary.of, checks.filters(where), limit, page_token)

    def aggregate(
        self, *, where: ScoreFilter | None = None, group_by: words.ScoreGroups = "scorer"
    ) -> builtins.list[ScoreAggregate]:
        """Count, mean, least, greatest, median and deviation of each scorer's current scores, by name and id.

        One scorer under two names is two groups. Raises `InvalidValue` for more than 500 groups: filter then.
        """
        grouping = aggregates.GROUPINGS[valid.word("group_by", group_by, words.SCORE_GROUPS)]
        given = checks.filters(where)
        if given.pop("current") is None:
            raise InvalidValue("where.history", "must be 'current': superseded scores count in no aggregate")
        found = self._reading(lambda unit: aggregates.of(unit, grouping, given))
        if len(found) > words.GROUPS:
            raise InvalidValue("where", f"more than {words.GROUPS} groups: narrow the filter", limit=words.GROUPS)
        return found


def _put(unit: Unit, row: ScoreDraft, at: datetime, own_id: bool) -> Score:
    """Find the score, or store it in place of the current one.

    Two may look before either has stored: of them one inserts, and the other, who then inserts nothing, looks again.
    """
    while True:
        for known in sorted(unit.rows(sql.KNOWN, row), key=lambda known: known["id"] != row["id"]):
            has_its_id = known["id"] == row["id"]
            if (has_its_id or not own_id) and _told(known) == _told(row, is_stored=False):
                return Score.of(known)
            if has_its_id:
                raise AlreadyExists(words.SCORE, row["id"], problem="already exists with other content")
            unit.change(sql.SUPERSEDE, {"id": known["id"], "superseded_at": at})
        stored = unit.find(Score.of, sql.ADD, row)
        if stored is not None:
            return stored


def _told(row: Values, *, is_stored: bool = True) -> Any:
    """Return what two scores have in common that are the same: all but their ids and times."""
    values = [row[name] for name in checks.VALUES]
    if not is_stored:
        values = [None if text is None else codec.decode(text) for text in values]
    return [row[name] for name in checks.CONTENT], [codec.canonical(value) for value in values]
