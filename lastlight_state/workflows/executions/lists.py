"""Lists of executions, each read through the index that reads the fewest rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.beside import Narrow
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import AnyOf, bind
from lastlight_state.workflows.executions.lost_logs import LOST_LOG, SPENT
from lastlight_state.workflows.executions.records import ExecutionSummaryRow
from lastlight_state.workflows.executions.statements import SUMMARY
from lastlight_state.workflows.kernel.executions import BY_RUN, IN_FLIGHT, OF_TRIGGER, OUTCOME, covered
from lastlight_state.workflows.tables import EXECUTIONS
from lastlight_state.workflows.words import OUTCOMES

_c = EXECUTIONS.c

#: The filter by outcome.
ANY_OUTCOME = AnyOf("outcome", OUTCOME.element, len(OUTCOMES))

_filters = {
    "run_id": _c.workflow_run_id == sa.bindparam("run_id"),
    "trigger_id": OF_TRIGGER,
    "skill": _c.skill == bind("skill", _c.skill),
    "in_flight": IN_FLIGHT,
    "outcomes": ANY_OUTCOME.condition,
    "lost_log": LOST_LOG,
    "since": _c.started_at >= bind("since", _c.started_at),
    "node": sa.and_(
        _c.node_id == bind("node_id", _c.node_id),
        _c.iteration == bind("iteration", _c.iteration),
        _c.attempt.is_not(None),
    ),
}


def _newest_first(name: str, narrow: Narrow | None = None, *, few: bool = False) -> Listing[ExecutionSummaryRow]:
    """Return a list that is found by this index."""
    through, covering = (narrow.index, covered(narrow)) if narrow else (None, None)
    order = (_c.started_at, _c.id)
    return Listing(
        name,
        SUMMARY,
        order=order,
        filters=_filters,
        through=through,
        covering=covering,
        few=few,
        row=ExecutionSummaryRow,
    )


LIST = _newest_first("executions")
_ATTEMPTS = Listing(
    "attempts",
    SUMMARY,
    order=(_c.attempt,),
    filters=_filters,
    descending=False,
    covering=covered(Narrow("uq_executions_attempt", ("workflow_run_id", "node_id", "iteration", "attempt"))),
    row=ExecutionSummaryRow,
)
#: Lists by their leading filter, the narrowest first. They name their index: SQLite would otherwise walk through all
#: rows to avoid a small sort. Those of a run and of a trigger are read whole and sorted.
_NARROWER = {
    "run_id": _newest_first("executions of a run", BY_RUN, few=True),
    "in_flight": _newest_first(
        "executions in flight", Narrow("ix_executions_signs", ("workflow_run_id", "finished_at", "success"))
    ),
    "trigger_id": _newest_first(
        "executions of a trigger",
        Narrow("idx_executions_trigger", ("trigger_type", "trigger_id"), ordered=False),
        few=True,
    ),
    "skill": _newest_first("executions of a skill", Narrow("idx_executions_skill", ("skill",))),
    "lost_log": _newest_first(
        "executions without a log", Narrow("ix_executions_lost_log", (*SPENT, "session_id", "finished_at", "success"))
    ),
}


def listing_of(given: Mapping[str, Any]) -> Listing[ExecutionSummaryRow]:
    """Return the list that reads the fewest rows for these filters."""
    if given["node"] is not None:
        return _ATTEMPTS
    return next((listing for name, listing in _NARROWER.items() if given.get(name) is not None), LIST)
