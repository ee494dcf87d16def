"""How a question is opened: beside a run that goes on, or together with the run's pause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic

from lastlight_state.clock import iso_text
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.settings import Limits
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.kernel import (
    fence,
    progress as run_progress,
    rows as run_rows,
    transitions as run_pauses,
)
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.questions.rows import Q, Questions


def _nothing(_: Unit) -> None:
    return None


@dataclass(frozen=True)
class Opening(Generic[Q]):
    """A question about to be asked: its row, its run, and when; ``refuse`` may raise before it is."""

    questions: Questions[Q]
    values: dict[str, Any]
    run_id: str
    at: datetime
    refuse: Callable[[Unit], None] = _nothing


def beside(unit: Unit, opening: Opening[Q], claim: Claim | None) -> Q:
    """Store a question of a run that goes on.

    One that is stored already is looked for first: the pause that stored it ended the claim.
    """
    row = run_rows.lock(unit, opening.run_id)
    return opening.questions.stored(unit, opening.values) or _insert(unit, row, opening, ("running", "paused"), claim)


def pausing(unit: Unit, opening: Opening[Q], step: Step, limits: Limits, claim: Claim | None) -> Q:
    """Store a question and pause its run, which nobody holds from then on."""
    row = run_progress.lock(unit, step)
    stored = opening.questions.stored(unit, opening.values)
    if stored is not None:
        return stored
    question = _insert(unit, row, opening, ("running",), claim)
    run_progress.add(unit, row, step, limits)
    run_pauses.pause(unit, row, "gate", at=step.at, claim=claim)
    return question


def _insert(unit: Unit, row: dict[str, Any], opening: Opening[Q], allowed: Sequence[str], claim: Claim | None) -> Q:
    fence.fence(row, claim)
    run_rows.expect(row, allowed)
    expires_at = opening.values["expires_at"]
    if expires_at is not None and expires_at <= opening.at:
        raise InvalidValue(f"{opening.questions.argument}.expires_at", f"{iso_text(expires_at)} is not ahead")
    opening.refuse(unit)
    return opening.questions.insert(unit, opening.values, opening.at)
