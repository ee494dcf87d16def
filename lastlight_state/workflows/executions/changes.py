"""Changes of executions.

Each is one conditional statement; if it changes no row, the row is read again to find the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row, Statement
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, LostRace
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim, NodeRef, PhaseEntry
from lastlight_state.workflows.checks import FenceParameters, NodeColumns, TriggerColumns
from lastlight_state.workflows.executions import statements as sql
from lastlight_state.workflows.executions.records import Execution
from lastlight_state.workflows.shared import executions, run_rows
from lastlight_state.workflows.shared.progress import Step
from lastlight_state.workflows.shared.run_rows import LockedRun
from lastlight_state.workflows.shared.transitions import first_line
from lastlight_state.workflows.words import NodeState

# The rows of new executions, and the parameters of changes of an execution. JSON values are text.


class NewExecution(NodeColumns, FenceParameters):
    """The row of a new execution, and what its start does to its node."""

    id: str
    skill: str
    started_at: datetime
    finished_at: datetime | None
    success: bool | None
    outcome: str
    error: str | None
    duration_ms: int | None
    session_id: str | None
    stop_reason: str | None
    workflow_run_id: str | None
    attempt: int | None
    claim_epoch: int | None
    cached: bool
    vcs_pointer: str | None
    work_dir: str | None
    details: str | None
    node_state: str
    at: datetime


class AloneExecution(NewExecution, TriggerColumns):
    """The row of a new execution without a run."""


class UsageCounts(TypedDict):
    """The counts of a usage report, as columns."""

    turns: int | None
    input_tokens: int | None
    output_tokens: int | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    api_duration_ms: int | None


class UsageColumns(UsageCounts):
    """A usage report as columns."""

    cost_micros: int | None
    cost_picos: int | None
    cost_usd: float | None
    input_includes_cache_reads: bool | None
    model: str | None
    price_table: str | None


class ChangeParameters(FenceParameters):
    """The parameters of every change of one execution."""

    execution_id: str


class Update(UsageColumns, ChangeParameters):
    """The parameters of an update."""

    at: datetime
    session_id: str | None
    checkpoint: str | None


class Ending(TypedDict):
    """Why an execution ended, as columns."""

    error: str | None
    error_detail: str | None
    stop_reason: str | None


class EndColumns(Ending):
    """The end of an execution."""

    outcome: str


class Finish(Update, EndColumns):
    """The parameters of an end."""

    success: bool


class Overruling(ChangeParameters, EndColumns):
    """The parameters of a success turned into a failure."""

    at: datetime


class Interruption(TypedDict):
    """The facts of an interruption: when, why, and of which skill."""

    at: datetime
    because: str
    skill: str | None


class OutputText(ChangeParameters):
    """The parameters of an output text."""

    output_text: str


def _no_objection(_: Execution) -> None:
    return None


@dataclass(frozen=True)
class Change:
    """A change of one execution: a conditional statement, and a callback for when the conditions do not hold.

    The callback ``judge`` gets the stored execution, after the claim was checked. It raises if the change is forbidden,
    returns the execution if the change was made before, or returns None if the change may be tried again. The callback
    ``then`` is called after a change.
    """

    statement: Statement[Execution]
    values: ChangeParameters
    claim: Claim | None
    judge: Callable[[Execution], Execution | None] = _no_objection
    then: Callable[[Unit, Execution], None] | None = None

    def attempt(self, unit: Unit) -> Execution | None:
        """Return the changed execution, or None if a condition does not hold."""
        changed = unit.row(self.statement, self.values)
        if changed is not None and self.then is not None:
            self.then(unit, changed)
        return changed

    def look_again(self, unit: Unit) -> Execution:
        """Try the change again under the run's lock. Returns the execution, or raises why it cannot be changed."""
        run = unit.row(sql.LOCK_RUN, self.values)
        stored = get(unit, self.values["execution_id"])
        _fence(run, stored, self.claim)
        done = self.judge(stored) or self.attempt(unit)
        if done is None:
            raise LostRace(f"execution {stored.id!r} is being changed by another process", found=stored.outcome)
        return done


def insert(unit: Unit, run_id: str, row: NewExecution, claim: Claim | None) -> Execution | None:
    """Insert an execution under its run's lock. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``."""
    _permit(unit, run_id, claim)
    return unit.row(sql.START, row)


