"""What statements about executions have in common: their columns, what counts as in flight, and the fence.

The fence stands in the writing statement. It locks the run's row first, so a claim cannot change hands between the
look and the write, and a run's row is always locked before those of its executions.
"""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.backends.numbers import nearest
from lastlight_state.db.base import table_of
from lastlight_state.workflows.execution_records import ExecutionSummary
from lastlight_state.workflows.models import ExecutionModel
from lastlight_state.workflows.money import MOST_MIRRORED
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.transitions import bind

EXECUTIONS = table_of(ExecutionModel)
_ALIKE = EXECUTIONS.alias("fenced")
_c = EXECUTIONS.c

_mirrored = nearest(_c.cost_usd * sa.literal_column("1000000.0"))
_believable = sa.func.abs(_c.cost_usd) < sa.literal_column(f"{MOST_MIRRORED!r}")
MICROS = sa.func.coalesce(_c.cost_micros, sa.case((_believable, _mirrored)))
"""The cost in whole micro-dollars, also of rows that have only the float: as `lastlight_state.workflows.money` says."""

COLUMNS = tuple(column for column in _c if column.name != "output_text")
"""What an `Execution` record needs."""

SUMMARY = tuple(
    sa.func.substr(_c.error, 1, 500).label("error") if column.name == "error" else column
    for column in COLUMNS
    if column.name in (*ExecutionSummary.model_fields, "cost_micros")
)
"""What an `ExecutionSummary` needs: columns before ``output_text``, and those behind it that an index holds."""

HERE = _c.id == sa.bindparam("execution_id")

_presented_run = bind("presented_run", _c.workflow_run_id)
_presented_epoch = bind("presented_epoch", _c.claim_epoch)
_epoch_in_force = sa.case((RUNS.c.claim_owner.is_not(None), RUNS.c.claim_epoch))
_run_here = sa.select(_ALIKE.c.workflow_run_id).where(_ALIKE.c.id == sa.bindparam("execution_id")).scalar_subquery()
_holder = sa.select(_epoch_in_force).where(RUNS.c.id == _run_here).with_for_update(key_share=True).scalar_subquery()

FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), _c.workflow_run_id == _presented_run),
    _holder.is_not_distinct_from(_presented_epoch),
)
"""Whether the claim presented holds the run of this execution, or nobody does and none is presented."""

RUN_FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), RUNS.c.id == _presented_run),
    _epoch_in_force.is_not_distinct_from(_presented_epoch),
)
"""The same for a statement that selects the run's row itself."""
