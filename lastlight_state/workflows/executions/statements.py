"""The SQL statements of `executions`. Each write checks the fence and the required state in its own WHERE."""

from __future__ import annotations

from itertools import product
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.rows.statements import Statement, bind, constant, number, statement_of
from lastlight_state.db.schema.indexes import hide_from_indexes
from lastlight_state.workflows.executions.records import Execution, ExecutionSummary
from lastlight_state.workflows.shared.executions import (
    AT,
    HERE,
    IN_FLIGHT,
    KEY,
    MICROS,
    NO_WAIT,
    OF_TRIGGER,
    OUTCOME,
    PICOS,
    TOUCHED,
    duration,
)
from lastlight_state.workflows.shared.progress import LockedScratch
from lastlight_state.workflows.shared.run_rows import FENCE, RUN_FENCE, LockedRun, lock_statement
from lastlight_state.workflows.tables import EXECUTIONS, NODES, RUNS, columns_for, every_column_for
from lastlight_state.workflows.words import UNKNOWN_TRIGGER

_c = EXECUTIONS.c

#: The columns of an `Execution`.
COLUMNS = every_column_for(Execution, EXECUTIONS, hidden={"output_text"})

#: The columns of an `ExecutionSummary`: those before ``output_text``, and those behind it that an index holds.
SUMMARY = columns_for(ExecutionSummary, EXECUTIONS, error=sa.func.substr(_c.error, 1, 500))

_SIBLING = EXECUTIONS.alias("sibling")

#: The columns that an execution copies from its run or, without a run, takes from its trigger.
TRIGGER = ("trigger_type", "trigger_id", "owner", "repo", "issue_number", "triggered_by", "trigger_actor_type")

#: The columns that a new execution sets besides its trigger.
GIVEN = (
    "id",
    "skill",
    "started_at",
    "finished_at",
    "success",
    "outcome",
    "error",
    "duration_ms",
    "session_id",
    "stop_reason",
    "workflow_run_id",
    "node_id",
    "iteration",
    "attempt",
    "claim_epoch",
    "cached",
    "vcs_pointer",
    "work_dir",
    "details",
)

#: The counts of a usage report: running totals, which only grow.
COUNTERS = (
    "turns",
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "api_duration_ms",
)


def _param(name: str) -> sa.BindParameter[Any]:
    return bind(name, _c[name])


def _from_run() -> dict[str, sa.ColumnElement[Any]]:
    """Return the columns that an execution copies from its run.

    If the run has no trigger type, the run's earlier executions provide it.
    """
    earlier = sa.select(_SIBLING.c.trigger_type).where(_SIBLING.c.workflow_run_id == RUNS.c.id).limit(number(1))
    columns: dict[str, sa.ColumnElement[Any]] = {name: RUNS.c[name] for name in TRIGGER}
    return columns | {
        "trigger_type": sa.func.coalesce(RUNS.c.trigger_type, earlier.scalar_subquery(), constant(UNKNOWN_TRIGGER))
    }


