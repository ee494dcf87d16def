"""The pointer rule (workflows W-80): a loop's last text is an execution's output, and scratch holds where it is.

Both are written in one transaction, so that a pointer never leads nowhere and a text is never out of reach. Programs
before us wrote the text itself into scratch; where there is no pointer, that one is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.sql.json import entry_of
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData, InvalidValue
from lastlight_state.settings import Limits
from lastlight_state.workflows.executions import changes as execution_writes, statements as execution_statements
from lastlight_state.workflows.executions.changes import Change
from lastlight_state.workflows.kernel import fence, progress, progress as run_progress, rows as run_rows
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE

POINTER, INLINE = "lastOutputExecutionId", "lastOutput"

_key = sa.bindparam("key", type_=RUNS.c.id.type)
_pointer = entry_of(RUNS.c.scratch, _key, member=POINTER)
_pointed = sa.select(EXECUTIONS.c.output_text).where(EXECUTIONS.c.id == _pointer).scalar_subquery()
#: From scratch to the execution to its text; the one row and the one column that was asked for.
FIND = prepared(
    sa.select(
        sa.case((_pointer.is_(None), entry_of(RUNS.c.scratch, _key, member=INLINE)), else_=_pointed).label("text")
    ).where(RUNS.c.id == sa.bindparam("run_id"))
)


@dataclass(frozen=True)
class Output:
    """A text to be stored (``save``) as the last output of the loop ``key``, whose ``state`` is merged with it."""

    key: str
    save: Change
    at: datetime
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def execution_id(self) -> str:
        return str(self.save.values["execution_id"])


def save(unit: Unit, output: Output, limits: Limits) -> None:
    """Store a loop's text and its pointer, in the run that the execution belongs to."""
    row = unit.row(execution_statements.LOCK_SCRATCH, output.save.values)
    if row is None:
        execution_writes.get(unit, output.execution_id)
        raise InvalidValue("loop", f"execution {output.execution_id!r} belongs to no run")
    _store(unit, row, output, limits)


def carry(unit: Unit, run_id: str, output: Output, limits: Limits) -> None:
    """Store a loop's text, its pointer and its state, in this run."""
    row = run_rows.lock(unit, run_id, progress.LOCK_SCRATCH)
    if execution_writes.get(unit, output.execution_id).workflow_run_id != run_id:
        raise InvalidValue("execution_id", "an execution of another run")
    _store(unit, row, output, limits)


def _store(unit: Unit, row: dict[str, Any], output: Output, limits: Limits) -> None:
    fence.fence(row, output.save.claim)
    run_rows.expect(row, LIVE)
    loop = {**_stored(row, output.key), **output.state, POINTER: output.execution_id}
    run_progress.add(unit, row, Step(row["id"], output.at, patch={output.key: loop}), limits)
    output.save.attempt(unit)


def _stored(row: dict[str, Any], key: str) -> dict[str, Any]:
    scratch = row["scratch"] or {}
    if not isinstance(scratch, dict):
        raise CorruptData("workflow_runs", row["id"], "scratch", problem="is no object")
    found = scratch.get(key)
    if found is not None and not isinstance(found, dict):
        raise InvalidValue("loop", f"scratch[{key!r}] is no object")
    return found or {}
