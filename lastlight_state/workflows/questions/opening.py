"""How a question is opened: while its run goes on, or together with the pause of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypedDict

from lastlight_state.clock import iso_text
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.settings import Limits
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.kernel import fence, progress, rows, transitions
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.kernel.rows import LockedRun
from lastlight_state.workflows.questions.rows import Q, QuestionRows


def _nothing(_: Unit) -> None:
    return None


class NewQuestion(TypedDict):
    """What is read of the row of any new question."""

    id: str
    expires_at: datetime | None


@dataclass(frozen=True)
class Opening(Generic[Q]):
    """A question about to be asked: its row, its run and the time. ``refuse`` may raise before it is stored."""

    questions: QuestionRows[Q]
    values: NewQuestion
    run_id: str
    at: datetime
    refuse: Callable[[Unit], None] = _nothing


def beside(unit: Unit, opening: Opening[Q], claim: Claim | None) -> Q:
    """Store a question of a run that goes on.

    Looks for a stored one before it checks the fence: the pause that stored it has ended the claim.
    """
    row = rows.lock(unit, opening.run_id)
    stored = opening.questions.stored(unit, opening.values)
    if stored is not None:
        return stored
    question = _insert(unit, row, opening, ("running", "paused"), claim)
    transitions.move(
        unit, transitions.QUESTION, row, row["status"], reason=words.QUESTION_ASKED, at=opening.at, source="engine",
        detail=opening.questions.told(question, "asked"), presented_epoch=claim.epoch if claim else None,
    )  # fmt: skip
    return question


def pausing(unit: Unit, opening: Opening[Q], step: Step, limits: Limits, claim: Claim | None) -> Q:
    """Store a question and pause its run. The claim ends."""
    row = progress.lock(unit, step)
    stored = opening.questions.stored(unit, opening.values)
    if stored is not None:
        return stored
    question = _insert(unit, row, opening, ("running",), claim)
    progress.add(unit, row, step, limits)
    transitions.pause(unit, row, "gate", at=step.at, claim=claim, detail=opening.questions.told(question, "asked"))
    return question


def _insert(unit: Unit, row: LockedRun, opening: Opening[Q], allowed: Sequence[str], claim: Claim | None) -> Q:
    fence.check(row, claim)
    rows.expect(row, allowed)
    expires_at = opening.values["expires_at"]
    if expires_at is not None and expires_at <= opening.at:
        raise InvalidValue(f"{opening.questions.argument}.expires_at", f"{iso_text(expires_at)} must be in the future")
    opening.refuse(unit)
    return opening.questions.insert(unit, opening.values, opening.at)