def _of_running_run(*values: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Return a SELECT that yields these values as one row only if the run is running and the fence permits the write.

    It locks the run.
    """
    return (
        sa.select(*values)
        .where(RUNS.c.id == _param("workflow_run_id"), RUNS.c.status == constant("running"), RUN_FENCE)
        .with_for_update(key_share=True)
    )


_given = [_param(name) for name in GIVEN]

_copied = _from_run()

#: Inserts an execution of a running run, with the run's trigger, repository, issue and actor.
START = statement_of(
    sa.insert(EXECUTIONS)
    .from_select([*GIVEN, *_copied], _of_running_run(*_given, *_copied.values()))
    .returning(*COLUMNS),
    Execution,
)

_attempt_row = {
    "run_id": RUNS.c.id,
    "node_id": _param("node_id"),
    "iteration": _param("iteration"),
    "state": bind("node_state", NODES.c.state),
    "last_attempt": sa.select(sa.func.coalesce(sa.func.max(_SIBLING.c.attempt), number(0)) + 1)
    .where(
        _SIBLING.c.workflow_run_id == _param("workflow_run_id"),
        _SIBLING.c.node_id == _param("node_id"),
        _SIBLING.c.iteration == _param("iteration"),
    )
    .scalar_subquery(),
    "updated_at": AT,
}


def _attempt_upsert() -> sa.Executable:
    new = insert(NODES).from_select(list(_attempt_row), _of_running_run(*_attempt_row.values()))
    first = new.excluded.last_attempt
    counted = sa.case((NODES.c.last_attempt < first, first), else_=NODES.c.last_attempt + 1)
    replaced = {"state": new.excluded.state, "last_attempt": counted, **NO_WAIT, **TOUCHED}
    return new.on_conflict_do_update(index_elements=KEY, set_=replaced).returning(NODES.c.last_attempt)


#: Inserts or updates the node of an attempt and returns the attempt's number. It is one more than the node's count, or
#: than the highest attempt of its executions, which other programs may have written without a node.
COUNT_ATTEMPT = statement_of(_attempt_upsert())

START_ALONE = statement_of(
    sa.insert(EXECUTIONS).values({name: _param(name) for name in (*GIVEN, *TRIGGER)}).returning(*COLUMNS),
    Execution,
)


def _grown_count(name: str) -> sa.ColumnElement[Any]:
    """Return the larger of the stored count and the reported count. If no count was reported, return the stored one."""
    given, column = _param(name), _c[name]
    return sa.case((given.is_(None), column), (sa.or_(column.is_(None), column < given), given), else_=column)


_more_picos = sa.and_(_param("cost_micros") == MICROS, _param("cost_picos") > PICOS)
_costs_more = sa.and_(
    _param("cost_micros").is_not(None), sa.or_(MICROS.is_(None), _param("cost_micros") > MICROS, _more_picos)
)

_at = bind("at", _c.heartbeat_at)

_alive = {
    "heartbeat_at": sa.case((sa.or_(_c.heartbeat_at.is_(None), _c.heartbeat_at < _at), _at), else_=_c.heartbeat_at)
}


def _or_kept(*names: str) -> dict[str, sa.ColumnElement[Any]]:
    return {name: sa.func.coalesce(_param(name), _c[name]) for name in names}


USAGE: dict[str, sa.ColumnElement[Any]] = {
    **{name: _grown_count(name) for name in COUNTERS},
    **{
        name: sa.case((_costs_more, _param(name)), else_=_c[name]) for name in ("cost_micros", "cost_picos", "cost_usd")
    },
    **_or_kept("model", "price_table", "input_includes_cache_reads"),
}


def _execution_update(*conditions: sa.ColumnElement[bool], **sets: Any) -> Statement[Execution]:
    changed = sa.update(EXECUTIONS).where(HERE, *conditions).values(**sets)
    return statement_of(changed.returning(*COLUMNS), Execution)


_STILL_IN_FLIGHT = hide_from_indexes(IN_FLIGHT)

#: Stores usage alone, without a fence: money spent is a fact.
REPORT = _execution_update(**USAGE, **_alive)

#: One update statement for each set of given fields. On SQLite setting a column writes to each index that holds it,
#: even if the value stays the same.
UPDATES = {
    (session, checkpoint, usage): _execution_update(
        _STILL_IN_FLIGHT,
        FENCE,
        **({"session_id": _param("session_id")} if session else {}),
        **({"checkpoint": _param("checkpoint")} if checkpoint else {}),
        **(USAGE if usage else {}),
        **_alive,
    )
    for session, checkpoint, usage in product((False, True), repeat=3)
}

_finished = bind("at", _c.finished_at)

#: One statement that ends an execution for each combination of output text given or not, and details given or not.
FINISHES = {
    (output, details): _execution_update(
        _STILL_IN_FLIGHT,
        FENCE,
        finished_at=_finished,
        success=_param("success"),
        outcome=_param("outcome"),
        duration_ms=duration(_finished),
        **USAGE,
        **_or_kept("session_id", "error", "error_detail", "stop_reason"),
        **({"output_text": _param("output_text")} if output else {}),
        **({"details": _param("details")} if details else {}),
    )
    for output, details in product((False, True), repeat=2)
}

OVERRULE = _execution_update(
    sa.or_(_STILL_IN_FLIGHT, OUTCOME.element == constant("succeeded")),
    FENCE,
    finished_at=sa.func.coalesce(_c.finished_at, _finished),
    success=sa.false(),
    outcome=constant("failed"),
    stop_reason=constant("overruled"),
    error=_param("error"),
    error_detail=_param("error_detail"),
    duration_ms=duration(_finished),
)

SAVE_OUTPUT = _execution_update(FENCE, output_text=_param("output_text"))

_run_here = sa.select(_c.workflow_run_id).where(HERE).scalar_subquery()

#: Locks the run of an execution. Returns no row for an execution without a run.
LOCK_RUN = lock_statement(LockedRun, run=_run_here)
LOCK_SCRATCH = lock_statement(LockedScratch, run=_run_here)

GET = statement_of(sa.select(*COLUMNS).where(HERE), Execution)
FIND_OUTPUT = statement_of(sa.select(_c.output_text).where(HERE))

FIND_SESSION = statement_of(
    sa.select(*COLUMNS)
    .where(_c.session_id == _param("session_id"))
    .order_by(_c.started_at.desc(), _c.id.desc())
    .limit(number(1)),
    Execution,
)


def _phase_state(scope: sa.ColumnElement[bool]) -> sa.ColumnElement[str]:
    """Return the SQL expression for a phase's state. It takes a maximum over all executions of the phase.

    EXISTS would be slower: the planner may choose a table scan for it, expecting to find a matching row soon.
    """
    rank = sa.case((IN_FLIGHT, number(2)), (_c.success == sa.true(), number(1)))
    highest = sa.select(sa.func.max(rank)).where(scope, _c.skill == _param("skill")).scalar_subquery()
    states: dict[Any, Any] = {number(2): constant("running"), number(1): constant("done")}
    return sa.case(states, value=highest, else_=constant("run")).label("state")


#: The state of a phase in a run. Returns no row for an unknown run.
STATE_IN_RUN = statement_of(
    sa.select(_phase_state(_c.workflow_run_id == RUNS.c.id)).where(RUNS.c.id == sa.bindparam("run_id"))
)

STATE_OF_TRIGGER = statement_of(sa.select(_phase_state(OF_TRIGGER)))
