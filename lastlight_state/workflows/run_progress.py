"""How a live run moves on: phases appended and scratch merged, under the run's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData, PayloadTooLarge
from lastlight_state.settings import Limits
from lastlight_state.workflows import run_rows, words
from lastlight_state.workflows import run_statements as sql
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.records import RunProgress
from lastlight_state.workflows.run_checks import encoded_scratch

_LOCKS = {
    (True, True): sql.LOCK_BOTH,
    (True, False): sql.LOCK_PHASES,
    (False, True): sql.LOCK_SCRATCH,
    (False, False): run_rows.LOCK,
}
_PUTS = {(True, True): sql.PUT_BOTH, (True, False): sql.PUT_PHASE, (False, True): sql.PUT_SCRATCH}


@dataclass(frozen=True)
class Step:
    """What a call adds to a run: a phase entry, a patch of scratch with keys to drop, or both."""

    run_id: str
    at: datetime
    entry: dict[str, Any] | None = None
    patch: dict[str, Any] | None = None
    remove: Sequence[str] = ()

    @property
    def parts(self) -> tuple[bool, bool]:
        return self.entry is not None, self.patch is not None


def take(unit: Unit, step: Step, limits: Limits, claim: Claim | None) -> RunProgress:
    """Apply a step to a live run. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``, `PayloadTooLarge`."""
    row = lock(unit, step)
    run_rows.fence(row, claim)
    run_rows.expect(row, words.LIVE)
    return _taken(unit, row, step, limits)


def take_unfenced(unit: Unit, step: Step, limits: Limits) -> RunProgress:
    """`take` for a responder, who holds no claim, on a run that the caller has found live under its lock."""
    return _taken(unit, lock(unit, step), step, limits)


def lock(unit: Unit, step: Step) -> dict[str, Any]:
    """The locked row's state, with what the step adds to. Raises `NotFound`."""
    return run_rows.lock(unit, step.run_id, _LOCKS[step.parts])


def add(unit: Unit, row: Mapping[str, Any], step: Step, limits: Limits) -> None:
    """Apply a step to the row that `lock` gave for it, which the caller has fenced and found live."""
    if any(step.parts):
        _taken(unit, row, step, limits)


def _taken(unit: Unit, row: Mapping[str, Any], step: Step, limits: Limits) -> RunProgress:
    values: dict[str, Any] = {"run_id": step.run_id, "at": step.at}
    if step.entry is not None:
        history = _history(row, step.entry, limits)
        values |= {"phase_history": history, "phase": step.entry["phase"], "phase_count": len(row["phase_history"]) + 1}
    scratch = None if step.patch is None else _merged(row, step, limits)
    if scratch is not None:
        values["scratch"] = scratch
    unit.change(_PUTS[step.parts], values)
    return RunProgress.of(
        {
            "phase": values.get("phase", row["current_phase"]),
            "phase_count": values.get("phase_count", row["phase_count"]),
            "scratch_bytes": None if scratch is None else len(scratch.encode()),
            "updated_at": max(row["updated_at"], step.at),
        }
    )


def _history(row: Mapping[str, Any], entry: dict[str, Any], limits: Limits) -> str:
    history = row["phase_history"]
    if not isinstance(history, list):
        raise CorruptData("workflow_runs", row["id"], "phase_history", problem="is no array")
    if len(history) >= limits.phase_entries:
        raise PayloadTooLarge("phase_history", limit=limits.phase_entries, actual=len(history) + 1, unit="entries")
    data = codec.encode_sound([*history, entry])
    if len(data) > limits.phase_history:
        raise PayloadTooLarge("phase_history", limit=limits.phase_history, actual=len(data))
    return data.decode()


def _merged(row: Mapping[str, Any], step: Step, limits: Limits) -> str:
    stored = row["scratch"]
    if stored is not None and not isinstance(stored, dict):
        raise CorruptData("workflow_runs", row["id"], "scratch", problem="is no object")
    merged = {**(stored or {}), **(step.patch or {})}
    for key in step.remove:
        merged.pop(key, None)
    return encoded_scratch(merged, limits, before=stored)
