"""The statements of single scores, and their list."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import bind, prepared
from lastlight_state.journal.rows import ScoreRow
from lastlight_state.journal.shown import ScoreSummaryRow
from lastlight_state.journal.tables import SCORES
from lastlight_state.journal.words import SCORED_RUNS

_c = SCORES.c
_LARGE = ("meta", "input", "output", "expected")
_WRITTEN = [column.name for column in SCORES.columns if column.name != "superseded_at"]
_ATTEMPT = ("run_id", "node_id", "iteration", "attempt", "scorer_id", "source")

_SUMMARY = tuple(column for column in SCORES.columns if column.name not in _LARGE)
_this_id = _c.id == bind("id", _c.id)
_current = sa.and_(*(_c[name] == bind(name, _c[name]) for name in _ATTEMPT), _c.superseded_at.is_(None))


def _adding() -> sa.Executable:
    """Insert a score, unless its id is known (a conflict) or its attempt has a current one."""
    there = SCORES.alias()
    same = sa.and_(*(there.c[name] == bind(name, _c[name]) for name in _ATTEMPT), there.c.superseded_at.is_(None))
    row = sa.select(*(bind(name, _c[name]) for name in _WRITTEN)).where(~sa.exists().where(same))
    return insert(SCORES).from_select(_WRITTEN, row).on_conflict_do_nothing().returning(*SCORES.columns)


ADD = prepared(_adding(), ScoreRow)
GET = prepared(sa.select(*SCORES.columns).where(_this_id), ScoreRow)
#: The score of this id, and the current one of the attempt: locked, so that nobody else supersedes it.
KNOWN = prepared(sa.select(*SCORES.columns).where(sa.or_(_this_id, _current)).with_for_update(), ScoreRow)
SUPERSEDE = prepared(sa.update(SCORES).where(_this_id).values(superseded_at=bind("superseded_at", _c.superseded_at)))

#: The filters of lists and aggregates that compare with one value.
FILTERS = {
    "node_id": _c.node_id == bind("node_id", _c.node_id),
    "scorer_id": _c.scorer_id == bind("scorer_id", _c.scorer_id),
    "source": _c.source == bind("source", _c.source),
    "since": _c.scored_at >= bind("since", _c.scored_at),
    "until": _c.scored_at < bind("until", _c.scored_at),
}
LIST = Listing(
    "scores",
    _SUMMARY,
    order=(_c.scored_at, _c.id),
    filters={**FILTERS, "current": _c.superseded_at.is_(None)},
    spread={"run_ids": _c.run_id},
    most=SCORED_RUNS,
    row=ScoreSummaryRow,
)
