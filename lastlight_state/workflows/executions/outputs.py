"""The pointer rule (workflows W-80): a loop's last text is the output of an execution, and scratch points to that.

Text and pointer are written in one transaction, so that neither is ever stored without the other. Foreign programs
wrote the text itself into scratch; it is read if there is no pointer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.sql.json import entry_of
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData, InvalidValue
from lastlight_state.settings import Limits
from lastlight_state.workflows.executions import changes, statements as sql
from lastlight_state.workflows.executions.changes import Change
from lastlight_state.workflows.kernel import fence, progress, rows
from lastlight_state.workflows.kernel.progress import LockedScratch, Step
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE

POINTER, INLINE = "lastOutputExecutionId", "lastOutput"

_key = bind("key", RUNS.c.id)
_pointer = entry_of(RUNS.c.scratch, _key, member=POINTER)
_pointed = sa.select(EXECUTIONS.c.output_text).where(EXECUTIONS.c.id == _pointer).scalar_subquery()
#: Follows scratch to the execution and its text. Reads one row and one column of executions.
FIND_CARRIED = prepared(
    sa.select(
        sa.case((_pointer.is_(None), entry_of(RUNS.c.scratch, _key, member=INLINE)), else_=_pointed).label("text")
    ).where(RUNS.c.id == sa.bindparam("run_id"))
)


@dataclass(frozen=True)
class LoopOutput:
    """A text to store as the last output of the loop ``key``, with the loop's ``state``. ``save`` writes the text."""

    key: str
    save: Change
    at: datetime
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def execution_id(self) -> str:
        return str(self.save.values["execution_id"])


def save(unit: Unit, output: LoopOutput, limits: Limits) -> None:
    """Store a loop's text and its pointer, in the run that the execution belongs to."""
    row = unit.row(sql.LOCK_SCRATCH, output.save.values)
    if row is None:
        changes.get(unit, output.execution_id)
        raise InvalidValue("loop", f"execution {output.execution_id!r} must belong to a run")
    _store(unit, row, output, limits)


def carry(unit: Unit, run_id: str, output: LoopOutput, limits: Limits) -> None:
    """Store a loop's text, its pointer and its state, in this run."""
    row = rows.lock(unit, run_id, progress.LOCK_SCRATCH)
    if changes.get(unit, output.execution_id).run_id != run_id:
        raise InvalidValue("execution_id", "must be an execution of this run")
    _store(unit, row, output, limits)


def _store(unit: Unit, row: LockedScratch, output: LoopOutput, limits: Limits) -> None:
    fence.check(row, output.save.claim)
    rows.expect(row, LIVE)
    loop = {**_stored(row, output.key), **output.state, POINTER: output.execution_id}
    progress.add(unit, row, Step(row["id"], output.at, patch={output.key: loop}), limits)
    output.save.attempt(unit)


def _stored(row: LockedScratch, key: str) -> dict[str, Any]:
    scratch = row["scratch"] or {}
    if not isinstance(scratch, dict):
        raise CorruptData("workflow_runs", row["id"], "scratch", problem="must be an object")
    found = scratch.get(key)
    if found is not None and not isinstance(found, dict):
        raise InvalidValue("loop", f"scratch[{key!r}] must be an object")
    return found or {}