def insert_attempt(unit: Unit, run_id: str, row: NewExecution, claim: Claim | None) -> Execution | None:
    """Insert the next numbered attempt at a node, and set the node's state. Raises as `insert` does."""
    attempt = unit.value(sql.COUNT_ATTEMPT, row)
    if attempt is None:
        _permit(unit, run_id, claim)
        attempt = unit.value(sql.COUNT_ATTEMPT, row)
    return unit.row(sql.START, {**row, "attempt": attempt})


def get(unit: Unit, execution_id: str) -> Execution:
    """Return the execution without its text. Raises `NotFound`."""
    execution = unit.row(sql.GET, {"execution_id": execution_id})
    if execution is None:
        raise valid.not_found("execution", execution_id)
    return execution


def at_a_node(execution: Execution) -> tuple[str, NodeRef]:
    """Return the run id and node of an attempt. Raises `InvalidValue` for an execution without a node."""
    if execution.node_id is None or execution.run_id is None:
        raise InvalidValue("node_state", f"execution {execution.id!r} must be an attempt at a node")
    return execution.run_id, NodeRef(execution.node_id, execution.iteration)


def move_node(unit: Unit, ended: Execution, state: NodeState, at: datetime) -> None:
    """Set the state of the node that an execution was an attempt at."""
    run_id, node = at_a_node(ended)
    executions.set_state(unit, run_id, node, state, at)


def interrupt(unit: Unit, run_id: str, facts: Interruption, claim: Claim | None) -> int:
    """End a run's executions in flight as interrupted. Returns their number. Raises `NotFound`, `ClaimLost`."""
    run_rows.check(run_rows.lock(unit, run_id), claim)
    return executions.close(unit, run_id, "interrupted", **facts)


def in_flight(execution: Execution) -> bool:
    """True if the execution has not ended."""
    return execution.finished_at is None and execution.success is None


def ended_alike(execution: Execution, values: EndColumns) -> bool:
    """True if the execution already ended with these values, so that ending it again changes nothing."""
    detail = values["error_detail"]
    return (
        (execution.outcome, execution.error, execution.stop_reason)
        == (values["outcome"], values["error"], values["stop_reason"])
        and codec.digest(execution.error_detail) == codec.digest(None if detail is None else codec.decode(detail))
    )  # fmt: skip


def judge_end(execution_id: str, values: EndColumns) -> Callable[[Execution], Execution | None]:
    """Return the callback ``judge`` of the `Change` that ends an execution with these columns."""

    def judge(stored: Execution) -> Execution | None:
        if in_flight(stored):
            return None
        if ended_alike(stored, values):
            return stored
        raise LostRace(f"execution {execution_id!r} has already ended: {stored.outcome}", found=stored.outcome)

    return judge


def end_change(values: Finish, results: Row, claim: Claim | None, then: Callable[[Unit, Execution], None]) -> Change:
    """Return the change that ends an execution with these columns and stores its output text and details."""
    statement = sql.FINISHES["output_text" in results, "details" in results]
    also: Any = {**values, **results}
    return Change(statement, also, claim, judge_end(values["execution_id"], values), then)


def phase_of(ended: Execution, summary: str | None, at: datetime) -> Step:
    """Return the run's `Step` that appends the phase of an ended execution, with the summary or else its error."""
    if ended.run_id is None:
        raise InvalidValue("execution_id", f"execution {ended.id!r} must belong to a run")
    said = summary if summary is not None else first_line(ended.error)
    entry = PhaseEntry(ended.skill.rpartition(":")[2], ended.outcome == "succeeded", said)
    return Step(ended.run_id, at, shared.phase_entry(entry, at))


def finished_error(execution: Execution, *allowed: str) -> Conflict:
    """Return the error for a change of an execution whose outcome is not one of the ``allowed`` outcomes."""
    return Conflict(
        f"execution {execution.id!r} must be {' or '.join(allowed)}, it is {execution.outcome}",
        code="execution_finished",
        found=execution.outcome,
        allowed=allowed,
    )


def _permit(unit: Unit, run_id: str, claim: Claim | None) -> None:
    run = run_rows.lock(unit, run_id)
    run_rows.check(run, claim)
    run_rows.expect(run, ("running",))


def _fence(run: LockedRun | None, execution: Execution, claim: Claim | None) -> None:
    if run is not None:
        run_rows.check(run, claim)
    elif claim is not None:
        raise InvalidValue("claim", f"execution {execution.id!r} must belong to a run")
