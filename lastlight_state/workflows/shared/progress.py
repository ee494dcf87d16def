"""Append phases to a live run and merge patches into its scratch, under the run's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db.rows.statements import Row, Statement, bind, statement_of
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData, InvalidValue, PayloadTooLarge
from lastlight_state.settings import Limits
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.records import RunProgress
from lastlight_state.workflows.shared import run_rows
from lastlight_state.workflows.shared.run_rows import LockedRun, lock_statement
from lastlight_state.workflows.tables import RUNS

_POINTER_RULE = "store large text with executions.save_output and keep its execution id in scratch"


def encoded_scratch(scratch: dict[str, Any], limits: Limits, *, before: dict[str, Any] | None = None) -> str:
    """Encode scratch as JSON text.

    Raises `PayloadTooLarge` over the limit, unless the text is shorter than the stored text, ``before``.
    """
    data = codec.encode_sound(scratch)
    if len(data) > limits.scratch and not len(data) < len(codec.encode_sound(before)):
        largest = max(scratch, key=lambda key: len(codec.encode_sound(scratch[key])))
        hint = f"largest key {largest[:100]!r}; {_POINTER_RULE}"
        raise PayloadTooLarge("scratch", limit=limits.scratch, actual=len(data), hint=hint)
    return data.decode()


class LockedPhases(LockedRun):
    """A locked run with its history."""

    phase_history: Any


class LockedScratch(LockedRun):
    """A locked run with its scratch."""

    scratch: Any


class LockedBoth(LockedPhases, LockedScratch):
    """A locked run with its history and scratch."""


LOCK_PHASES = lock_statement(LockedPhases)
LOCK_SCRATCH = lock_statement(LockedScratch)
LOCK_BOTH = lock_statement(LockedBoth)

_this_run = RUNS.c.id == sa.bindparam("run_id")
_updated = {"updated_at": later_of(RUNS.c.updated_at, bind("at", RUNS.c.updated_at))}
_phase: Mapping[str, Any] = {
    "phase_history": sa.bindparam("phase_history"),
    "phase_count": sa.bindparam("phase_count"),
    "current_phase": sa.bindparam("phase"),
}

PUT_PHASE = statement_of(sa.update(RUNS).where(_this_run).values(**_phase, **_updated))
PUT_SCRATCH = statement_of(sa.update(RUNS).where(_this_run).values(scratch=sa.bindparam("scratch"), **_updated))
PUT_BOTH = statement_of(sa.update(RUNS).where(_this_run).values(scratch=sa.bindparam("scratch"), **_phase, **_updated))

_LOCKS: Mapping[tuple[bool, bool], Statement[Any]] = {
    (True, True): LOCK_BOTH,
    (True, False): LOCK_PHASES,
    (False, True): LOCK_SCRATCH,
    (False, False): run_rows.LOCK,
}
_PUTS = {(True, True): PUT_BOTH, (True, False): PUT_PHASE, (False, True): PUT_SCRATCH}


@dataclass(frozen=True)
class Step:
    """A change of a run: a phase to append to its history, changes of its scratch, or both.

    ``patch`` is merged into scratch, and the keys in ``remove`` are deleted from it. ``members`` maps keys of scratch
    to dicts: each dict is merged into the object under its key, which keeps its other members.
    """

    run_id: str
    at: datetime
    entry: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    remove: Sequence[str] = ()
    members: Mapping[str, dict[str, Any]] | None = None

    @property
    def parts(self) -> tuple[bool, bool]:
        """Return two flags: true if the step has a phase entry, and true if it changes scratch."""
        return self.entry is not None, self.patch is not None or self.members is not None


def take(unit: Unit, step: Step, limits: Limits, claim: Claim | None) -> RunProgress:
    """Apply a step to a live run. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``, `PayloadTooLarge`."""
    row = lock(unit, step)
    run_rows.check(row, claim)
    run_rows.expect(row, words.LIVE)
    return _apply_step(unit, row, step, limits)


def take_unfenced(unit: Unit, step: Step, limits: Limits) -> RunProgress:
    """Apply a step without checking a claim, because a person's answer needs none.

    The caller has locked the run and checked that it is live.
    """
    return _apply_step(unit, lock(unit, step), step, limits)


def lock(unit: Unit, step: Step) -> LockedRun:
    """Lock the run's row. Returns its state and the columns that the step changes. Raises `NotFound`."""
    locked: LockedRun = run_rows.lock(unit, step.run_id, _LOCKS[step.parts])
    return locked


def add(unit: Unit, row: LockedRun, step: Step, limits: Limits) -> None:
    """Apply a step to the row that `lock` returned for the step. The caller has checked the run's fence and status."""
    if any(step.parts):
        _apply_step(unit, row, step, limits)


def _apply_step(unit: Unit, row: LockedRun, step: Step, limits: Limits) -> RunProgress:
    values: Row = {"run_id": step.run_id, "at": step.at}
    if step.entry is not None:
        phases = cast(LockedPhases, row)
        values["phase_history"] = _history(phases, step.entry, limits)
        values |= {"phase": step.entry["phase"], "phase_count": len(phases.phase_history) + 1}
    scratch = None if not step.parts[1] else _merge_scratch(cast(LockedScratch, row), step, limits)
    if scratch is not None:
        values["scratch"] = scratch
    unit.change(_PUTS[step.parts], values)
    return RunProgress.of(
        {
            "phase": values.get("phase", row.current_phase),
            "phase_count": values.get("phase_count", row.phase_count),
            "scratch_bytes": None if scratch is None else len(scratch.encode()),
            "updated_at": max(row.updated_at, step.at),
        }
    )


def _history(row: LockedPhases, entry: dict[str, Any], limits: Limits) -> str:
    history = row.phase_history
    if not isinstance(history, list):
        raise CorruptData("workflow_runs", row.id, "phase_history", problem="must be an array")
    if len(history) >= limits.phase_entries:
        raise PayloadTooLarge("phase_history", limit=limits.phase_entries, actual=len(history) + 1, unit="entries")
    data = codec.encode_sound([*history, entry])
    if len(data) > limits.phase_history:
        raise PayloadTooLarge("phase_history", limit=limits.phase_history, actual=len(data))
    return data.decode()


def _merge_scratch(row: LockedScratch, step: Step, limits: Limits) -> str:
    stored = row.scratch
    if stored is not None and not isinstance(stored, dict):
        raise CorruptData("workflow_runs", row.id, "scratch", problem="must be an object")
    merged = {**(stored or {}), **(step.patch or {})}
    for key, members in (step.members or {}).items():
        found = merged.get(key)
        if found is not None and not isinstance(found, dict):
            raise InvalidValue("loop", f"scratch[{key!r}] must be an object")
        merged[key] = {**(found or {}), **members}
    for key in step.remove:
        merged.pop(key, None)
    return encoded_scratch(merged, limits, before=stored)
