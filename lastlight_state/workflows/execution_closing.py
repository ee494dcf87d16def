"""Ending what is in flight in a run from outside: a new holder does so first, and the end of the run does so last."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from lastlight_state.db.base import table_of
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.models import ExecutionModel
from lastlight_state.workflows.outcomes import IN_FLIGHT, duration
from lastlight_state.workflows.words import Outcome

_EXECUTIONS = table_of(ExecutionModel)
_c = _EXECUTIONS.c

_at = sa.bindparam("at", type_=_c.finished_at.type)
_skill = sa.bindparam("skill", type_=_c.skill.type)

CLOSE = prepared(
    sa.update(_EXECUTIONS)
    .where(_c.workflow_run_id == sa.bindparam("run_id"), IN_FLIGHT, sa.or_(_skill.is_(None), _c.skill == _skill))
    .values(
        finished_at=_at,
        success=sa.false(),
        outcome=sa.bindparam("closed_as"),
        stop_reason=sa.bindparam("closed_as"),
        error=sa.func.coalesce(sa.bindparam("closed_because", type_=_c.error.type), _c.error),
        duration_ms=duration(_at),
    )
)


def close(
    unit: Unit, run_id: str, outcome: Outcome, *, at: datetime, because: str | None = None, skill: str | None = None
) -> int:
    """End the executions in flight of a locked run, or those of one skill; how many they were."""
    facts = {"run_id": run_id, "closed_as": outcome, "closed_because": because, "at": at, "skill": skill}
    return unit.change(CLOSE, facts)
