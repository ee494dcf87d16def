"""Lists of executions. Each filter combination uses the index that reads the fewest rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.sql.json import entry_of
from lastlight_state.db.lists.covering import NarrowIndex
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import AnyOf, bind, number, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.metrics import Metrics
from lastlight_state.settings import Limits
from lastlight_state.workflows.executions import changes, statements as sql
from lastlight_state.workflows.executions.changes import Change
from lastlight_state.workflows.executions.records import Execution, ExecutionSummary
from lastlight_state.workflows.executions.statements import SUMMARY
from lastlight_state.workflows.shared import progress, run_rows
from lastlight_state.workflows.shared.executions import BY_RUN, IN_FLIGHT, OF_TRIGGER, OUTCOME, usage_covering
from lastlight_state.workflows.shared.progress import LockedScratch, Step
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE, OUTCOMES

# Executions that used tokens but have no session id, so that nothing leads to their logs.

#: The counts that show that an execution used the model, and should have a log.
SPENT = ("turns", "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

_c = EXECUTIONS.c
_log = logging.getLogger("lastlight_state.workflows")

#: The condition on ended executions whose log cannot be found. An execution in flight may still get its session id.
LOST_LOG = sa.and_(
    _c.session_id.is_(None),
    sa.or_(*(_c[name] > number(0) for name in SPENT)),
    sa.or_(_c.finished_at.is_not(None), _c.success.is_not(None)),
)


def note(unit: Unit, ended: Execution, metrics: Metrics) -> None:
    """After the commit, count and log an ended execution that used tokens but has no session id."""
    if ended.session_id is not None or not any(getattr(ended, name) for name in SPENT):
        return

    def report_lost_log() -> None:
        metrics.count("executions_without_session")
        _log.info("execution %s used tokens but has no session id: its log cannot be found", ended.id)

    unit.after_commit(report_lost_log)


# The pointer rule (workflows W-80): a loop's last text is the output of an execution, and scratch has the execution's
# id as a pointer.
#
# Text and pointer are written in one transaction, so that neither is ever stored without the other. Other programs
# wrote the text itself into scratch; it is read if there is no pointer.

POINTER, INLINE = "lastOutputExecutionId", "lastOutput"

_key = bind("key", RUNS.c.id)
_pointer = entry_of(RUNS.c.scratch, _key, member=POINTER)
_pointed = sa.select(EXECUTIONS.c.output_text).where(EXECUTIONS.c.id == _pointer).scalar_subquery()
#: Finds a loop's last text by the pointer in scratch. Reads one row and one column of executions.
FIND_CARRIED = statement_of(
    sa.select(
        sa.case((_pointer.is_(None), entry_of(RUNS.c.scratch, _key, member=INLINE)), else_=_pointed).label("text")
    ).where(RUNS.c.id == sa.bindparam("run_id"))
)


@dataclass(frozen=True)
class LoopOutput:
    """A text to store as the last output of the loop ``key``, and the loop's ``state``.

    The callback ``save`` stores the text.
    """

    key: str
    save: Change
    at: datetime
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def execution_id(self) -> str:
        return str(self.save.values["execution_id"])


def save(unit: Unit, output: LoopOutput, limits: Limits) -> None:
    """Store a loop's text, and a pointer to the text in the run of the execution."""
    row = unit.row(sql.LOCK_SCRATCH, output.save.values)
    if row is None:
        changes.get(unit, output.execution_id)
        raise InvalidValue("loop", f"execution {output.execution_id!r} must belong to a run")
    _store(unit, row, output, limits)


def carry(unit: Unit, run_id: str, output: LoopOutput, limits: Limits) -> None:
    """Store a loop's text. Store the pointer to it and the loop's state in the given run."""
    row = run_rows.lock(unit, run_id, progress.LOCK_SCRATCH)
    if changes.get(unit, output.execution_id).run_id != run_id:
        raise InvalidValue("execution_id", "must be an execution of this run")
    _store(unit, row, output, limits)


def _store(unit: Unit, row: LockedScratch, output: LoopOutput, limits: Limits) -> None:
    run_rows.check(row, output.save.claim)
    run_rows.expect(row, LIVE)
    members = {output.key: {**output.state, POINTER: output.execution_id}}
    progress.add(unit, row, Step(row.id, output.at, members=members), limits)
    output.save.attempt(unit)


#: The filter by one or more outcomes.
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


def _newest_first(name: str, narrow: NarrowIndex | None = None, *, few: bool = False) -> Listing[ExecutionSummary]:
    """Return a list that is found by this index."""
    through, covering = (narrow.index, usage_covering(narrow)) if narrow else (None, None)
    order = (_c.started_at, _c.id)
    return Listing(
        name,
        SUMMARY,
        order=order,
        filters=_filters,
        through=through,
        covering=covering,
        few=few,
        row=ExecutionSummary,
    )


LIST = _newest_first("executions")
_ATTEMPTS = Listing(
    "attempts",
    SUMMARY,
    order=(_c.attempt,),
    filters=_filters,
    descending=False,
    covering=usage_covering(
        NarrowIndex("uq_executions_attempt", ("workflow_run_id", "node_id", "iteration", "attempt"))
    ),
    row=ExecutionSummary,
)
#: Lists by their leading filter, the narrowest first. They name their index: SQLite would otherwise scan all rows to
#: avoid a small sort. The lists of a run and of a trigger read all of its rows and sort them.
_NARROWER = {
    "run_id": _newest_first("executions of a run", BY_RUN, few=True),
    "in_flight": _newest_first(
        "executions in flight", NarrowIndex("ix_executions_signs", ("workflow_run_id", "finished_at", "success"))
    ),
    "trigger_id": _newest_first(
        "executions of a trigger",
        NarrowIndex("idx_executions_trigger", ("trigger_type", "trigger_id"), ordered=False),
        few=True,
    ),
    "skill": _newest_first("executions of a skill", NarrowIndex("idx_executions_skill", ("skill",))),
    "lost_log": _newest_first(
        "executions without a log",
        NarrowIndex("ix_executions_lost_log", (*SPENT, "session_id", "finished_at", "success")),
    ),
}


def listing_of(given: Mapping[str, Any]) -> Listing[ExecutionSummary]:
    """Return the list that reads the fewest rows for these filters."""
    if given["node"] is not None:
        return _ATTEMPTS
    return next((listing for name, listing in _NARROWER.items() if given.get(name) is not None), LIST)
