"""The statements of `runs`, and how a new run's row is filled."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.base import later_of, table_of
from lastlight_state.db.chains import Chain
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Family, constant, prepared
from lastlight_state.workflows import repo_conditions
from lastlight_state.workflows.execution_rows import EXECUTIONS
from lastlight_state.workflows.indexes import RUN_SUMMARY
from lastlight_state.workflows.models import RunTransitionModel, WorkflowOverrideModel
from lastlight_state.workflows.run_rows import COLUMNS, DETAIL, RUNS, locking
from lastlight_state.workflows.transitions import bind, recorded
from lastlight_state.workflows.usage_rows import SUMS

GRACE = timedelta(seconds=30)
"""How long a new running run waits for its creator to claim it before others may take it."""

_OVERRIDES = table_of(WorkflowOverrideModel)
_TRANSITIONS = table_of(RunTransitionModel)
_PARENT = RUNS.alias("parent")


_enabled = ~sa.exists().where(
    _OVERRIDES.c.name == bind("workflow_name", RUNS.c.workflow_name), _OVERRIDES.c.enabled == sa.false()
)
_parent_takes_children = sa.and_(
    _PARENT.c.id == bind("parent_run_id", RUNS.c.parent_run_id),
    _PARENT.c.status != constant("cancelled"),
    _PARENT.c.cancel_requested_at.is_(None),
)


@lru_cache(maxsize=256)
def create(names: frozenset[str]) -> Chain:
    """The statement that inserts a run stating these columns, and its first transition.

    It decides by itself: the workflow is enabled and the parent is there and not cancelled, or nothing is inserted.
    The parent's row is locked as a cancel locks it, so a cancel of the tree finds the child, or the child the cancel.
    There is one for each set of columns that callers use, which are few; the other columns keep their defaults.
    """
    stated = [column.name for column in COLUMNS if column.name in names]
    values = sa.select(*(bind(name, RUNS.c[name]) for name in stated)).where(_enabled)
    if "parent_run_id" in names:
        values = values.where(_parent_takes_children).with_for_update(key_share=True, of=_PARENT)
    head = (
        sa.insert(RUNS).from_select(stated, values, include_defaults=False).returning(RUNS.c.id, RUNS.c.transition_seq)
    )
    return recorded(head, from_status=sa.null())


IS_DISABLED = prepared(
    sa.select(_OVERRIDES.c.name).where(
        _OVERRIDES.c.name == sa.bindparam("workflow_name"), _OVERRIDES.c.enabled == sa.false()
    )
)
FIND_KEY = prepared(
    sa.select(*DETAIL).where(
        RUNS.c.workflow_name == sa.bindparam("workflow_name"),
        RUNS.c.run_key == sa.bindparam("run_key"),
        RUNS.c.run_key.is_not(None),
    )
)

LOCK_PHASES = locking(RUNS.c.phase_history)
LOCK_SCRATCH = locking(RUNS.c.scratch)
LOCK_BOTH = locking(RUNS.c.phase_history, RUNS.c.scratch)
LOCK_ENDED = locking(RUNS.c.workflow_name, RUNS.c.error)

_updated = {"updated_at": later_of(RUNS.c.updated_at, bind("at", RUNS.c.updated_at))}
_phase: dict[str, Any] = {
    "phase_history": sa.bindparam("phase_history"),
    "phase_count": sa.bindparam("phase_count"),
    "current_phase": sa.bindparam("phase"),
}
_this_run = RUNS.c.id == sa.bindparam("run_id")

PUT_PHASE = prepared(sa.update(RUNS).where(_this_run).values(**_phase, **_updated))
PUT_SCRATCH = prepared(sa.update(RUNS).where(_this_run).values(scratch=sa.bindparam("scratch"), **_updated))
PUT_BOTH = prepared(sa.update(RUNS).where(_this_run).values(scratch=sa.bindparam("scratch"), **_phase, **_updated))
SET_TRACE = prepared(
    sa.update(RUNS).where(_this_run).values(trace_id=sa.bindparam("trace_id"), span_id=sa.bindparam("span_id"))
)

ENDED_BY = prepared(
    sa.select(_TRANSITIONS.c.claim_epoch)
    .where(
        _TRANSITIONS.c.run_id == sa.bindparam("run_id"),
        _TRANSITIONS.c.to_status == sa.bindparam("status"),
        _TRANSITIONS.c.from_status != _TRANSITIONS.c.to_status,  # a note ends nothing
    )
    .order_by(_TRANSITIONS.c.seq.desc())
    .limit(sa.literal_column("1"))
)

SUMMARY = tuple(RUNS.c[name] for name in RUN_SUMMARY)
"""What a `RunSummary` needs besides its totals."""

_newest = (RUNS.c.started_at, RUNS.c.id)

LIST = Listing(
    "runs",
    SUMMARY,
    order=_newest,
    spread={"statuses": RUNS.c.status, "workflow_names": RUNS.c.workflow_name},
    worded=("statuses",),
    filters={
        "since": RUNS.c.started_at >= bind("since", RUNS.c.started_at),
        "bare_repo": repo_conditions.bare(RUNS),
    },
    either={"owned_repo": repo_conditions.spellings(RUNS)},
)

TOTALS = Family(
    "run",
    lambda ids: (
        sa.select(EXECUTIONS.c.workflow_run_id, *SUMS)
        .where(EXECUTIONS.c.workflow_run_id.in_(ids))
        .group_by(EXECUTIONS.c.workflow_run_id)
    ),
)

_children = sa.select(RUNS.c.id).where(RUNS.c.id == sa.bindparam("run_id")).cte("tree", recursive=True)
_tree = _children.union(sa.select(RUNS.c.id).where(RUNS.c.parent_run_id == _children.c.id))
TREE = prepared(sa.select(_tree.c.id).order_by(_tree.c.id))
"""A run and its descendants in ascending id; a planted cycle ends, because a union keeps each id once."""


def new_row(now: datetime, **facts: Any) -> dict[str, Any]:
    """A new run's row: everything None that ``facts`` does not state."""
    queued = facts["status"] == "queued"
    return {
        **_BLANK,
        "started_at": now,
        "updated_at": now,
        "queued_at": now if queued else None,
        "lease_expires_at": None if queued else now + GRACE,
        **facts,
    }


def first_transition(row: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the transition that records a run's creation."""
    return {
        "to_status": row["status"],
        "reason": row["status_reason"],
        "detail": None,
        "actor": row["triggered_by"],
        "source": "engine",
        "presented_epoch": None,
        "at": row["started_at"],
    }


_BLANK: dict[str, Any] = {
    **dict.fromkeys(column.name for column in COLUMNS),
    "phase_history": "[]",
    "restart_count": 0,
    "phase_count": 0,
    "transition_seq": 1,
    "claim_epoch": 0,
    "status_reason": "run.created",
}
